"""What scheduler, kubelet, Karpenter, Kueue, Volcano and quota really say, as functions of what they are about.

Texts: kube-scheduler 1.33 (`framework/types.go`, FitError), kubelet (`images/image_manager.go`), Karpenter 1.14
(`scheduling/scheduler.go`, `nodeclaim/lifecycle/launch.go`), Kueue 0.19 (`flavorassigner.go`), Volcano 1.15
(`job_info.go`).
"""


def _no_node(nodes: int, reasons: dict[str, int]) -> str:
    listed = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items()))
    preemption = f"0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    return f"0/{nodes} nodes are available: {listed}. preemption: {preemption}"


def untolerated(taint: str = "nvidia.com/gpu: true", *, nodes: int = 3, also: dict[str, int] | None = None) -> str:
    """Every node has a taint that the pod does not tolerate; `taint` as `key: value`."""
    return _no_node(nodes, {f"node(s) had untolerated taint(s) {{{taint}}}": nodes, **(also or {})})


def insufficient(resource: str = "nvidia.com/gpu", *, nodes: int = 3) -> str:
    """No node has enough of a resource left."""
    listed = f"0/{nodes} nodes are available: {nodes} Insufficient {resource}."
    victims = f"0/{nodes} nodes are available: {nodes} No preemption victims found for incoming pod."
    return f"{listed} preemption: {victims}"


def unmatched(*, nodes: int = 3) -> str:
    """No node has the labels that the pod selects."""
    return _no_node(nodes, {"node(s) didn't match Pod's node affinity/selector": nodes})


def unbound(*, nodes: int = 3) -> str:
    """A claim of the pod is not bound."""
    preemption = f"0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    claims = "pod has unbound immediate PersistentVolumeClaims"
    return f"0/{nodes} nodes are available: {claims}. preemption: {preemption}"


def missing_claim(name: str, *, nodes: int = 3) -> str:
    """A claim of the pod does not exist."""
    preemption = f"0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling."
    return f'0/{nodes} nodes are available: persistentvolumeclaim "{name}" not found. preemption: {preemption}'


def other_zone(*, nodes: int = 3) -> str:
    """The volume is in another zone than the nodes."""
    return _no_node(nodes, {"node(s) had volume node affinity conflict": nodes})


def image_not_found(image: str) -> str:
    """The registry does not have the image."""
    return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {image}: not found'


def image_forbidden(image: str) -> str:
    """The registry does not let the node have the image."""
    why = "pull access denied, repository does not exist or may require authorization: authorization failed: "
    why += "no basic auth credentials"
    return f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": {why}'


def over_quota(pod: str, quota: str = "team", resource: str = "requests.nvidia.com/gpu", *, asked: str = "8") -> str:
    """The namespace's ResourceQuota is used up."""
    return (
        f'pods "{pod}" is forbidden: exceeded quota: {quota}, requested: {resource}={asked}, used: {resource}=16, '
        f"limited: {resource}=16"
    )


def karpenter_incompatible(pool: str = "a100", resource: str = "nvidia.com/gpu", amount: int = 8) -> str:
    """No instance type of a NodePool fits the pod."""
    asked = f'{{"cpu":"90","memory":"1055Gi","{resource}":"{amount}","pods":"6"}}'
    return (
        f'Failed to schedule pod, incompatible with nodepool "{pool}", daemonset overhead={{"cpu":"150m","pods":"5"}}, '
        f"no instance type satisfied resources {asked} and requirements karpenter.sh/capacity-type In [on-demand], "
        f"karpenter.sh/nodepool In [{pool}] (no instance type has enough resources)"
    )


def karpenter_limits(pool: str = "a100") -> str:
    """The NodePool's limits are used up."""
    return f'Failed to schedule pod, all available instance types exceed limits for nodepool: "{pool}"'


def karpenter_no_capacity(claim: str, instance: str = "p4d.24xlarge", zone: str = "us-west-2a") -> str:
    """EC2 has none of the instances."""
    reply = (
        f"We currently do not have sufficient {instance} capacity in the Availability Zone you requested ({zone}). "
        "Our system will be working on provisioning additional capacity."
    )
    error = f"InsufficientInstanceCapacity: {reply}"
    return f"NodeClaim {claim} event: creating instance, insufficient capacity, with fleet error(s), {error}"


def kueue_no_quota(resource: str = "nvidia.com/gpu", flavor: str = "a100", *, more: int = 8) -> str:
    """The ClusterQueue has no quota left."""
    return (
        f"couldn't assign flavors to pod set head: insufficient unused quota for {resource} in flavor {flavor}, "
        f"{more} more needed"
    )


def volcano_gang(*, tasks: int = 3, minimum: int = 3) -> str:
    """The gang does not fit as a whole."""
    group = f"pod group is not ready, {tasks} Pending, {minimum} minAvailable"
    return f"{tasks}/{tasks} tasks in gang unschedulable: {group}; Pending: {tasks} Unschedulable"
