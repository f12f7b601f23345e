"""Volcano's Queue, or Kueue's ResourceFlavors, ClusterQueue and LocalQueue.

Rules that are easy to get wrong:
- Kueue admits a workload only when every resource that its pods ask for is covered, EFA interfaces included, and a
  resource belongs to one group of flavors: all flavors stand in one group and cover the same names, with zero for what
  a flavor's nodes lack.
- A flavor's `nodeTaints` keep out pods that do not tolerate them; its `nodeLabels` are added to the pods.
- The submitter pod of a RayJob (K8sJobMode) is a set of pods of its own (kueue, rayjob_controller.go) with no selector:
  the first flavor, without labels, is there for it; nothing else is small enough to fit in.
- A Volcano queue's `capability` limits what it names. Only accelerators are named, since Volcano adds the submitter's
  CPU and memory to what a job needs (kuberay, batchscheduler/volcano).
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from raytrain_eks.manifests import names
from raytrain_eks.manifests.ground import SUBMITTER_CPU, SUBMITTER_MEMORY, totals, written
from raytrain_eks.manifests.metadata import metadata, wide
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan, PodPlan
from raytrain_eks.spec.cluster_queue import Kueue, Volcano

SYSTEM = "queues"
KUEUE = "kueue.x-k8s.io/v1beta2"
ANYWHERE = "anywhere"


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """The queue's objects; none without a queue, or when it exists already."""
    queue = plan.cluster.queue
    if queue is None or not queue.create:
        return
    if isinstance(queue, Volcano):
        yield volcano_queue(plan, queue)
        return
    yield flavor(plan, None, queue)
    for pod in plan.pods:
        yield flavor(plan, pod, queue)
    yield cluster_queue(plan, queue)
    yield local_queue(plan, queue)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What the schedulers need that is not rendered."""
    queue = plan.cluster.queue
    if isinstance(queue, Volcano):
        yield "Volcano: the KubeRay operator must run with --batch-scheduler=volcano"
        if queue.topology is not None:
            yield (
                "network topology needs HyperNodes: let Volcano's controller discover them from the labels"
                " topology.k8s.aws/network-node-layer-1 to -3, which EKS puts on nodes"
            )
    if isinstance(queue, Kueue):
        yield "Kueue: its configuration must list the integrations ray.io/rayjob and ray.io/raycluster"
        if queue.topology is not None:
            yield f"Kueue: a Topology with the level {queue.topology} must exist, named as the label's last part"


def volcano_queue(plan: ClusterPlan, queue: Volcano) -> Object:
    """Volcano's queue, which belongs to the whole Kubernetes cluster."""
    capability = {name: written(name, amount) for name, amount in totals(plan).items() if name not in ("cpu", "memory")}
    spec: dict[str, Any] = {"weight": queue.weight, "reclaimable": queue.reclaimable}
    whys = {"spec.reclaimable": "off: another queue would take resources back by killing training pods"}
    if queue.reclaimable:
        whys = {"spec.reclaimable": "as the file says: other queues may take back what is above its part"}
    if capability:
        spec["capability"] = capability
        whys["spec.capability"] = "the accelerators of all groups at their most"
    body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": wide(plan, queue.name)}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def _flavor_name(plan: ClusterPlan, pod: PodPlan | None) -> str:
    return names.resource(plan.cluster.namespace, plan.cluster.name, pod.name if pod else ANYWHERE)


def flavor(plan: ClusterPlan, pod: PodPlan | None, queue: Kueue) -> Object:
    """The nodes of the head or of a group, towards Kueue; None: any node, for submitter pods."""
    body: dict[str, Any] = {
        "apiVersion": KUEUE,
        "kind": "ResourceFlavor",
        "metadata": wide(plan, _flavor_name(plan, pod)),
        "spec": {},
    }
    if pod is None:
        return Object(SYSTEM, body, {"": "submitter pods run anywhere; its quota is too small for anything else"})
    spec: dict[str, Any] = {"nodeLabels": dict(pod.node_selector)} if pod.node_selector else {}
    whys = {"spec.nodeLabels": "what the group's pods select, so that no other pods take this quota"}
    if pod.taints:
        spec["nodeTaints"] = [
            {key: value for key, value in taint.model_dump().items() if value} for taint in pod.taints
        ]
        whys["spec.nodeTaints"] = "only pods that tolerate the group's taints may use this quota"
    if queue.topology is not None and isinstance(pod, GroupPlan):
        spec["topologyName"] = queue.topology.rpartition("/")[2]
        whys["spec.topologyName"] = "all pods of a group within one value of the label"
    return Object(SYSTEM, body | {"spec": spec}, whys)


def cluster_queue(plan: ClusterPlan, queue: Kueue) -> Object:
    """The quota: what head and groups can use at most."""
    covered = list(totals(plan))
    flavors = [_quota(plan, None, covered, queue), *(_quota(plan, pod, covered, queue) for pod in plan.pods)]
    spec: dict[str, Any] = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": plan.cluster.namespace}},
        "queueingStrategy": "StrictFIFO",
        "resourceGroups": [{"coveredResources": covered, "flavors": flavors}],
        "preemption": {"withinClusterQueue": "LowerPriority" if queue.preempt else "Never"},
    }
    whys = {
        "spec.queueingStrategy": "a large job is not passed for ever by small ones behind it",
        "spec.resourceGroups": "every resource that the pods ask for; a missing one would keep every job out",
        "spec.preemption": "as `preempt` of the file says; the default never stops a running training",
    }
    if queue.cohort:
        spec["cohortName"] = queue.cohort
    body = {"apiVersion": KUEUE, "kind": "ClusterQueue", "metadata": wide(plan, _cluster_queue_name(plan, queue))}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def _quota(plan: ClusterPlan, pod: PodPlan | None, covered: list[str], queue: Kueue) -> dict[str, Any]:
    count = pod.max_pods if isinstance(pod, GroupPlan) else 1
    asked = {"cpu": SUBMITTER_CPU, "memory": SUBMITTER_MEMORY}
    if pod is not None:
        asked = {"cpu": pod.cpu, "memory": pod.memory}
        asked |= {name: Decimal(each) for name, each in pod.devices.resources}
    borrowed = queue.borrow_nodes * pod.devices.pods_per_node if isinstance(pod, GroupPlan) else 0
    resources = []
    for name in covered:
        each = asked.get(name, Decimal(0))
        entry = {"name": name, "nominalQuota": written(name, each * count)}
        resources.append(entry | ({"borrowingLimit": written(name, each * borrowed)} if queue.cohort else {}))
    return {"name": _flavor_name(plan, pod), "resources": resources}


def _cluster_queue_name(plan: ClusterPlan, queue: Kueue) -> str:
    return queue.cluster_queue or names.resource(plan.cluster.namespace, queue.name)


def local_queue(plan: ClusterPlan, queue: Kueue) -> Object:
    """The door in the cluster's namespace."""
    spec = {"clusterQueue": _cluster_queue_name(plan, queue)}
    body = {"apiVersion": KUEUE, "kind": "LocalQueue", "metadata": metadata(plan, queue.name), "spec": spec}
    return Object(SYSTEM, body, {"": "what the label kueue.x-k8s.io/queue-name of a job names"})
