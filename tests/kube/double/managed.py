"""Who owns which field: server-side apply, and the tracking of every other write (structured-merge-diff's rules).

A set of fields is a set of paths; a path is a tuple of the elements that `fieldsV1` is written in: `f:spec`,
`k:{"name":"ray-head"}` for an item of a `map` list, `v:"finalizer"` for one of a `set` list.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from double.plain import copied
from double.schema import Shape

Path = tuple[str, ...]
Paths = frozenset[Path]
_NOBODYS = frozenset(
    [("f:apiVersion",), ("f:kind",), ("f:metadata",)]
    + [
        ("f:metadata", f"f:{name}")
        for name in (
            *("name", "namespace", "creationTimestamp", "selfLink", "uid", "generation", "resourceVersion"),
            *("managedFields", "deletionTimestamp", "deletionGracePeriodSeconds"),
        )
    ]
)
"""Fields that are the server's own and belong to no manager."""


@dataclass(frozen=True)
class Owner:
    """Who wrote: one entry of managedFields is one owner."""

    manager: str
    operation: str
    api: str
    subresource: str = ""
    time: str = field(default="", compare=False)

    def __str__(self) -> str:
        """As the API server names an owner in a conflict."""
        text = json.dumps(self.manager)
        if self.subresource:
            text += f' with subresource "{self.subresource}"'
        return text if self.operation == "Apply" else f"{text} using {self.api} at {self.time}"


Owners = dict[Owner, Paths]


class Conflicts(Exception):
    """Fields of the applied configuration that somebody else owns with another value."""

    def __init__(self, found: list[tuple[Owner, Path]]):
        self.found = found
        super().__init__(self._message())

    def _message(self) -> str:
        if len(self.found) == 1:
            [(owner, path)] = self.found
            return f"Apply failed with 1 conflict: conflict with {owner}: {written(path)}"
        by_owner: dict[str, list[Path]] = {}
        for owner, path in self.found:
            by_owner.setdefault(str(owner), []).append(path)
        lines = []
        for owner_text in sorted(by_owner):
            lines.append(f"conflicts with {owner_text}:")
            lines += [f"- {written(path)}" for path in by_owner[owner_text]]
        return f"Apply failed with {len(self.found)} conflicts: " + "\n".join(lines)


def written(path: Path) -> str:
    """A path as messages have it: `.spec.containers[name="ray-head"].image`."""
    text = ""
    for element in path:
        kind, _, rest = element.partition(":")
        if kind == "f":
            text += f".{rest}"
        elif kind == "k":
            text += "[" + ",".join(f"{key}={json.dumps(value)}" for key, value in json.loads(rest).items()) + "]"
        else:
            text += f"[={rest}]" if kind == "v" else f"[{rest}]"
    return text


def encode(paths: Iterable[Path]) -> dict[str, Any]:
    """Paths as `fieldsV1`."""
    tree: dict[str, Any] = {}
    for path in sorted(paths):
        node = tree
        for element in path:
            node = node.setdefault(element, {})
        node["."] = {}

    def tidy(node: dict[str, Any]) -> dict[str, Any]:
        return {key: tidy(inner) for key, inner in node.items() if key != "." or len(node) > 1}

    return tidy(tree)


def decode(tree: dict[str, Any], above: Path = ()) -> Iterator[Path]:
    """The paths of a `fieldsV1`."""
    if above and (not tree or "." in tree):
        yield above
    for element, inner in tree.items():
        if element != ".":
            yield from decode(inner, (*above, element))


def owners_of(body: dict[str, Any]) -> Owners:
    """The owners that an object's managedFields name."""
    found: Owners = {}
    for entry in body.get("metadata", {}).get("managedFields") or []:
        if entry.get("manager") is not None:
            names = (entry["manager"], entry["operation"], entry["apiVersion"], entry.get("subresource", ""))
            found[Owner(*names, time=entry.get("time", ""))] = frozenset(decode(entry.get("fieldsV1", {})))
    return found


def entries(owners: Owners) -> list[dict[str, Any]]:
    """Owners as managedFields, in the API server's order; those that own nothing left out."""
    found = []
    for owner, paths in sorted(owners.items(), key=lambda pair: (pair[0].operation, pair[0].time, pair[0].manager)):
        if paths:
            entry = {"manager": owner.manager, "operation": owner.operation, "apiVersion": owner.api}
            entry |= {"time": owner.time, "fieldsType": "FieldsV1", "fieldsV1": encode(paths)}
            found.append(entry | ({"subresource": owner.subresource} if owner.subresource else {}))
    return found


