"""From a cluster file and the catalogue to decisions: per group, what a pod asks for, where it runs, and why.

Manifest modules read the `ClusterPlan` and decide nothing again. Everything wrong is found in one run and raised as one
SpecError, each problem with its place when the file's document is given.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from raytrain_eks import catalog
from raytrain_eks.catalog import Instance
from raytrain_eks.plan import devices as device
from raytrain_eks.plan import fit, network, notebooks, placement, reservations, versions
from raytrain_eks.plan.devices import Devices
from raytrain_eks.spec import quantity
from raytrain_eks.spec.check import located
from raytrain_eks.spec.cluster import Cluster, Head, WorkerGroup
from raytrain_eks.spec.cluster_nodes import Capacity
from raytrain_eks.spec.kubernetes import Taint
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.source import Document

HEAD_IMAGE = "rayproject/ray"
"""Ray's public image; `-gpu` is added for GPU groups. It has neither EFA nor Neuron."""


@dataclass(frozen=True, kw_only=True)
class PodPlan:
    """One kind of pod: the head, or the workers of a group. Quantities are exact."""

    name: str
    """The group's name; `head` for the head."""
    spec: Head | WorkerGroup
    instance: Instance | None
    """None: the nodes exist already and nothing is known about them."""
    image: str
    cpu: Decimal
    memory: Decimal
    """Bytes, in requests and limits alike."""
    num_cpus: int
    """What Ray counts; 0 for the head."""
    shm: Decimal
    """Bytes of /dev/shm, part of `memory`."""
    devices: Devices
    taints: tuple[Taint, ...]
    """Of the nodes."""
    node_labels: dict[str, str]
    node_selector: dict[str, str]
    tolerations: tuple[dict[str, str], ...]
    zone: str | None
    why: dict[str, str] = field(default_factory=dict)
    """Decision (`cpu`, `memory`, `efa`, ...) -> the rule and the fact that it follows from."""

    @property
    def resources(self) -> dict[str, str]:
        """Requests, which are also the limits, as Kubernetes writes them."""
        asked = {"cpu": fit.cpu_text(self.cpu), "memory": quantity.gibibytes(self.memory)}
        return asked | {name: str(count) for name, count in self.devices.resources}


@dataclass(frozen=True, kw_only=True)
class GroupPlan(PodPlan):
    """The workers of one group. Pod counts are nodes times pods of a node."""

    spec: WorkerGroup
    capacity: Capacity
    min_nodes: int
    max_nodes: int
    start_nodes: int

    @property
    def min_pods(self) -> int:
        """Worker pods that are always there."""
        return self.min_nodes * self.devices.pods_per_node

    @property
    def max_pods(self) -> int:
        """The most worker pods."""
        return self.max_nodes * self.devices.pods_per_node

    @property
    def start_pods(self) -> int:
        """Worker pods at the beginning."""
        return self.start_nodes * self.devices.pods_per_node


@dataclass(frozen=True, kw_only=True)
class ClusterPlan:
    """A cluster with every decision taken."""

    cluster: Cluster
    head: PodPlan
    groups: tuple[GroupPlan, ...]
    autoscales: bool
    eks: str
    """The EKS cluster's name."""
    discovery: str
    """The value of `karpenter.sh/discovery`."""
    service_account: str
    document: Document | None = None
    """The file it came from, for the places of problems that are found later."""

    @property
    def pods(self) -> tuple[PodPlan, ...]:
        """The head, then each group."""
        return (self.head, *self.groups)

    def group(self, name: str) -> GroupPlan:
        """The group of that name. Raises KeyError."""
        for group in self.groups:
            if group.name == name:
                return group
        raise KeyError(name)


def resolve(cluster: Cluster, *, document: Document | None = None) -> ClusterPlan:
    """Every decision of a cluster file. Raises SpecError with all problems, placed in `document` where given."""
    problems: list[Problem] = []
    head = _head(cluster, problems)
    groups = [_group(cluster, index, problems) for index in range(len(cluster.workers))]
    found = [group for group in groups if group is not None]
    problems += versions.problems(cluster)
    problems += placement.zone_problems(cluster, {group.name: group.devices.efa for group in found})
    problems += network.problems(cluster, efa=any(group.devices.efa for group in found))
    problems += reservations.problems(cluster)
    problems += notebooks.problems(cluster, found)
    if problems or head is None:
        raise SpecError(located(problems, document or Document(file="", data=cluster.written())))
    return ClusterPlan(
        cluster=cluster,
        head=head,
        groups=tuple(found),
        autoscales=cluster.autoscales,
        eks=cluster.eks or cluster.name,
        discovery=network.discovery(cluster),
        service_account=cluster.service_account.name or cluster.name,
        document=document,
    )


