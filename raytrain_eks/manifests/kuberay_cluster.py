"""The RayCluster: head, worker groups, autoscaler, fault tolerance and tokens, for the KubeRay operator (ray.io/v1)."""

from typing import Any

from raytrain_eks.manifests.accelerators import ray_start_params
from raytrain_eks.manifests.metadata import labels
from raytrain_eks.manifests.object import Body
from raytrain_eks.manifests.pod import Whys, template
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan, PodPlan
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_queue import Kueue, Volcano
from raytrain_eks.spec.cluster_ray import EmbeddedTolerance, RedisTolerance

API = "ray.io/v1"
AUTOSCALER = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
"""The operator's default limit of 512Mi is too little for a cluster of many nodes; `plan.fit` keeps this free."""


def ray_cluster(plan: ClusterPlan) -> tuple[Body, Whys]:
    """The RayCluster object, and path inside of it -> reason."""
    spec, whys = cluster_spec(plan, {group.name: group.start_nodes for group in plan.groups})
    metadata: Body = {
        "name": plan.cluster.name,
        "namespace": plan.cluster.namespace,
        "labels": labels(plan) | queue_labels(plan),
    }
    found = {f"spec.{path}": why for path, why in whys.items()}
    if isinstance(plan.cluster.queue, Volcano):
        found["metadata.labels.volcano.sh/queue-name"] = (
            "the operator makes the PodGroup: all of its pods start, or none"
        )
    if isinstance(plan.cluster.queue, Kueue):
        found["metadata.labels.kueue.x-k8s.io/queue-name"] = "Kueue suspends the cluster until its quota is free"
    return {"apiVersion": API, "kind": "RayCluster", "metadata": metadata, "spec": spec}, found


def queue_labels(plan: ClusterPlan) -> dict[str, str]:
    """The labels by which Volcano or Kueue takes a RayCluster or RayJob; none without a queue."""
    queue = plan.cluster.queue
    if isinstance(queue, Volcano):
        found = {"volcano.sh/queue-name": queue.name}
        if queue.priority is not None:
            found["ray.io/priority-class-name"] = queue.priority
        if queue.topology is not None:
            found["volcano.sh/network-topology-mode"] = queue.topology.mode
            found["volcano.sh/network-topology-highest-tier-allowed"] = str(queue.topology.tier)
        return found
    if isinstance(queue, Kueue):
        found = {"kueue.x-k8s.io/queue-name": queue.name}
        return found | ({"kueue.x-k8s.io/priority-class": queue.priority} if queue.priority else {})
    return {}


def cluster_spec(plan: ClusterPlan, nodes: dict[str, int], *, autoscales: bool | None = None) -> tuple[Body, Whys]:
    """The spec of a RayCluster whose groups begin with `nodes` nodes; groups that are not named are left out.

    `autoscales` overrides the plan: a job that takes a fixed number of nodes needs no autoscaler.
    """
    scales = plan.autoscales if autoscales is None else autoscales
    cluster, whys = plan.cluster, Whys()
    spec: Body = {"rayVersion": cluster.ray.version}
    if scales:
        spec["enableInTreeAutoscaling"] = True
        spec["autoscalerOptions"] = {
            "version": cluster.autoscaling.version,
            "idleTimeoutSeconds": int(quantity.seconds(cluster.autoscaling.idle)),
            "upscalingMode": cluster.autoscaling.upscaling,
            "imagePullPolicy": cluster.ray.pull_policy,
            "resources": AUTOSCALER,
        }
        whys["enableInTreeAutoscaling"] = "a group's `min` and `max` differ, so Ray asks for workers as it needs them"
        whys["autoscalerOptions.resources"] = "the operator's default of 512Mi is too little for many nodes"
    if cluster.auth.mode == "token":
        spec["authOptions"] = {"mode": "token"} | ({"secretName": cluster.auth.secret} if cluster.auth.secret else {})
        whys["authOptions"] = "whoever reaches the Jobs API runs code in the cluster; a token is asked for"
    if (options := _fault_tolerance(plan)) is not None:
        spec["gcsFaultToleranceOptions"] = options
        whys["gcsFaultToleranceOptions"] = "the head's state outlives its pod, so a lost head does not end the job"
    spec["headGroupSpec"] = _head(plan, whys)
    spec["workerGroupSpecs"] = [
        _group(plan, group, nodes[group.name], scales, whys) for group in plan.groups if group.name in nodes
    ]
    return spec, whys


def _fault_tolerance(plan: ClusterPlan) -> Body | None:
    tolerance = plan.cluster.head.fault_tolerance
    if isinstance(tolerance, RedisTolerance):
        options: Body = {"redisAddress": tolerance.address}
        for key, secret in (("redisUsername", tolerance.username), ("redisPassword", tolerance.password)):
            if secret is not None:
                options[key] = {"valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}
        return options
    if isinstance(tolerance, EmbeddedTolerance):
        if tolerance.claim is not None:
            return {"backend": "rocksdb", "storage": {"claimName": tolerance.claim}}
        storage: dict[str, Any] = {"size": tolerance.size}
        if tolerance.storage_class is not None:
            storage["storageClassName"] = tolerance.storage_class
        storage["deletionPolicy"] = "Retain" if tolerance.keep else "DeleteWithCluster"
        return {"backend": "rocksdb", "storage": storage}
    return None


def _head(plan: ClusterPlan, whys: Whys) -> Body:
    body = _pods(plan, plan.head, "headGroupSpec", whys)
    return {"serviceType": plan.cluster.head.service} | body


def _group(plan: ClusterPlan, group: GroupPlan, nodes: int, scales: bool, whys: Whys) -> Body:
    each = group.devices.pods_per_node
    sizes = (nodes, group.min_nodes, group.max_nodes) if scales else (nodes, nodes, nodes)
    body: Body = {"groupName": group.name}
    body |= dict(zip(("replicas", "minReplicas", "maxReplicas"), (size * each for size in sizes), strict=True))
    path = f"workerGroupSpecs.{group.name}"
    if each > 1:
        whys[f"{path}.replicas"] = f"{each} pods on each node"
    if not scales:
        whys[f"{path}.maxReplicas"] = "without the autoscaler the number is fixed; the operator wants all three"
    return body | _pods(plan, group, path, whys)


def _pods(plan: ClusterPlan, pod: PodPlan, path: str, whys: Whys) -> Body:
    params, reasons = ray_start_params(plan, pod)
    whys |= {f"{path}.rayStartParams.{name}": why for name, why in reasons.items()}
    body: Body = {"rayStartParams": params}
    if pod.spec.labels:
        body["labels"] = dict(pod.spec.labels)
        whys[f"{path}.labels"] = "known to Ray as node labels, for label selectors of tasks and actors"
    body["template"], reasons = template(plan, pod)
    whys |= {f"{path}.template.{name}": why for name, why in reasons.items()}
    return body
