"""What makes two job files the same run: all fields that can change what is learnt, and nothing else.

A field counts unless it is an `Aside`. Values are compared in one spelling (`4M` and `4000000` are the same), with
defaults filled in, so that writing a default out changes nothing.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.spec.model import Model
from raytrain_eks.spec.problem import Problem

_ABSENT: Any = type("Absent", (), {"__repr__": lambda self: "nothing"})()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One field in which a file differs from the run that it names."""

    path: str
    """In dots: `optimizer.learning_rate`."""
    old: Any
    """The run's value, in its one spelling; None when the run has nothing there."""
    new: Any
    """The file's value; None when the file has nothing there."""

    def problem(self) -> Problem:
        """The difference as a problem of the file."""
        return Problem(path=self.path, value=_shown(self.new), rule=f"the run was started with {_shown(self.old)}")


def identity_hash(model: Model) -> str:
    """SHA-256, in hex, of the model's identity: equal for two files that train the same."""
    canonical = json.dumps(model.identity(), sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def differences(old: Mapping[str, Any], new: Model) -> list[Difference]:
    """Fields in which `new` differs from the identity `old` of an earlier model, in the order of the file.

    `old` may come from JSON and from an earlier version of this package: a field that it does not know does not differ
    while `new` leaves it at its default, which is what the earlier version did.
    """
    return list(_differences(old, new.identity(), new, ""))


def _differences(old: Any, new: Any, node: Any, path: str) -> Iterator[Difference]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*new, *(key for key in old if key not in new)]:
            before, after = old.get(key, _ABSENT), new.get(key, _ABSENT)
            if before is _ABSENT and _at_default(node, key):
                continue
            yield from _differences(before, after, _child(node, key), f"{path}.{key}" if path else key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and _mappings(old + new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, _child(node, index), f"{path}.{index}")
    elif (type(old) is not type(new) and {type(old), type(new)} != {int, float}) or old != new:
        absent = old is _ABSENT, new is _ABSENT
        yield Difference(path=path, old=None if absent[0] else old, new=None if absent[1] else new)


def _mappings(items: list[Any]) -> bool:
    return all(isinstance(item, Mapping) for item in items)


def _child(node: Any, key: str | int) -> Any:
    if isinstance(node, Model):
        return next((getattr(node, name) for name, info in _fields(node) if key in (name, info.alias)), None)
    if isinstance(node, list) and isinstance(key, int):
        return node[key]
    return node.get(key) if isinstance(node, Mapping) else None


def _fields(node: Model) -> list[tuple[str, Any]]:
    return list(type(node).model_fields.items())


def _at_default(node: Any, key: str) -> bool:
    for name, info in _fields(node) if isinstance(node, Model) else []:
        if key in (name, info.alias) and not info.is_required():
            return bool(getattr(node, name) == info.get_default(call_default_factory=True))
    return False


def _shown(value: Any) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
