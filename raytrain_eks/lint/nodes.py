"""The nodes that a bundle offers: Karpenter's pools, eksctl's and ACK's managed groups, with their labels and taints.

Whether a pod may run there is decided here, in the scheduler's terms: node selector and required node affinity against
labels and requirements, tolerations against taints. Resources are the business of `rules/fit.py`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import amount, get, items, mapping, text
from raytrain_eks.spec.source import Path

TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"
OLD = {"beta.kubernetes.io/instance-type": TYPE, "failure-domain.beta.kubernetes.io/zone": ZONE}
OLD |= {"beta.kubernetes.io/arch": "kubernetes.io/arch", "beta.kubernetes.io/os": "kubernetes.io/os"}
_DISCOVERED = ("feature.node.kubernetes.io/", "nvidia.com/", "topology.k8s.aws/", "topology.ebs.csi.aws.com/")
"""Labels that daemon sets and cloud controllers put on nodes; whether they are there cannot be seen from manifests."""


@dataclass(frozen=True)
class Requirement:
    """`key operator values`, of a pod's affinity or of a node pool."""

    key: str
    operator: str
    values: tuple[str, ...]
    path: Path

    def admits(self, value: str | None) -> bool:
        """Whether a label's value (None: the node has no such label) meets the requirement."""
        if self.operator in ("NotIn", "DoesNotExist"):
            return value is None or (self.operator == "NotIn" and value not in self.values)
        if value is None:
            return False
        if self.operator in ("Gt", "Lt"):
            left, right = amount(value), amount(self.values[0] if self.values else None)
            return left is not None and right is not None and (left > right if self.operator == "Gt" else left < right)
        return self.operator == "Exists" or value in self.values


@dataclass(frozen=True, eq=False)
class Offer:
    """A group of nodes that pods can get."""

    owner: Resource
    path: Path
    """Path of the group in its document."""
    name: str
    labels: Mapping[str, str]
    requirements: tuple[Requirement, ...]
    taints: tuple[Mapping[str, Any], ...]
    fixed_types: tuple[str, ...] = ()
    """Types of a managed node group; a Karpenter pool's are read from its requirements."""

    @property
    def title(self) -> str:
        return f"{self.owner.kind} {self.name}"

    @cached_property
    def types(self) -> tuple[str, ...]:
        """The instance types that the group can have, of those that the catalogue knows or the group names."""
        if self.fixed_types:
            return self.fixed_types
        named = [wanted for wanted in self.requirements if wanted.key == TYPE and wanted.operator == "In"]
        others = [wanted for wanted in self.requirements if wanted.key.startswith("karpenter.k8s.aws/instance-")]
        arch = [wanted for wanted in self.requirements if wanted.key == "kubernetes.io/arch"]
        if named:
            found = set.intersection(*(set(wanted.values) for wanted in named))
            return tuple(sorted(type for type in found if all(_type_meets(type, wanted) for wanted in others)))
        if not others:
            return ()
        from raytrain_eks.catalog.instance import types

        return tuple(type for type in types() if all(_type_meets(type, wanted) for wanted in [*others, *arch]))

    @property
    def zones(self) -> tuple[str, ...]:
        """The zones that are named; empty when the group says nothing."""
        return tuple(value for wanted in self.requirements if wanted.key == ZONE for value in wanted.values)

    def admits(self, wanted: Requirement) -> bool:
        """Whether some node of the group can meet one requirement of a pod."""
        key = OLD.get(wanted.key, wanted.key)
        if key.startswith(_DISCOVERED) or key == "kubernetes.io/hostname":
            return True
        if key == TYPE:
            return not self.types or any(wanted.admits(type) for type in self.types)
        if key in self.labels:
            return wanted.admits(self.labels[key])
        own = [requirement for requirement in self.requirements if requirement.key == key]
        if own:
            listed = [value for requirement in own if requirement.operator == "In" for value in requirement.values]
            return any(wanted.admits(value) for value in listed) if listed else True
        if key.startswith("karpenter.k8s.aws/instance-") or key == "kubernetes.io/arch":
            return not self.types or any(_type_meets(type, wanted) for type in self.types)
        if key in (ZONE, "topology.kubernetes.io/region", "kubernetes.io/os", "karpenter.sh/capacity-type"):
            return wanted.operator in ("In", "Exists", "NotIn") and (
                key != "kubernetes.io/os" or wanted.admits("linux")
            )
        return wanted.admits(None)


