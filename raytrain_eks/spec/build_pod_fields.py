"""Builds `pod_fields.json`, the table of a pod's fields, from the schemas in the PyPI package kubernetes-validate.

Run as `python -m raytrain_eks.spec.build_pod_fields`; only developers need that package. The version is the newest
whose pod fields KubeRay 1.7's own definitions hold as well, so that nothing is accepted here and pruned there.

An entry is `string`, `integer`, `boolean`, `number`, `quantity` or the name of another type; in brackets a list of it,
in braces a mapping with values of it. A merged list has its key behind a bar (`[Container|name]`), and two bars when a
new entry replaces the old one whole (`[Volume||name]`: a volume has one source).
"""

import json
from pathlib import Path
from typing import Any

VERSION = "v1.33.0"
TARGET = Path(__file__).parent / "pod_fields.json"
PREFIX = "#/$defs/"
ROOT = "io.k8s.api.core.v1.PodSpec"
QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"


def definitions() -> dict[str, Any]:
    """Every type of the Kubernetes API, by its full name."""
    from importlib.util import find_spec

    package = find_spec("kubernetes_validate")
    if package is None or package.origin is None:
        raise SystemExit("pip install kubernetes-validate")
    folder = Path(package.origin).parent / "kubernetes-json-schema" / f"{VERSION}-local"
    found: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


def table(all_types: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Type -> field -> entry, for PodSpec and every type below it, sorted."""
    found: dict[str, dict[str, str]] = {}
    queue = [ROOT]
    while queue:
        name = queue.pop()
        short = name.rpartition(".")[2]
        if short in found:
            continue
        found[short] = {
            field: _entry(schema, queue) for field, schema in sorted(all_types[name].get("properties", {}).items())
        }
    found["PodTemplate"] = {"metadata": "Metadata", "spec": "PodSpec"}
    found["Metadata"] = {"annotations": "{string}", "labels": "{string}"}
    return dict(sorted(found.items()))


def _entry(schema: dict[str, Any], queue: list[str]) -> str:
    if (reference := schema.get("$ref", "").rpartition(PREFIX)[2]) != "":
        if reference in (QUANTITY, OR_STRING):
            return "quantity"
        if reference.endswith(".ObjectMeta"):
            return "Metadata"
        queue.append(reference)
        return str(reference.rpartition(".")[2])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = next(kind for kind in kinds if kind != "null")
    if kind == "array":
        key = schema.get("x-kubernetes-patch-merge-key", "")
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        mark = ("||" if "retainKeys" in strategy else "|") + key if "merge" in strategy else ""
        return f"[{_entry(schema['items'], queue)}{mark}]"
    if kind == "object":
        values = schema.get("additionalProperties")
        return f"{{{_entry(values, queue) if values else 'any'}}}"
    return str(kind)


def main() -> None:
    """Write the table, one line per type."""
    lines = [f"{json.dumps(name)}: {json.dumps(fields)}" for name, fields in table(definitions()).items()]
    TARGET.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
