"""What differs between two trees by meaning, not by text.

Equal are: `1024Mi` and `1Gi` where a quantity stands, mappings in another order, and lists whose order says nothing to
Kubernetes (its `map` and `set` lists: tolerations, volumes, environment, taints, zones). The order counts in commands,
in arguments, among containers (Ray's must be the first) and in an environment whose values refer to each other.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.manifests.object import entry_name
from raytrain_eks.spec.quantity import parse

_QUANTITIES = frozenset(
    [
        "cpu",
        "memory",
        "size",
        "storage",
        "sizeLimit",
        "volumeSize",
        "nominalQuota",
        "borrowingLimit",
        "lendingLimit",
        "ephemeral-storage",
        "shm",
        "driverMemory",
        "throughput",
    ]
)
"""Keys whose value is a quantity wherever they stand."""
_TABLES = frozenset(
    [
        "requests",
        "limits",
        "capability",
        "deserved",
        "guarantee",
        "hard",
        "capacity",
        "minResources",
        "kubeReserved",
        "systemReserved",
    ]
)
"""Keys of mappings from a resource to its quantity."""
_ORDERED = frozenset(["command", "args", "entrypoint", "containers", "initContainers"])
_MISSING: Any = object()


@dataclass(frozen=True)
class Change:
    """One difference. `old` is None for what is new, `new` is None for what is gone."""

    subject: str
    """`Kind/namespace/name` of a bundle's object; empty in a single tree."""
    path: str
    """Where in the subject, in dots; empty for the subject as a whole."""
    old: Any = None
    new: Any = None
    verb: str = "changed"
    """`added`, `removed`, `changed` or `reordered`."""


def trees(old: Any, new: Any, subject: str = "") -> list[Change]:
    """Every difference between two trees of plain data, in the order of the new one."""
    return list(_compare(old, new, subject, (), ""))


def bundles(old: Iterable[Mapping[str, Any]], new: Iterable[Mapping[str, Any]]) -> list[Change]:
    """Every difference between two sets of Kubernetes objects, matched by group, kind, namespace and name."""
    before, after = _by_identity(old), _by_identity(new)
    found: list[Change] = []
    for identity, body in after.items():
        subject = "/".join(part for part in identity[1:] if part)
        if identity in before:
            found += trees(before[identity], body, subject)
        else:
            found.append(Change(subject, "", new=body, verb="added"))
    gone = [identity for identity in before if identity not in after]
    found += [Change("/".join(filter(None, key[1:])), "", old=before[key], verb="removed") for key in gone]
    return found


def _by_identity(bodies: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str, str], Mapping[str, Any]]:
    found = {}
    for body in bodies:
        metadata = body.get("metadata")
        metadata = metadata if isinstance(metadata, Mapping) else {}
        group = str(body.get("apiVersion", "")).rpartition("/")[0]
        kind, namespace = str(body.get("kind", "")), str(metadata.get("namespace") or "")
        found[group, kind, namespace, str(metadata.get("name", ""))] = body
    return found


def _compare(old: Any, new: Any, subject: str, path: tuple[str, ...], key: str) -> Iterator[Change]:
    where = ".".join(path)
    if old is _MISSING:
        yield Change(subject, where, new=new, verb="added")
    elif new is _MISSING:
        yield Change(subject, where, old=old, verb="removed")
    elif isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in [*new, *(name for name in old if name not in new)]:
            inner = "quantity" if key in _TABLES else str(name)
            step = (*path, str(name))
            yield from _compare(old.get(name, _MISSING), new.get(name, _MISSING), subject, step, inner)
    elif isinstance(old, list) and isinstance(new, list):
        yield from _lists(old, new, subject, path, key)
    elif not _same(old, new, key):
        yield Change(subject, where, old=old, new=new)


def _lists(old: list[Any], new: list[Any], subject: str, path: tuple[str, ...], key: str) -> Iterator[Change]:
    if not any(isinstance(item, Mapping | list) for item in [*old, *new]):
        same = old == new if key in _ORDERED else sorted(map(_text, old)) == sorted(map(_text, new))
        if not same:
            yield Change(subject, ".".join(path), old=old, new=new)
        return
    before, after = _named(old), _named(new)
    if before is None or after is None:
        yield from _unnamed(old, new, subject, path, key)
        return
    for name in [*after, *(name for name in before if name not in after)]:
        yield from _compare(before.get(name, _MISSING), after.get(name, _MISSING), subject, (*path, name), key)
    kept = [name for name in before if name in after]
    if _order_counts(key, old, new) and kept != [name for name in after if name in before]:
        yield Change(subject, ".".join(path), old=list(before), new=list(after), verb="reordered")


def _order_counts(key: str, old: list[Any], new: list[Any]) -> bool:
    return key in _ORDERED or (key == "env" and "$(" in _text([old, new]))


def _named(items: list[Any]) -> dict[str, Any] | None:
    """The list as a mapping by the names of its entries; None when they have none, or not a different one each."""
    found = {entry_name(item, -1): item for item in items}
    return None if "-1" in found or len(found) != len(items) else found


def _unnamed(old: list[Any], new: list[Any], subject: str, path: tuple[str, ...], key: str) -> Iterator[Change]:
    """Entries without names: equal ones are taken away in pairs, the rest is compared in order."""
    rest_old, rest_new = list(enumerate(old)), []
    for index, item in enumerate(new):
        twin = next((entry for entry in rest_old if not any(_compare(entry[1], item, "", (), key))), None)
        if twin is not None:
            rest_old.remove(twin)
        else:
            rest_new.append((index, item))
    for position in range(max(len(rest_old), len(rest_new))):
        before = rest_old[position][1] if position < len(rest_old) else _MISSING
        index, after = rest_new[position] if position < len(rest_new) else (rest_old[position][0], _MISSING)
        yield from _compare(before, after, subject, (*path, str(index)), key)


def _same(old: Any, new: Any, key: str) -> bool:
    if type(old) is type(new) and old == new:
        return True
    if key not in _QUANTITIES and key != "quantity":
        return False
    if any(isinstance(value, bool) or not isinstance(value, str | int | float) for value in (old, new)):
        return False
    try:
        return parse(old) == parse(new)
    except ValueError:
        return False


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)