def element_of(shape: Shape, item: Any) -> str:
    """The path element of an item of a `map` or `set` list."""
    if shape.list_type == "map":
        return "k:" + json.dumps(shape.item_key(item), separators=(",", ":"), sort_keys=True)
    return "v:" + json.dumps(item, separators=(",", ":"), sort_keys=True)


def leaves(shape: Shape, value: Any, above: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every field that can be owned, with its value; items of lists and of open mappings stand for themselves too."""
    if isinstance(value, dict) and value and not shape.atomic:
        for name, inner in value.items():
            path = (*above, f"f:{name}")
            if name not in shape.properties and isinstance(inner, dict) and inner:
                yield path, ...
            yield from leaves(shape.field(name), inner, path)
    elif isinstance(value, list) and shape.list_type != "atomic":
        for item in value:
            path = (*above, element_of(shape, item))
            yield path, ...
            if isinstance(item, dict):
                yield from leaves(shape.item(), item, path)
    elif above:
        yield above, value


def fields(shape: Shape, body: dict[str, Any]) -> dict[Path, Any]:
    """The fields of an object that have an owner, with their values."""
    return {path: value for path, value in leaves(shape, body) if path not in _NOBODYS and path[:2] not in _NOBODYS}


def track(shape: Shape, old: dict[str, Any], new: dict[str, Any], owner: Owner) -> list[dict[str, Any]]:
    """managedFields after a write that is no apply: what changed is the writer's, and nobody else's."""
    before, after = fields(shape, old), fields(shape, new)
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    gone = frozenset(before) - frozenset(after)
    owners = owners_of(old)
    mine = owners.pop(owner, frozenset())
    left: Owners = {other: paths - changed - gone for other, paths in owners.items()}
    left[owner] = (mine | changed) - gone
    if left[owner] == mine and mine:
        owner = next(known for known in owners_of(old) if known == owner)
        left[owner] = left.pop(owner)
    return entries(left)


def apply(
    shape: Shape, live: dict[str, Any], applied: dict[str, Any], owner: Owner, *, force: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The object and its managedFields after a server-side apply. `live` is empty for a new object.
    Raises Conflicts unless forced."""
    merged = merge(shape, copied(live), applied)
    before, after = fields(shape, live), fields(shape, merged)
    changed = frozenset(path for path, value in after.items() if path not in before or before[path] != value)
    owners = owners_of(live)
    last = owners.pop(owner, frozenset())
    conflicts = [(other, path) for other, paths in owners.items() for path in sorted(paths & changed)]
    if conflicts and not force:
        raise Conflicts(conflicts)
    kept = {other: paths - changed for other, paths in owners.items()}
    mine = frozenset(fields(shape, applied))
    theirs = frozenset().union(*kept.values()) if kept else frozenset()
    for path in sorted(last - mine - theirs, key=len):
        if not any(other[: len(path)] == path for other in theirs | mine):
            _remove(shape, merged, path)
    known = owners_of(live)
    if last == mine and owner in known:
        owner = next(one for one in known if one == owner)
    return merged, entries({**kept, owner: mine})


def merge(shape: Shape, live: Any, applied: Any) -> Any:
    """The applied value laid over the live one, by the schema's rules of lists and mappings."""
    if isinstance(live, dict) and isinstance(applied, dict) and not shape.atomic:
        for name, inner in applied.items():
            live[name] = merge(shape.field(name), live[name], inner) if name in live else copied(inner)
        return live
    if isinstance(live, list) and isinstance(applied, list) and shape.list_type != "atomic":
        return _merge_lists(shape, live, applied)
    return copied(applied)


def _merge_lists(shape: Shape, live: list[Any], applied: list[Any]) -> list[Any]:
    there = {element_of(shape, item): item for item in live}
    given = {element_of(shape, item): item for item in applied}
    waiting = list(given)
    out: dict[str, Any] = {}

    def put(element: str) -> None:
        both = element in there
        out[element] = merge(shape.item(), there[element], given[element]) if both else copied(given[element])

    for element, item in there.items():
        if element not in given:
            out[element] = item
        while element in given and element not in out:
            put(waiting.pop(0))
    for element in waiting:
        put(element)
    return list(out.values())


def _remove(shape: Shape, value: Any, path: Path) -> None:
    """Take a field out; mappings and lists that this empties go as well."""
    element, rest = path[0], path[1:]
    if element.startswith("f:"):
        name = element[2:]
        if not isinstance(value, dict) or name not in value:
            return
        if rest:
            _remove(shape.field(name), value[name], rest)
        if not rest or value[name] in ({}, []):
            del value[name]
    elif isinstance(value, list):
        for item in [item for item in value if element_of(shape, item) == element]:
            if rest:
                _remove(shape.item(), item, rest)
            else:
                value.remove(item)
