"""RT307: what stands where a Kubernetes object is expected, and is none.

A mapping without `apiVersion` and `kind` may be anything (Helm's values, a chart) and is left alone unless it has
`metadata` and one of the two, as an object has whose other line was forgotten.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.lint.bundle import Bundle, is_list, is_object
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.served import is_served
from raytrain_eks.lint.tree import placeholder, text
from raytrain_eks.spec.problem import shown
from raytrain_eks.spec.source import Document, Path

_NEEDS = "an object is a mapping with apiVersion, kind and metadata"
_NAMES = {bool: "a truth value", int: "a number", float: "a number", str: "a text", list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Fault:
    """One place in a document that has another shape than an object's."""

    path: Path
    reason: str
    fix: str


def faults(document: Document) -> list[Fault]:
    """What is no object in a document, though one is expected there; empty for what was not meant to be one."""
    data = document.data
    if data is None or (isinstance(data, list | Mapping) and not data):
        return []
    if isinstance(data, list):
        return [] if all(map(_is_json_patch, data)) else list(_listed(data, ()))
    if not isinstance(data, Mapping):
        said = shown(text(data), most=40)
        reason = f"the document is {_named(data)}, {said}, and {_NEEDS}" if said else f"the document is {_named(data)}"
        return [Fault((), reason, "indent it below its key, or take it out; --- separates documents")]
    return list(_of_mapping(data, ()))


def _of_mapping(data: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    yield from _types(data, path)
    if not is_object(data):
        return
    if text(data["kind"]).endswith("List") and "items" in data and "spec" not in data:
        if is_list(data):
            yield from _listed(data["items"], (*path, "items"))
        elif data["items"] is not None:
            reason = f"items is {_named(data['items'])}, and a {data['kind']} has a list of objects"
            yield Fault((*path, "items"), reason, "write each object after a dash")
        return
    yield from _metadata(data, path)


def _types(data: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    """`apiVersion` and `kind` that are missing beside the other one, or no texts."""
    given = [key for key in ("apiVersion", "kind") if key in data]
    for key in ("apiVersion", "kind"):
        if key not in given and given and isinstance(data.get("metadata"), Mapping):
            fix = f"add {key}" + (", such as v1 or apps/v1" if key == "apiVersion" else ", such as ConfigMap")
            yield Fault(path, f"{given[0]} and metadata are there, and {key} is missing", fix)
        elif key in given and len(given) == 2 and not text(data[key]):
            said = "is empty" if data[key] in (None, "") else f"is {_named(data[key])}, and a text is expected"
            yield Fault((*path, key), f"{key} {said}", f"write {'v1' if key == 'apiVersion' else 'the kind'} there")


def _metadata(data: Mapping[str, Any], path: Path) -> Iterator[Fault]:
    metadata = data.get("metadata")
    if metadata is not None and not isinstance(metadata, Mapping) and not placeholder(metadata):
        reason = f"metadata is {_named(metadata)}, and a mapping is expected"
        yield Fault((*path, "metadata"), reason, "for example metadata: {name: first}")
    for key in ("labels", "annotations"):
        value = metadata.get(key) if isinstance(metadata, Mapping) else None
        if value is not None and not isinstance(value, Mapping) and not placeholder(value):
            reason = f"metadata.{key} is {_named(value)}, and a mapping of texts is expected"
            yield Fault((*path, "metadata", key), reason, "write key: value, without dashes")


def _listed(found: list[Any], path: Path) -> Iterator[Fault]:
    """The entries of a list of objects that are none; of a list without any object the list itself."""
    if found and not any(map(_like_object, found)):
        what = _named(found[0]) + (" without apiVersion and kind" if isinstance(found[0], Mapping) else "")
        reason = f"no entry of this list is an object: its first is {what}, and {_NEEDS}"
        yield Fault(path, reason, "write objects, or take the list out")
        return
    for index, item in enumerate(found):
        if isinstance(item, Mapping) and _like_object(item):
            yield from _of_mapping(item, (*path, index))
        else:
            what = _named(item) + (" without apiVersion and kind" if isinstance(item, Mapping) else "")
            yield Fault((*path, index), f"the entry is {what}, and {_NEEDS}", "write an object, or take it out")


def _like_object(item: Any) -> bool:
    return isinstance(item, Mapping) and bool({"apiVersion", "kind"} & item.keys())


def _is_json_patch(item: Any) -> bool:
    return isinstance(item, Mapping) and {"op", "path"} <= item.keys()


def _named(value: Any) -> str:
    """What a value is: `a list`, `a text`."""
    return "nothing" if value is None else _NAMES.get(type(value), "no mapping")


def _no_objects(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for document in bundle.documents:
        for fault in faults(document):
            owners = (found for found in bundle.resources if found.document is document)
            around = [found for found in owners if fault.path[: len(found.base)] == found.base]
            on = around[0] if around else Resource(document)
            yield Hit(on=on, path=fault.path, reason=fault.reason, fix=fault.fix)
    for resource in bundle.resources:
        spec = resource.get("spec")
        if spec is not None and not isinstance(spec, Mapping) and is_served(resource) and not placeholder(spec):
            reason = f"spec is {_named(spec)}, and a mapping is expected"
            yield Hit(on=resource, path=(*resource.base, "spec"), reason=reason, fix="write key: value below it")


RULES = (
    Rule(
        id="RT307",
        severity="error",
        title="What is no object where one is expected",
        why="kubectl decodes every document, and every entry of a List, into an object with apiVersion, kind and "
        "metadata: anything else ends the apply with `cannot unmarshal` or `Object 'Kind' is missing`.",
        fix="Write an object there, or take it out.",
        check=_no_objects,
    ),
)
