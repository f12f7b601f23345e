"""Where on Kubernetes a job runs: in a cluster of its own out of its cluster file, or in a RayCluster that is there.

Workers are counted from the file (nodes times accelerators) or from the RayCluster's spec, never from what is up now: a
cluster that is scaled to zero counts in full. Pure: nothing is contacted.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan
from raytrain_eks.plan.devices import GPU, NEURON_CORE
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError, counted, nearest
from raytrain_eks.train.trainer import Planned

RUNS = "runs"
"""The folder of the shared volume that holds run folders unless somebody says otherwise."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Workers of one kind that a job may take."""

    name: str
    nodes: int
    """At most."""
    each: int
    """Worker processes of a node: one per accelerator; on CPUs one per pod, more when the job asks for more."""
    room: int
    """Worker processes that a node has room for."""
    kind: str
    """The Ray resource of an accelerator, `CPU` without any."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """A job's place."""

    namespace: str
    ray: str
    """Ray's version there."""
    image: str
    """Of the head, and of the pod that submits."""
    workers: Planned
    nodes: Mapping[str, int]
    """Worker group -> nodes."""
    mounts: tuple[str, ...]
    """Where pods see folders that outlive them."""
    plan: ClusterPlan | None = None
    """Of the cluster file, for a cluster of its own."""
    cluster: str | None = None
    """The RayCluster that is there already."""
    pull_secrets: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """Of the head, and so of the pod that submits."""

    @property
    def default_storage(self) -> str | None:
        """Where runs go when neither the file nor the command says; None without a shared volume."""
        return str(PurePosixPath(self.mounts[0]) / RUNS) if self.mounts else None

    def storage_problems(self, storage: str) -> Iterator[Problem]:
        """A folder that is in no volume would be gone with its pod."""
        if "://" in storage or any(_within(storage, mount) for mount in self.mounts):
            return
        known = ", ".join(self.mounts)
        rule = "lies on a pod's own disk, which is gone with the pod" + (f"; pods share {known}" if known else "")
        fix = f"for example {self.mounts[0]}/{RUNS}" if known else "write s3://bucket/prefix"
        yield Problem(path="storage", value=storage, rule=rule, fix=fix)


def _within(path: str, folder: str) -> bool:
    """Whether `path` is `folder` or lies in it, `..` not followed."""
    parts = PurePosixPath(path)
    return ".." not in parts.parts and parts.is_relative_to(folder)


def own(job: Job, plan: ClusterPlan) -> Place:
    """A cluster of the job's own. Raises SpecError, with paths of the job's tree."""
    group = chosen(job, [of_plan(group) for group in plan.groups], plan.cluster.name)
    nodes, workers = counts(job, group)
    shared = plan.cluster.storage
    return Place(
        namespace=plan.cluster.namespace,
        ray=plan.cluster.ray.version,
        image=plan.head.image,
        workers=workers,
        nodes={group.name: nodes},
        # The volume that is meant for runs comes first.
        mounts=tuple(volume.mount for _, volume in shared.volumes() if not getattr(volume, "read_only", False)),
        plan=plan,
        pull_secrets=tuple(plan.cluster.ray.pull_secrets),
        tolerations=plan.head.tolerations,
    )


def existing(job: Job, live: Mapping[str, Any]) -> Place:
    """In a RayCluster object as the API gives it. Raises SpecError, with paths of the job's tree."""
    spec, name = live["spec"], str(live["metadata"]["name"])
    group = chosen(job, [of_spec(each) for each in spec.get("workerGroupSpecs") or []], name)
    nodes, workers = counts(job, group)
    head = spec["headGroupSpec"]["template"]["spec"]
    return Place(
        namespace=str(live["metadata"]["namespace"]),
        ray=str(spec.get("rayVersion") or ""),
        image=str(head["containers"][0].get("image") or ""),
        workers=workers,
        nodes={group.name: nodes},
        mounts=tuple(_mounts(head)),
        cluster=name,
        pull_secrets=tuple(str(each["name"]) for each in head.get("imagePullSecrets") or []),
        tolerations=tuple(head.get("tolerations") or ()),
    )


