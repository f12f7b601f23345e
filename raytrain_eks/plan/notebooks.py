"""Notebooks on a cluster's nodes: which kinds of pods a user may choose, what each takes of its node, and why.

A notebook is a pod like a worker: it asks for no more than its part of a node, tolerates the node's taints, and goes to
nodes that the file makes. KubeSpawner checks none of this; a profile that no node takes stays pending for ever.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING

from raytrain_eks.catalog import Instance
from raytrain_eks.plan import fit
from raytrain_eks.plan.devices import GPU, NEURON, NEURON_CORE
from raytrain_eks.plan.placement import ZONE_LABEL, Toleration
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.cluster_jupyter import JupyterHub
from raytrain_eks.spec.problem import Problem

if TYPE_CHECKING:
    from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One kind of notebook pod. Quantities are exact."""

    slug: str
    """`cpu`, `a100-1`, `a100-node`: unique in the file."""
    title: str
    description: str
    group: str | None
    """The worker group whose nodes it goes to; None: any node that takes it."""
    image: str
    cpu: Decimal
    memory: Decimal
    """Bytes, in requests and limits alike."""
    shm: Decimal
    """Bytes of /dev/shm, part of `memory`."""
    resource: tuple[str, int] | None = None
    """The extended resource that it asks for, and how many."""
    node_selector: dict[str, str] = field(default_factory=dict)
    tolerations: tuple[Toleration, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)


def profiles(plan: "ClusterPlan") -> list[Profile]:
    """What a user may choose, the smallest first; none without a hub."""
    hub = plan.cluster.jupyterhub
    if hub is None:
        return []
    groups = _offered(plan.groups, hub)
    found = [_cpu(plan.cluster, groups, hub)]
    for group in groups:
        found += _with_devices(group, hub)
    return found


def problems(cluster: Cluster, groups: "list[GroupPlan]") -> Iterator[Problem]:
    """What no notebook can be made of, in the words of the file."""
    hub = cluster.jupyterhub
    if hub is None:
        return
    offered = _offered(tuple(groups), hub)
    if hub.neuron_image is None and (neuron := [group for group in offered if group.devices.neuron_devices]):
        rule = f"notebooks on nodes of {neuron[0].name} need an image with Neuron's runtime and a single-user server"
        fix = "write its name, or leave the group out by `groups`"
        yield Problem(path="jupyterhub.neuron_image", rule=rule, fix=fix)
    room = _room(offered)
    if room is not None:
        group, limit = room
        for word, written, most in (("cpu", hub.cpu, limit.cpu), ("memory", hub.memory, limit.memory)):
            if quantity.parse(written) > most:
                fits = fit.cpu_text(most) if word == "cpu" else quantity.gibibytes(most)
                rule = f"notebooks without accelerators run on nodes of {group.name}; {limit.why}"
                yield Problem(path=f"jupyterhub.{word}", value=written, rule=rule, fix=f"write at most {fits}")


def _offered(groups: "tuple[GroupPlan, ...]", hub: JupyterHub) -> "list[GroupPlan]":
    return [group for group in groups if hub.groups is None or group.name in hub.groups]


def _room(groups: "list[GroupPlan]") -> "tuple[GroupPlan, fit.Share] | None":
    """The first group of nodes without accelerators, and what a pod may take of one; None when there is none."""
    for group in groups:
        if group.instance is not None and not group.instance.accelerators:
            limit = fit.share(group.instance, 1)
            if limit is not None:
                return group, limit
    return None


def _cpu(cluster: Cluster, groups: "list[GroupPlan]", hub: JupyterHub) -> Profile:
    room = _room(groups)
    memory = quantity.parse(hub.memory)
    # A home volume lies in one zone: a notebook elsewhere would tie its user to nodes that no group has.
    anywhere = {ZONE_LABEL: cluster.zone} if cluster.zone is not None else {}
    where = _nodes(room[0]) if room is not None else "any node without taints"
    return Profile(
        slug="cpu",
        title="CPU",
        description=f"{hub.cpu} CPUs, {hub.memory} of memory; {where}",
        group=room[0].name if room is not None else None,
        image=hub.image,
        cpu=quantity.parse(hub.cpu),
        memory=memory,
        shm=fit.rounded(memory / 3),
        node_selector=dict(room[0].node_selector) if room is not None else anywhere,
        tolerations=room[0].tolerations if room is not None else (),
    )


def _with_devices(group: "GroupPlan", hub: JupyterHub) -> Iterator[Profile]:
    """One device, and the whole node where that is more."""
    instance = group.instance
    if instance is None or not instance.accelerators or group.devices.kind == "cpu":
        return
    for count in sorted({1, instance.accelerators}):
        limit = fit.share(instance, instance.accelerators // count)
        if limit is None or limit.cpu <= 0 or limit.memory <= 0:
            continue
        whole = count == instance.accelerators
        neuron = group.devices.kind == "neuron"
        what = f"{count} x {instance.accelerator}"
        yield Profile(
            slug=f"{group.name}-node" if whole else f"{group.name}-{count}",
            title=f"{what}, a whole node" if whole and count > 1 else what,
            description=f"{fit.cpu_text(limit.cpu)} CPUs, {quantity.gibibytes(limit.memory)} of memory; "
            + _nodes(group),
            group=group.name,
            image=(hub.neuron_image if neuron else hub.gpu_image) or hub.image,
            cpu=limit.cpu,
            memory=limit.memory,
            shm=fit.rounded(limit.memory / 3),
            resource=_resource(group, instance, count),
            node_selector=dict(group.node_selector),
            tolerations=group.tolerations,
            environment=_environment(group, instance) if neuron else {},
        )


def _nodes(group: "GroupPlan") -> str:
    """Which nodes, for a user: a spot node may be taken away, and the kernel's memory with it."""
    type = group.instance.type if group.instance is not None else ""
    return f"{type}, group {group.name}" + (", spot" if group.capacity.kind == "spot" else "")


def _resource(group: "GroupPlan", instance: Instance, count: int) -> tuple[str, int]:
    if group.devices.kind == "gpu":
        return GPU, count
    if group.spec.neuron == "cores":
        return NEURON_CORE, instance.logical_cores(group.devices.logical_core) * count // instance.accelerators
    return NEURON, count


def _environment(group: "GroupPlan", instance: Instance) -> dict[str, str]:
    """Neuron's runtime counts logical cores as the nodes are set up."""
    chosen = len(instance.lnc_allowed) > 1
    return {"NEURON_LOGICAL_NC_CONFIG": str(group.devices.logical_core)} if chosen else {}