def _head(cluster: Cluster, problems: list[Problem]) -> PodPlan | None:
    spec, before = cluster.head, len(problems)
    # Where nodes exist already, the default type is nobody's wish.
    exists = cluster.provisioner.kind == "none" and "instance" not in spec.model_fields_set
    instance, _ = _instance(None if exists else spec.instance, None, "head", problems)
    if len(problems) > before:
        return None
    if instance is not None and (instance.accelerators or instance.vendor):
        rule = f"{instance.type} has accelerators, and the head runs no training"
        problems.append(Problem(path="head.instance", value=instance.type, rule=rule, fix="for example m6i.2xlarge"))
    sizes = _sizes(spec, instance, 1, "head", problems)
    if sizes is None or len(problems) > before:
        return None
    cpu, memory, why = sizes
    why["num_cpus"] = "the head runs no tasks, so it offers Ray no CPUs"
    return PodPlan(
        name=placement.HEAD,
        spec=spec,
        instance=instance,
        image=_image(cluster, spec, Devices(), instance),
        cpu=cpu,
        memory=memory,
        num_cpus=0,
        shm=_shm(None, memory, why),
        devices=Devices(),
        taints=(),
        node_labels=placement.node_labels(cluster, placement.HEAD, spec),
        node_selector=placement.node_selector(cluster, placement.HEAD, spec, instance),
        tolerations=placement.tolerations(spec, ()),
        zone=placement.zone_of(cluster, spec),
        why=why,
    )


def _group(cluster: Cluster, index: int, problems: list[Problem]) -> GroupPlan | None:
    spec, path, before = cluster.workers[index], f"workers.{index}", len(problems)
    instance, said = _instance(spec.instance, spec.gpus, path, problems)
    if instance is not None:
        problems += device.problems(spec, instance, path)
    if len(problems) > before:
        return None
    owned = device.devices(spec, instance)
    problems += _group_problems(cluster, spec, owned, path)
    sizes = _sizes(spec, instance, owned.pods_per_node, path, problems)
    if sizes is None or len(problems) > before:
        return None
    cpu, memory, why = sizes
    if spec.shm is not None and quantity.parse(spec.shm) >= memory:
        rule = f"/dev/shm is part of the pod's memory, which is {quantity.gibibytes(memory)}"
        problems.append(Problem(path=f"{path}.shm", value=spec.shm, rule=rule, fix="write less, or leave it out"))
        return None
    why |= {"instance": said} if said else {}
    why |= _device_reasons(spec, instance, owned) if instance else {}
    why["num_cpus"] = "Ray counts whole CPUs: the pod's, rounded down, at least 1"
    taints = placement.taints(spec, owned)
    nodes = spec.nodes
    return GroupPlan(
        name=spec.name,
        spec=spec,
        instance=instance,
        image=_image(cluster, spec, owned, instance),
        cpu=cpu,
        memory=memory,
        num_cpus=fit.num_cpus(cpu),
        shm=_shm(spec, memory, why),
        devices=owned,
        taints=taints,
        node_labels=placement.node_labels(cluster, spec.name, spec),
        node_selector=placement.node_selector(cluster, spec.name, spec, instance),
        tolerations=placement.tolerations(spec, taints),
        zone=placement.zone_of(cluster, spec),
        why=why,
        capacity=spec.capacity,
        min_nodes=nodes.min,
        max_nodes=nodes.max,
        start_nodes=nodes.min if nodes.start is None else nodes.start,
    )


def _instance(
    type: str | None, gpus: str | None, path: str, problems: list[Problem]
) -> tuple[Instance | None, str | None]:
    """The type's facts, and the choice as a sentence when the file asked by accelerator."""
    try:
        if gpus is not None:
            choice = catalog.resolve_gpus(gpus, path=f"{path}.gpus")[0]
            if choice.nodes > 1:
                rule = f"no type has that many on one node; {choice.said}"
                each = f"{choice.instance.accelerator}:{choice.instance.accelerators}"
                problems.append(Problem(path=f"{path}.gpus", value=gpus, rule=rule, fix=f"write {each} and more nodes"))
            return choice.instance, choice.said
        return (None if type is None else catalog.instance(type)), None
    except SpecError as error:
        at = f"{path}.{'gpus' if gpus is not None else 'instance'}"
        problems += [Problem(path=at, value=found.value, rule=found.rule, fix=found.fix) for found in error.problems]
        return None, None


