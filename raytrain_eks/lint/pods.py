"""The pods that objects will make: every pod template in any workload, found by its shape.

A pod spec is a mapping with a list `containers` under a key `spec` (or `podSpec`, `podTemplate`). So kinds that nobody
here has heard of are looked at as well. What depends on the kind is the role (head, worker group, launcher) and how
many pods there will be.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import amount, get, items, mapping, placeholder, text
from raytrain_eks.spec.source import Path

DEVICES = ("nvidia.com/gpu", "aws.amazon.com/neuron", "aws.amazon.com/neuroncore", "amd.com/gpu", "habana.ai/gaudi")
EFA = "vpc.amazonaws.com/efa"
_SIDES = ("limits", "requests")
_NO_PODS = {"ConfigMap", "Secret", "CustomResourceDefinition", "Application", "ApplicationSet", "NodePool"}


@dataclass(frozen=True, eq=False)
class Container:
    """One container of a pod template."""

    data: Mapping[str, Any]
    path: Path
    init: bool
    """An init container that ends before the others start; false for a sidecar (`restartPolicy: Always`)."""

    @property
    def name(self) -> str:
        return text(self.data.get("name"))

    @property
    def image(self) -> str:
        return text(self.data.get("image"))

    @property
    def words(self) -> list[str]:
        """Command and arguments, as texts."""
        return [text(word) for key in ("command", "args") for word in items(self.data.get(key))]

    @cached_property
    def env(self) -> dict[str, tuple[str | None, Path]]:
        """Variable -> its literal value (None when it comes from elsewhere) and its path."""
        found: dict[str, tuple[str | None, Path]] = {}
        for index, entry in enumerate(items(self.data.get("env"))):
            if isinstance(entry, Mapping) and entry.get("name"):
                value = text(entry.get("value")) if "value" in entry else (None if "valueFrom" in entry else "")
                found[text(entry["name"])] = (value, (*self.path, "env", index))
        return found

    def requests(self) -> dict[str, Decimal]:
        """What the scheduler counts: requests, and limits where no request is written."""
        found = {name: amount(value) for name, value in mapping(get(self.data, "resources", "limits")).items()}
        found |= {name: amount(value) for name, value in mapping(get(self.data, "resources", "requests")).items()}
        return {name: value for name, value in found.items() if value is not None}

    def where(self, resource: str) -> Path:
        """The path of what the scheduler counts for a resource, or of the container where nothing is written."""
        for side in ("requests", "limits"):
            if resource in mapping(get(self.data, "resources", side)):
                return (*self.path, "resources", side, resource)
        return self.path


@dataclass(frozen=True, eq=False)
class Pod:
    """A pod template and who makes pods of it."""

    owner: Resource
    path: Path
    """Path of the pod spec in the document."""
    spec: Mapping[str, Any]
    metadata: Mapping[str, Any]
    role: str
    """`head`, `worker group a100`, `Launcher`, `task worker`; empty for the only template of an object."""
    count: int | None
    """How many pods at most; None when nothing says, or for a daemon set (one on each node)."""
    apart: Path | None = None
    """Where the only container stands when it is no part of the pod spec in the document."""

    @property
    def title(self) -> str:
        return f"{self.owner.title} {self.role}".strip()

    @cached_property
    def daemon(self) -> bool:
        return self.owner.is_a("apps", "DaemonSet")

    @property
    def head(self) -> bool:
        """A Ray head."""
        return self.role == "head"

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(self.metadata.get("labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping(self.metadata.get("annotations"))

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """All containers, init containers first."""
        found = []
        for key in ("initContainers", "containers"):
            for index, data in enumerate(items(self.spec.get(key))):
                if isinstance(data, Mapping):
                    init = key == "initContainers" and data.get("restartPolicy") != "Always"
                    found.append(Container(data, self.apart or (*self.path, key, index), init))
        return tuple(found)

    @property
    def main(self) -> tuple[Container, ...]:
        """The containers that run at the same time."""
        return tuple(container for container in self.containers if not container.init)

    @cached_property
    def requests(self) -> dict[str, Decimal]:
        """What the scheduler counts for the whole pod: the sum, or the largest init container where that is more."""
        total: dict[str, Decimal] = {}
        for container in self.main:
            for name, value in container.requests().items():
                total[name] = total.get(name, Decimal(0)) + value
        for container in self.containers:
            if container.init:
                for name, value in container.requests().items():
                    total[name] = max(total.get(name, Decimal(0)), value)
        for name, value in mapping(self.spec.get("overhead")).items():
            total[name] = total.get(name, Decimal(0)) + (amount(value) or 0)
        return total

    @property
    def devices(self) -> dict[str, int]:
        """Accelerators by resource, those of which at least one is requested."""
        return {name: int(self.requests[name]) for name in DEVICES if self.requests.get(name, 0) >= 1}

    @property
    def efa(self) -> int:
        """EFA interfaces of the pod; 1 where the number is still to be filled in."""
        asked = [get(container.data, "resources", side, EFA) for container in self.main for side in _SIDES]
        return int(self.requests.get(EFA, 0)) or int(any(map(placeholder, asked)))

    def largest(self, resource: str) -> Container:
        """The container that asks most of a resource; the first one when none does."""
        return max(self.containers, key=lambda container: container.requests().get(resource, Decimal(-1)))

    def volumes(self, kind: str) -> Iterator[tuple[Mapping[str, Any], Path, str]]:
        """Volumes of a kind (`emptyDir`, `secret`, ...): its data, its path, the volume's name."""
        for index, volume in enumerate(items(self.spec.get("volumes"))):
            if isinstance(volume, Mapping) and kind in volume:
                yield mapping(volume[kind]), (*self.path, "volumes", index, kind), text(volume.get("name"))


