"""What an API server would say to an object: structure, unknown fields, CEL rules; offline.

Custom resources are checked against the definitions in `../shared/crds` (structural schema, every field known, every
rule of `x-kubernetes-validations` that looks at one state), core resources by `kubernetes-validate`, strictly.
"""

import copy
import json
import re
from functools import cache
from pathlib import Path

import cel
import jsonschema

from raytrain_eks.spec.quantity import parse

FOLDERS = (
    "ack-fsx-controller",
    "argo-cd",
    "karpenter-provider-aws",
    "kuberay",
    "kueue",
    "mpi-operator",
    "slurm-operator",
    "volcano",
)
CORE_VERSIONS = ("1.33", "1.37")
WITHOUT_SCHEMA = {"PodMonitor", "LaunchTemplate", "Nodegroup"}
"""Kinds rendered here whose definitions are not among the recorded ones."""


@cache
def definitions_in(crds: Path) -> "Definitions":
    """The definitions of a folder, read once for all tests."""
    return Definitions(crds)


class Definitions:
    """The custom resource definitions of a folder, by apiVersion and kind; each is read when first asked for."""

    def __init__(self, crds: Path):
        self.found: dict[tuple[str, str], tuple[dict, str]] = {}
        self.validators: dict[tuple[str, str], jsonschema.Draft202012Validator] = {}
        for folder in sorted(crds.iterdir()):
            if folder.name.split("@")[0] in FOLDERS:
                for file in sorted(folder.glob("*.json")):
                    self._read(json.loads(file.read_text()))

    def _read(self, definition: dict) -> None:
        spec = definition["spec"]
        for version in spec["versions"]:
            schema = version.get("schema", {}).get("openAPIV3Schema")
            if schema:
                api = f"{spec['group']}/{version['name']}"
                self.found[api, spec["names"]["kind"]] = (schema, spec["scope"])

    def findings(self, body: dict) -> list[str]:
        """What is wrong with an object; empty when an API server would take it."""
        key = (body.get("apiVersion", ""), body.get("kind", ""))
        if key in self.found:
            if key not in self.validators:
                self.validators[key] = jsonschema.Draft202012Validator(_closed_root(self.found[key][0]))
            return self._custom(body, self.validators[key], *self.found[key])
        return [] if body.get("kind") in WITHOUT_SCHEMA else _core(body)

    def _custom(self, body: dict, validator, schema: dict, scope: str) -> list[str]:
        namespace = body.get("metadata", {}).get("namespace")
        found = []
        if scope == "Cluster" and namespace:
            found.append("metadata.namespace: set on a kind that belongs to the whole cluster")
        if scope == "Namespaced" and not namespace:
            found.append("metadata.namespace: missing")
        filled = _with_defaults(schema, copy.deepcopy(body))
        errors = validator.iter_errors(filled)
        found += [f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}" for error in errors]
        return found if found else list(_rules(schema, filled, ""))


def _closed_root(schema: dict) -> dict:
    root = dict(schema)
    properties = {**schema.get("properties", {}), "metadata": {"type": "object"}, "status": {}}
    properties |= {"apiVersion": {"type": "string"}, "kind": {"type": "string"}}
    return _closed({**root, "properties": properties})


def _closed(schema: dict) -> dict:
    """A structural schema as JSON Schema in which an unknown field is an error."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"], **({"pattern": schema["pattern"]} if "pattern" in schema else {})}
    out = {key: value for key, value in schema.items() if not key.startswith("x-") and key != "description"}
    if "properties" in out:
        out["properties"] = {name: _closed(part) for name, part in out["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(out.get(key), dict):
            out[key] = _closed(out[key])
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("x-kubernetes-embedded-resource")
    if schema.get("type") == "object" and "properties" in out and "additionalProperties" not in out and not keeps:
        out["additionalProperties"] = False
    if schema.get("nullable") and "type" in out:
        out["type"] = [out["type"], "null"]
    return out


def _with_defaults(schema: dict, value):
    if isinstance(value, dict):
        for name, part in schema.get("properties", {}).items():
            if name not in value and "default" in part:
                value[name] = copy.deepcopy(part["default"])
            if name in value:
                _with_defaults(part, value[name])
        if isinstance(schema.get("additionalProperties"), dict):
            for name, inner in value.items():
                if name not in schema.get("properties", {}):
                    _with_defaults(schema["additionalProperties"], inner)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            _with_defaults(schema["items"], item)
    return value


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group(0) if match else ""


@cache
def _program(rule: str):
    return cel.compile(rule)


def _rules(schema: dict, value, path: str):
    for entry in schema.get("x-kubernetes-validations", []):
        if "oldSelf" in entry["rule"]:
            continue
        context = cel.Context()
        context.add_variable("self", value)
        context.add_function("find", _find)
        context.add_function("split", lambda text, by: text.split(by))
        if not _program(entry["rule"]).execute(context):
            yield f"{path}: {entry.get('message') or entry['rule']}"
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for name, inner in value.items():
            part = known.get(name) or schema.get("additionalProperties")
            if isinstance(part, dict):
                yield from _rules(part, inner, f"{path}.{name}")
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, inner in enumerate(value):
            yield from _rules(schema["items"], inner, f"{path}[{index}]")


_TABLES = ("requests", "limits", "hard", "capacity")


def _quantities(value, path: str = ""):
    """What an API server refuses although it is text, as the schema says: no quantity (resource.ParseQuantity)."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else []):
        if key in _TABLES and isinstance(inner, dict):
            for name, amount in inner.items():
                try:
                    parse(amount)
                except ValueError as error:
                    yield f"{path}.{key}.{name}: {error}"
        yield from _quantities(inner, f"{path}.{key}")


@cache
def _kubernetes_validate():
    """The checker of core resources, which otherwise reads its schema anew for every object."""
    import kubernetes_validate

    kubernetes_validate.utils.schema_contents = cache(kubernetes_validate.utils.schema_contents)
    return kubernetes_validate


def _core(body: dict) -> list[str]:
    kubernetes_validate = _kubernetes_validate()

    found = list(_quantities(body))
    for version in CORE_VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"no schema for {body.get('apiVersion')} {body.get('kind')} in Kubernetes {version}")
        except kubernetes_validate.ValidationError as error:
            found.append(f"[{version}] {'.'.join(map(str, error.path))}: {error.message[:300]}")
    return found