def _sizes(
    spec: Head | WorkerGroup, instance: Instance | None, pods: int, path: str, problems: list[Problem]
) -> tuple[Decimal, Decimal, dict[str, str]] | None:
    """CPU, memory and their reasons; None when there is a problem with them."""
    kept = fit.HEAD_SIDECARS if isinstance(spec, Head) else None
    limit = fit.share(instance, pods, kept=kept) if instance else None
    given = {"cpu": spec.cpu, "memory": spec.memory}
    if limit is None:
        missing = [word for word, value in given.items() if value is None]
        if missing:
            about = f"no source says what {instance.type} can give to pods" if instance else "no `instance` is given"
            fix = " and ".join(f"write `{word}`" for word in missing)
            problems.append(Problem(path=f"{path}.{missing[0]}", rule=about, fix=fix))
            return None
        written = "as the file says"
        cpu, memory = (quantity.parse(str(value)) for value in given.values())
        return cpu, memory, {"cpu": written, "memory": written}
    assert instance is not None
    if limit.cpu <= 0 or limit.memory <= 0:
        fix = "take a larger one: raytrain-eks catalog lists them"
        problems.append(
            Problem(path=f"{path}.instance", value=instance.type, rule=f"is too small: {limit.why}", fix=fix)
        )
        return None
    found = [
        problem
        for word, value in given.items()
        if value is not None and (problem := fit.too_large(path, word, value, instance, limit))
    ]
    problems += found
    if found:
        return None
    why = {word: limit.why if value is None else f"as the file says; {limit.why}" for word, value in given.items()}
    cpu = limit.cpu if spec.cpu is None else quantity.parse(spec.cpu)
    memory = limit.memory if spec.memory is None else quantity.parse(spec.memory)
    return cpu, memory, why


def _shm(spec: WorkerGroup | None, memory: Decimal, why: dict[str, str]) -> Decimal:
    if spec is not None and spec.shm is not None:
        why["shm"] = "as the file says; it counts as memory of the pod"
        return quantity.parse(spec.shm)
    why["shm"] = (
        "a third of the memory: Ray's object store takes 30% of it (ray_constants.py) and falls back to disk when "
        "/dev/shm is smaller; the rest is for NCCL and data loaders"
    )
    return fit.rounded(memory / 3)


def _image(cluster: Cluster, spec: Head | WorkerGroup, devices: Devices, instance: Instance | None) -> str:
    """As written, else Ray's own: its tags end with the platform, then the architecture where it is not amd64."""
    arm = "-aarch64" if instance is not None and instance.arch == "arm64" else ""
    public = f"{HEAD_IMAGE}:{cluster.ray.version}-py311{'-gpu' if devices.gpus else ''}{arm}"
    return spec.image or cluster.ray.image or public


def _group_problems(cluster: Cluster, spec: WorkerGroup, devices: Devices, path: str) -> Iterator[Problem]:
    if devices.neuron_devices and not (spec.image or cluster.ray.image):
        rule = "Neuron needs an image with its runtime and compiler, and Ray's public one has neither"
        yield Problem(path=f"{path}.image", rule=rule, fix="write the name of an image built on AWS's Neuron image")
    if cluster.network.host_network and devices.pods_per_node > 1:
        rule = "with the host's network a node holds one pod of a group, since their ports would collide"
        yield Problem(path=f"{path}.accelerators", value=str(spec.accelerators), rule=rule, fix="leave it out")


def _device_reasons(spec: WorkerGroup, instance: Instance, devices: Devices) -> dict[str, str]:
    source = f"({instance.source})"
    why: dict[str, str] = {}
    if devices.kind != "cpu":
        taken = devices.gpus or devices.neuron_devices
        why["accelerators"] = (
            f"{taken} of the {instance.accelerators} {instance.accelerator} of {instance.type} {source}"
        )
    if devices.neuron_cores:
        why["neuron_cores"] = (
            f"{instance.neuron_cores_per_device} cores a chip, LNC {devices.logical_core} ({instance.peak_source}); "
            "stated since the operator maps only aws.amazon.com/neuroncore to it, and Ray's autoscaler maps neither"
        )
    if devices.efa:
        why["efa"] = f"the pod's part of the {instance.efa} EFA interfaces of {instance.type} {source}"
    elif instance.efa:
        why["efa"] = "none: " + (
            "as the file says" if spec.efa == "none" else "the group has one node, or no accelerators"
        )
    else:
        why["efa"] = f"{instance.type} has none {source}"
    return why