def _mounts(pod: Mapping[str, Any]) -> Iterator[str]:
    """Where the Ray container of a pod sees claims that it may write."""
    claims = {each["name"] for each in pod.get("volumes") or [] if "persistentVolumeClaim" in each}
    for mount in pod["containers"][0].get("volumeMounts") or []:
        if mount["name"] in claims and not mount.get("readOnly"):
            yield str(mount["mountPath"])


def of_plan(group: GroupPlan) -> Group:
    """A group of a cluster file."""
    devices, pods = group.devices, group.devices.pods_per_node
    accelerators = devices.gpus or devices.neuron_cores
    kind = "GPU" if devices.gpus else "neuron_cores" if devices.neuron_cores else "CPU"
    each = pods * (accelerators or 1)
    room = each if accelerators else pods * group.num_cpus
    return Group(name=group.name, nodes=group.max_nodes, each=each, room=room, kind=kind)


def of_spec(group: Mapping[str, Any]) -> Group:
    """A worker group of a RayCluster; each of its pods counts as a node."""
    container = group["template"]["spec"]["containers"][0]
    resources = container.get("resources") or {}
    limits = dict(resources.get("requests") or {}) | dict(resources.get("limits") or {})
    said = dict(group.get("rayStartParams") or {}) | dict(group.get("resources") or {})
    cores = (group.get("resources") or {}).get("neuron_cores") or limits.get(NEURON_CORE)
    for kind, count in (("GPU", said.get("num-gpus") or said.get("GPU") or limits.get(GPU)), ("neuron_cores", cores)):
        if count and int(count):
            each = int(count)
            return Group(name=group["groupName"], nodes=_most(group), each=each, room=each, kind=kind)
    cpus = said.get("num-cpus") or said.get("CPU") or limits.get("cpu") or "1"
    room = max(int(quantity.parse(str(cpus))), 1)
    return Group(name=group["groupName"], nodes=_most(group), each=1, room=room, kind="CPU")


def _most(group: Mapping[str, Any]) -> int:
    """Pods of a worker group at most. The CRD's default for `maxReplicas` stands for no limit."""
    return int(group.get("maxReplicas") or group.get("replicas") or 0)


def chosen(job: Job, groups: list[Group], cluster: str) -> Group:
    """The group that the job names, or the only one. Raises SpecError."""
    wanted = job.workers.group
    known = {group.name: group for group in groups}
    if wanted is None and len(groups) == 1:
        return groups[0]
    if wanted in known:
        return known[wanted]
    names = ", ".join(known)
    if wanted is None:
        rule = f"the cluster {cluster} has {counted(len(groups), 'worker group')}" + (f": {names}" if names else "")
        raise SpecError([Problem(path="workers.group", rule=rule, fix="say which one the job takes")])
    guess = nearest(wanted, known)
    fix = f"did you mean `{guess}`?" if guess else f"it has {names or 'none'}"
    raise SpecError(
        [Problem(path="workers.group", value=wanted, rule=f"the cluster {cluster} has no such group", fix=fix)]
    )


def counts(job: Job, group: Group) -> tuple[int, Planned]:
    """Nodes and workers of a job in a group. Raises SpecError."""
    asked, count = job.workers.nodes, job.workers.count
    nodes = asked or -(-(count or 1) // group.room)
    workers = count or nodes * group.each
    what = {"GPU": "GPU", "neuron_cores": "NeuronCore", "CPU": "CPU"}[group.kind]
    if nodes > group.nodes:
        at, value = ("workers.nodes", asked) if asked else ("workers.count", count)
        rule = f"the group {group.name} has at most {counted(group.nodes, 'node')} of {counted(group.room, what)}"
        raise SpecError([Problem(path=at, value=None if value is None else str(value), rule=rule)])
    if workers > nodes * group.room:
        rule = f"{counted(nodes, 'node')} of the group {group.name} have {counted(nodes * group.room, what)}"
        fix = f"write at most {nodes * group.room}, or take more nodes"
        raise SpecError([Problem(path="workers.count", value=str(workers), rule=rule, fix=fix)])
    return nodes, Planned(workers, group.kind)