def _type_meets(type: str, wanted: Requirement) -> bool:
    """Whether a type meets a requirement on the labels that Karpenter and the kubelet derive from it."""
    from raytrain_eks.catalog.instance import instance, known

    if not known(type):
        return True
    found = instance(type)
    family, _, size = type.partition(".")
    category = re.match("[a-z]+", family)
    labels = {
        "kubernetes.io/arch": found.arch,
        "karpenter.k8s.aws/instance-family": family,
        "karpenter.k8s.aws/instance-size": size,
        "karpenter.k8s.aws/instance-category": category[0] if category else "",
        "karpenter.k8s.aws/instance-cpu": str(found.vcpu),
        "karpenter.k8s.aws/instance-memory": str(int(found.memory) // 2**20),
    }
    if found.vendor == "nvidia":
        labels["karpenter.k8s.aws/instance-gpu-name"] = found.accelerator.lower()
        labels["karpenter.k8s.aws/instance-gpu-count"] = str(found.accelerators)
        labels["karpenter.k8s.aws/instance-gpu-manufacturer"] = "nvidia"
    if wanted.key not in labels:
        # A label of Karpenter's that is not derived here: nothing can be said against the type.
        return not wanted.key.startswith("karpenter.k8s.aws/instance-gpu-") or found.vendor == "nvidia"
    return wanted.admits(labels[wanted.key])


def offers_of(resource: Resource) -> Iterator[Offer]:
    """The groups of nodes that an object offers."""
    if resource.is_a("karpenter.sh", "NodePool"):
        yield _node_pool(resource)
    if resource.is_a("eks.services.k8s.aws", "Nodegroup"):
        yield _ack_node_group(resource)
    if resource.is_a("eksctl.io", "ClusterConfig"):
        for key in ("managedNodeGroups", "nodeGroups"):
            for index, group in enumerate(items(resource.get(key))):
                if isinstance(group, Mapping):
                    yield _node_group(resource, group, (*resource.base, key, index))


def _node_pool(resource: Resource) -> Offer:
    base = (*resource.base, "spec", "template")
    template = mapping(resource.get("spec", "template"))
    labels = {key: text(value) for key, value in mapping(get(template, "metadata", "labels")).items()}
    return Offer(
        owner=resource,
        path=base,
        name=resource.name,
        labels={"karpenter.sh/nodepool": resource.name, **labels},
        requirements=tuple(_requirements(get(template, "spec", "requirements"), (*base, "spec", "requirements"))),
        taints=tuple(mapping(taint) for taint in items(get(template, "spec", "taints"))),
    )


def _node_group(resource: Resource, group: Mapping[str, Any], path: Path) -> Offer:
    name = text(group.get("name"))
    labels = {key: text(value) for key, value in mapping(group.get("labels")).items()}
    zones = tuple(text(zone) for zone in items(group.get("availabilityZones")))
    types = [group.get("instanceType"), *items(group.get("instanceTypes"))]
    types += items(get(group, "instancesDistribution", "instanceTypes"))
    return Offer(
        owner=resource,
        path=path,
        name=name,
        labels={"eks.amazonaws.com/nodegroup": name, "alpha.eksctl.io/nodegroup-name": name, **labels},
        requirements=(Requirement(ZONE, "In", zones, (*path, "availabilityZones")),) if zones else (),
        taints=tuple(_group_taints(group.get("taints"))),
        fixed_types=tuple(text(type) for type in types if text(type) and text(type) != "mixed"),
    )


def _ack_node_group(resource: Resource) -> Offer:
    """EKS writes the effects of taints in its own way: `NO_SCHEDULE`."""
    spec = mapping(resource.get("spec"))
    taints = [mapping(taint) for taint in items(spec.get("taints"))]
    return Offer(
        owner=resource,
        path=(*resource.base, "spec"),
        name=resource.name,
        labels={key: text(value) for key, value in mapping(spec.get("labels")).items()},
        requirements=(),
        taints=tuple({**taint, "effect": text(taint.get("effect")).title().replace("_", "")} for taint in taints),
        fixed_types=tuple(text(type) for type in items(spec.get("instanceTypes"))),
    )


def _group_taints(taints: Any) -> Iterator[Mapping[str, Any]]:
    """eksctl takes a list of taints, or a mapping `key: value:Effect`."""
    if isinstance(taints, Mapping):
        for key, value in taints.items():
            before, _, effect = text(value).rpartition(":")
            yield {"key": key, "value": before, "effect": effect}
    else:
        yield from (mapping(taint) for taint in items(taints))


def _requirements(found: Any, path: Path) -> Iterator[Requirement]:
    for index, entry in enumerate(items(found)):
        if isinstance(entry, Mapping):
            values = tuple(text(value) for value in items(entry.get("values")))
            yield Requirement(text(entry.get("key")), text(entry.get("operator")), values, (*path, index))


def terms(pod: Pod) -> list[list[Requirement]]:
    """What a pod requires of its node: alternatives, of each of which every requirement must be met."""
    selector = [
        Requirement(key, "In", (text(value),), (*pod.path, "nodeSelector", key))
        for key, value in mapping(pod.spec.get("nodeSelector")).items()
    ]
    steps = ("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
    path = (*pod.path, *steps)
    alternatives = [
        list(_requirements(get(term, "matchExpressions"), (*path, index, "matchExpressions")))
        for index, term in enumerate(items(get(pod.spec, *steps)))
    ]
    return [selector + alternative for alternative in alternatives] or [selector]


def named_types(pod: Pod) -> list[Requirement]:
    """The requirements by which a pod names its instance types; SageMaker HyperPod's `ml.` is taken off."""
    return [
        replace(wanted, values=tuple(value.removeprefix("ml.") for value in wanted.values))
        for term in terms(pod)
        for wanted in term
        if OLD.get(wanted.key, wanted.key) == TYPE and wanted.operator == "In"
    ]


def unmet(pod: Pod, offer: Offer) -> list[Requirement]:
    """What keeps a pod off the group by its labels: of the alternative that comes nearest; empty when one is met."""
    missing = [[wanted for wanted in term if not offer.admits(wanted)] for term in terms(pod)]
    return min(missing, key=len)


def tolerates(pod: Pod, taint: Mapping[str, Any]) -> bool:
    """Whether one of the pod's tolerations covers a taint; daemon sets tolerate the node conditions by themselves."""
    return any(_covers(mapping(toleration), taint) for toleration in items(pod.spec.get("tolerations")))


def _covers(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    key, effect = text(toleration.get("key")), text(toleration.get("effect"))
    if effect and effect != text(taint.get("effect")):
        return False
    if text(toleration.get("operator")) == "Exists":
        return not key or key == text(taint.get("key"))
    return key == text(taint.get("key")) and text(toleration.get("value")) == text(taint.get("value"))


def untolerated(pod: Pod, offer: Offer) -> list[Mapping[str, Any]]:
    """The taints of the group that keep the pod off."""
    kept = [taint for taint in offer.taints if text(taint.get("effect")) in ("NoSchedule", "NoExecute")]
    return [taint for taint in kept if not tolerates(pod, taint)]


def shown(taint: Mapping[str, Any]) -> str:
    """A taint as kubectl writes it: `key=value:Effect`."""
    value = text(taint.get("value"))
    return f"{text(taint.get('key'))}{f'={value}' if value else ''}:{text(taint.get('effect'))}"
