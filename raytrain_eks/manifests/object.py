"""One Kubernetes object on its way out: its body, the system it belongs to, and why its fields are what they are.

A path inside a body is written in dots, a list entry by its `name` (or `groupName`, `key`, `mountPath`, `deviceName`)
where it has one and by its number where it has none, and a key is taken whole however many dots it holds:
`spec.workerGroupSpecs.a100.template.spec.containers.ray-worker.resources.limits.nvidia.com/gpu`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]
"""Plain data: mappings, lists, strings, numbers, booleans."""

_NAMING = ("name", "groupName", "key", "mountPath", "deviceName")


@dataclass(frozen=True)
class Object:
    """A Kubernetes object and the reasons behind it."""

    system: str
    """The system it belongs to: `ground`, `karpenter`, `storage`, `kuberay`, ...; `render --only` selects by it."""
    body: Body
    whys: Mapping[str, str] = field(default_factory=dict)
    """Path inside the body (empty: the object as a whole) -> the rule and the fact behind it, as a sentence."""

    @property
    def kind(self) -> str:
        return str(self.body["kind"])

    @property
    def name(self) -> str:
        return str(self.body["metadata"]["name"])

    @property
    def namespace(self) -> str | None:
        """None for what belongs to the whole cluster."""
        namespace = self.body["metadata"].get("namespace")
        return None if namespace is None else str(namespace)

    @property
    def key(self) -> str:
        """`Kind/name`, as `explain` and `diff` write it."""
        return f"{self.kind}/{self.name}"


def entry_name(item: Any, index: int) -> str:
    """How a list entry is called in a path."""
    if isinstance(item, Mapping):
        for key in _NAMING:
            if isinstance(item.get(key), str):
                return str(item[key])
    return str(index)


def children(value: Any) -> Iterator[tuple[str, Any]]:
    """The parts of a mapping or a list, each with its step in a path."""
    if isinstance(value, Mapping):
        yield from ((str(key), part) for key, part in value.items())
    elif isinstance(value, list):
        yield from ((entry_name(part, index), part) for index, part in enumerate(value))


def at(value: Any, path: str) -> Any:
    """The part of `value` at `path`. Raises KeyError when there is none."""
    if not path:
        return value
    for step, part in children(value):
        if path == step:
            return part
        if path.startswith(f"{step}."):
            try:
                return at(part, path[len(step) + 1 :])
            except KeyError:
                continue
    raise KeyError(path)