def pods_of(resource: Resource) -> Iterator[Pod]:
    """Every pod template of an object, in order; of a JupyterHub configuration the profiles as well."""
    if resource.kind == "ConfigMap":
        from raytrain_eks.lint.jupyter import profiles

        yield from profiles(resource)
    if resource.kind in _NO_PODS:
        return
    if resource.is_a("slinky.slurm.net", "NodeSet") and isinstance(resource.get("spec", "slurmd"), Mapping):
        yield _node_set(resource)
        return
    for path, spec in _pod_specs(resource.data, resource.base):
        above = get(resource.document.data, *path[:-1])
        metadata = mapping(mapping(above).get("metadata"))
        inside = path[len(resource.base) :]
        yield Pod(resource, path, spec, metadata, _role(resource, inside), _count(resource, inside))


def _node_set(resource: Resource) -> Pod:
    """Slinky keeps slurmd's container beside the template of its pod."""
    template = mapping(resource.get("spec", "template"))
    container = {"name": "slurmd", **mapping(resource.get("spec", "slurmd"))}
    spec = {**mapping(template.get("spec")), "containers": [container]}
    path = (*resource.base, "spec", "template", "spec")
    count = _number(resource.get("spec", "replicas"))
    return Pod(resource, path, spec, mapping(template.get("metadata")), "", count, (*resource.base, "spec", "slurmd"))


def _pod_specs(value: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    if isinstance(value, Mapping):
        containers = value.get("containers")
        if isinstance(containers, list) and any(isinstance(item, Mapping) for item in containers):
            yield path, value
            return
        for key, part in value.items():
            yield from _pod_specs(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from _pod_specs(part, (*path, index))


def _role(resource: Resource, path: Path) -> str:
    if "headGroupSpec" in path:
        return "head"
    for index, step in enumerate(path):
        if step == "workerGroupSpecs":
            return f"worker group {text(resource.get(*path[: index + 2], 'groupName'))}"
        if isinstance(step, str) and step.endswith("ReplicaSpecs") and index + 1 < len(path):
            return str(path[index + 1])
        if step in ("tasks", "replicatedJobs"):
            return f"task {text(resource.get(*path[: index + 2], 'name'))}"
        if step == "submitterPodTemplate":
            return "submitter"
    return ""


def _count(resource: Resource, path: Path) -> int | None:
    """Pods of a template at most: the product of what the levels above it say."""
    if resource.kind in ("Pod", "CronJob"):
        return 1
    if resource.kind == "DaemonSet":
        return None
    if resource.is_a("batch", "Job"):
        return _number(resource.get("spec", "parallelism")) or 1
    if "headGroupSpec" in path or "submitterPodTemplate" in path:
        return 1
    total: int | None = None
    for length in range(len(path), 0, -1):
        level = mapping(resource.get(*path[:length]))
        own = _number(level.get("maxReplicas")) if "groupName" in level else None
        own = own if own is not None else _number(level.get("replicas"))
        hosts = _number(level.get("numOfHosts")) or 1
        if own is not None:
            total = (total or 1) * own * hosts
    return total


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
