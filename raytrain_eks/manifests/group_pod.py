"""A worker group's pod for another program than Ray: the same devices, folders, nodes and identity."""

from dataclasses import dataclass

from raytrain_eks.manifests.object import Body
from raytrain_eks.manifests.pod import template
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan

SHARED = ("imagePullPolicy", "env", "resources", "volumeMounts")
"""What a container of such a pod has from Ray's."""


@dataclass(frozen=True, kw_only=True)
class GroupPod:
    """The parts of a pod template."""

    metadata: Body
    spec: Body
    """Without containers and `restartPolicy`, which whoever makes the pods has rules of their own for."""
    container: Body
    """Without name, image and command."""


def group_pod(plan: ClusterPlan, group: GroupPlan) -> GroupPod:
    """The parts for a group, the file's own piece of a pod merged over them."""
    body, _ = template(plan, group)
    spec = {key: value for key, value in body["spec"].items() if key not in ("containers", "restartPolicy")}
    first = body["spec"]["containers"][0]
    return GroupPod(
        metadata=body.get("metadata") or {},
        spec=spec,
        container={key: first[key] for key in SHARED if key in first},
    )


def on_the_head(plan: ClusterPlan) -> Body:
    """Where what runs no training goes: the nodes of Ray's head."""
    spec: Body = {}
    if plan.cluster.ray.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.cluster.ray.pull_secrets]
    if plan.head.node_selector:
        spec["nodeSelector"] = dict(plan.head.node_selector)
    if plan.head.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in plan.head.tolerations]
    return spec
