"""RT310: fields of a pod whose value is of another type, and fields whose name is one slip away from the real one.

By the table of a pod's fields that checks a cluster file's own pieces as well (`spec/pod_fields.json`). A field that
the table does not know may be newer than it, so only a slip is told. Environment, arguments and node selectors are
RT010's: there a wrong type is common, and has a fix of its own.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.served import is_served
from raytrain_eks.lint.tree import get, placeholder, text
from raytrain_eks.spec.config_fields import one_slip
from raytrain_eks.spec.pod_overlay import fields_of
from raytrain_eks.spec.problem import shown
from raytrain_eks.spec.source import Path

_EXPECTED = {"string": "a text", "integer": "a whole number", "boolean": "true or false", "number": "a number"}
_OLD_BOOLEANS = {"y", "n", "yes", "no", "on", "off"}
"""Bare words that kubectl (YAML 1.1) reads as truth values."""
_TEXTS: dict[str, type] = {"command": list, "args": list, "nodeSelector": Mapping}
"""What holds texts, and is looked at by RT010."""
_PORTS = {"containerPort": 1, "hostPort": 0}
"""The smallest number of a port; none on the host is written as 0."""
_SHORTEST = 4
Fault = tuple[Path, str, str]
"""Path inside the pod's spec, reason, fix."""


def _pods(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if is_served(pod.owner) and pod.apart is None and pod.owner.kind != "ConfigMap":
            for path, reason, fix in _object(pod.spec, "PodSpec", ()):
                # Of a part that cannot be read, such as a template's braces, an empty mapping is left.
                if not (pod.owner.document.problems and get(pod.spec, *path) == {}):
                    yield Hit(on=pod.owner, path=(*pod.path, *path), reason=reason, fix=fix)
    for resource in bundle.of("", "Pod"):
        if not bundle.pods_of(resource) and isinstance(resource.get("spec"), Mapping):
            reason = "a Pod needs a list of containers"
            fix = "write containers: [{name: ..., image: ...}]"
            yield Hit(on=resource, path=(*resource.base, "spec"), reason=reason, fix=fix)


def _value(value: Any, entry: str, path: Path) -> Iterator[Fault]:
    name = path[-1] if isinstance(path[-1], str) else path[-2]
    if value is None or placeholder(value) or isinstance(value, _TEXTS.get(str(name), ())):
        return
    if entry.startswith("["):
        yield from _list(value, entry[1:-1].partition("|")[0], path)
    elif entry.startswith("{"):
        if not isinstance(value, Mapping):
            yield path, f"{name} is {_named(value)}, and a mapping is expected", "write key: value below it"
    elif entry in fields_of():
        yield from _object(value, entry, path)
    elif isinstance(name, str) and name in _PORTS and isinstance(value, int) and not _PORTS[name] <= value <= 65535:
        yield path, f"{name} is {value}, and ports go from 1 to 65535", "write a port"
    elif not _fits(value, entry):
        expected = _EXPECTED.get(entry, "a quantity")
        yield path, f"{name} is {_named(value)}, and {expected} is expected", _fix(value, entry)


def _list(value: Any, inner: str, path: Path) -> Iterator[Fault]:
    if not isinstance(value, list):
        yield path, f"{path[-1]} is {_named(value)}, and a list is expected", "write each entry after a dash"
        return
    for index, item in enumerate(value):
        if item is None and inner in fields_of():
            yield (*path, index), f"an entry of {path[-1]} is empty", "fill it, or take the dash out"
        else:
            yield from _value(item, inner, (*path, index))


def _object(value: Any, type: str, path: Path) -> Iterator[Fault]:
    if not isinstance(value, Mapping):
        yield path, f"{_named(value)} stands where the fields of {type} are expected", "write key: value below it"
        return
    known = fields_of()[type]
    for key, item in value.items():
        if key in known:
            if not (type == "EnvVar" and key == "value"):
                yield from _value(item, known[key], (*path, key))
            continue
        near = [name for name in known if len(key) >= _SHORTEST and name not in value and one_slip(key, name)]
        if len(near) == 1:
            yield (*path, key), f"{type} has no field {shown(key)}", f"did you mean {near[0]}?"


def _fits(value: Any, entry: str) -> bool:
    if isinstance(value, Mapping | list):
        return False
    if entry == "boolean":
        return isinstance(value, bool) or (isinstance(value, str) and value.lower() in _OLD_BOOLEANS)
    if isinstance(value, bool):
        return False
    if entry == "integer":
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return isinstance(value, str) if entry == "string" else entry != "number" or not isinstance(value, str)


def _fix(value: Any, entry: str) -> str:
    if isinstance(value, Mapping | list):
        return "write one value there"
    if entry == "string":
        return f'write "{text(value)}" in quotes'
    bare = isinstance(value, str) and (value.isdecimal() if entry == "integer" else value in ("true", "false"))
    return f"write {value} without quotes" if bare else f"write {_EXPECTED.get(entry, 'a quantity')}"


def _named(value: Any) -> str:
    if isinstance(value, Mapping | list):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    kind = {bool: "a truth value", str: "a text"}.get(type(value), "a number")
    return f"{kind} ({shown(text(value), most=40)})" if text(value) else "an empty text"


RULES = (
    Rule(
        id="RT310",
        severity="error",
        title="A pod's field of another type, range or name",
        why="The API server decodes each field into its type and refuses the object that holds another one (`cannot "
        "unmarshal string into Go struct field`). A field that it does not know is refused or dropped: what it was "
        "meant to ask for does not happen.",
        fix="Write the type that is expected; `kubectl explain pod.spec` knows all fields.",
        check=_pods,
    ),
)
