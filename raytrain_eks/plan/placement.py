"""Which nodes a pod goes to: labels and taints of the nodes, and the selectors and tolerations that answer them.

Nodes and pods read the same decision from here, so that a selector never names a label that no node carries.
"""

from collections.abc import Iterator, Mapping

from raytrain_eks.catalog import Instance
from raytrain_eks.plan.devices import GPU, NEURON, Devices
from raytrain_eks.spec.cluster import Cluster, Head, WorkerGroup
from raytrain_eks.spec.cluster_storage import FsxLustre
from raytrain_eks.spec.kubernetes import Taint
from raytrain_eks.spec.problem import Problem

CLUSTER_LABEL = "raytrain-eks/cluster"
GROUP_LABEL = "raytrain-eks/group"
HEAD = "head"
INSTANCE_LABEL = "node.kubernetes.io/instance-type"
ZONE_LABEL = "topology.kubernetes.io/zone"

OWNERS = ("kubernetes.io", "k8s.io", "karpenter.sh", "karpenter.k8s.aws", "amazonaws.com")
"""Domains of labels that node pools may not set (Karpenter's CEL rules, the kubelet's --node-labels)."""

Toleration = dict[str, str]


def taints(group: WorkerGroup | Head, devices: Devices) -> tuple[Taint, ...]:
    """The taints of a group's nodes: as written, else one for the kind of accelerator, so that nothing else sits there.

    The keys are those which the device plugins tolerate as they are shipped.
    """
    if isinstance(group, WorkerGroup) and group.taints is not None:
        return tuple(group.taints)
    key = {"gpu": GPU, "neuron": NEURON}.get(devices.kind)
    return (Taint(key=key, value="true"),) if key else ()


def tolerations(group: WorkerGroup | Head, taints: tuple[Taint, ...]) -> tuple[Toleration, ...]:
    """Every taint of the group's own nodes, then what the file adds."""
    own = [{"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect} for taint in taints]
    own = [entry if entry["value"] else _exists(entry) for entry in own]
    more = [entry.model_dump(exclude_none=True) for entry in group.tolerations]
    return (*own, *(entry for entry in more if entry not in own))


def _exists(entry: Toleration) -> Toleration:
    return {"key": entry["key"], "operator": "Exists", "effect": entry["effect"]}


def node_labels(cluster: Cluster, name: str, group: WorkerGroup | Head) -> dict[str, str]:
    """The labels that a group's nodes get from whoever makes them; none when they exist already."""
    if cluster.provisioner.kind == "none":
        return {}
    free = {key: value for key, value in group.labels.items() if not _owned(key)}
    return {CLUSTER_LABEL: cluster.name, GROUP_LABEL: name} | free


def _owned(key: str) -> bool:
    domain = key.rpartition("/")[0]
    return any(domain == owner or domain.endswith(f".{owner}") for owner in OWNERS)


def node_selector(cluster: Cluster, name: str, group: WorkerGroup | Head, instance: Instance | None) -> dict[str, str]:
    """What a pod of the group asks of its node."""
    selector: dict[str, str] = {}
    if cluster.provisioner.kind != "none":
        selector |= {CLUSTER_LABEL: cluster.name, GROUP_LABEL: name}
    if instance is not None:
        selector[INSTANCE_LABEL] = instance.type
    if (zone := zone_of(cluster, group)) is not None:
        selector[ZONE_LABEL] = zone
    return selector | dict(group.node_selector)


def zone_of(cluster: Cluster, group: WorkerGroup | Head) -> str | None:
    """The zone of a group's nodes; None: any of the region."""
    return (group.zone if isinstance(group, WorkerGroup) else None) or cluster.zone


def zone_problems(cluster: Cluster, efa: Mapping[str, int]) -> Iterator[Problem]:
    """What must lie in one zone and does not say which. `efa`: group name -> EFA interfaces of a pod."""
    for index, group in enumerate(cluster.workers):
        if efa.get(group.name) and group.nodes.max > 1 and zone_of(cluster, group) is None:
            rule = "EFA works within one availability zone; nodes in two hang at the first collective"
            fix = f"add `zone: {cluster.region}a` here or at the top, or `efa: none`"
            yield Problem(path=f"workers.{index}.zone", rule=rule, fix=fix)
    made = [
        (name, volume)
        for name, volume in cluster.storage.volumes()
        if isinstance(volume, FsxLustre) and volume.filesystem is None
    ]
    zones = sorted({zone_of(cluster, group) or "" for group in cluster.workers})
    for name, _ in made:
        if cluster.zone is None:
            rule = "FSx for Lustre lies in one availability zone, and the file names none"
            fix = f"add `zone: {zones[0] or cluster.region + 'a'}` at the top"
            yield Problem(path=f"storage.{name}", rule=rule, fix=fix)
