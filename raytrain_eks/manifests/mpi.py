"""An MPIJob (kubeflow.org/v2beta1) on the pods of a worker group.

Rules that are easy to get wrong:
- v2beta1 starts ranks by ssh: workers run sshd, which the operator starts in them, and the image must have it.
- A process that sshd starts does not have the container's environment. mpirun hands variables on by `-x NAME`, with the
  value of the launcher, which therefore has the workers' variables; so no value, and no secret, stands in its command.
- A launcher that starts before its workers cannot resolve their names: `WaitForWorkersReady`.
- The launcher runs no rank and needs no device; it goes where the head goes.
"""

from collections.abc import Iterator

from raytrain_eks.manifests import names
from raytrain_eks.manifests.group_pod import GroupPod, group_pod, on_the_head
from raytrain_eks.manifests.literal import kept
from raytrain_eks.manifests.metadata import metadata
from raytrain_eks.manifests.object import Body, Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_hpc import Mpi
from raytrain_eks.spec.cluster_queue import Kueue, Volcano

SYSTEM = "mpi"
API = "kubeflow.org/v2beta1"
LAUNCHER = {"cpu": "1", "memory": "1Gi"}
QUEUE = "kueue.x-k8s.io/queue-name"
"""Kueue starts whatever has this label as soon as its quota is free, so a job that is to wait goes without it."""


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """The MPIJob; nothing without `mpi` in the file."""
    if (mpi := plan.cluster.mpi) is not None:
        yield mpi_job(plan, mpi)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """How it is started, and what the operator needs."""
    if (mpi := plan.cluster.mpi) is None:
        return
    queue = plan.cluster.queue
    if not mpi.start:
        job = f"-n {plan.cluster.namespace} mpijob {names.resource(plan.cluster.name, 'mpi')}"
        change = """'{"spec": {"runPolicy": {"suspend": false}}}'"""
        start = f"kubectl patch {job} --type merge -p {change}"
        if isinstance(queue, Kueue):
            start = f"kubectl label {job} {QUEUE}={queue.name}"
        yield f"the MPIJob waits, since it takes nodes; start it: {start}"
    if isinstance(queue, Volcano):
        yield "Volcano: the MPI operator must run with --gang-scheduling=volcano"
    if isinstance(queue, Kueue):
        yield "Kueue: its configuration must list the integration kubeflow.org/mpijob"


def chosen(plan: ClusterPlan, mpi: Mpi) -> GroupPlan:
    """The group whose pods run it."""
    return plan.groups[0] if mpi.group is None else plan.group(mpi.group)


def mpi_job(plan: ClusterPlan, mpi: Mpi) -> Object:
    """The job, with the reasons of its fields."""
    group = chosen(plan, mpi)
    pods, slots = (mpi.nodes or group.max_nodes) * group.devices.pods_per_node, _slots(group)
    parts = group_pod(plan, group)
    spec: Body = {
        "slotsPerWorker": slots,
        "sshAuthMountPath": mpi.ssh,
        "launcherCreationPolicy": "WaitForWorkersReady",
        "runPolicy": _policy(plan, mpi, pods),
        "mpiReplicaSpecs": {
            "Launcher": _replicas(1, _launcher(plan, mpi, group, parts, ranks=pods * slots)),
            "Worker": _replicas(pods, _worker(mpi, group, parts)),
        },
    }
    head = metadata(plan, names.resource(plan.cluster.name, "mpi"))
    if isinstance(plan.cluster.queue, Kueue) and mpi.start:
        head["labels"] = head["labels"] | {QUEUE: plan.cluster.queue.name}
    whys = {
        "spec.slotsPerWorker": "one rank for each accelerator of a pod, for each CPU where it has none",
        "spec.launcherCreationPolicy": "a launcher cannot resolve the names of workers that are not there",
        "spec.mpiReplicaSpecs.Launcher": "it runs no rank, so it asks for no device and goes where the head goes",
        "spec.mpiReplicaSpecs.Worker": f"the pods of the group {group.name}, with sshd instead of Ray",
        "spec.runPolicy.cleanPodPolicy": "workers end with the launcher; ended pods stay for their logs",
    }
    body = {"apiVersion": API, "kind": "MPIJob", "metadata": head, "spec": spec}
    return Object(SYSTEM, body, whys)


def _slots(group: GroupPlan) -> int:
    return group.devices.gpus or group.devices.neuron_cores or max(group.num_cpus, 1)


def _policy(plan: ClusterPlan, mpi: Mpi, pods: int) -> Body:
    queue = plan.cluster.queue
    policy: Body = {
        "cleanPodPolicy": "Running",
        "ttlSecondsAfterFinished": int(quantity.seconds(mpi.keep)),
        # Kueue takes it away when the quota is free.
        "suspend": isinstance(queue, Kueue) or not mpi.start,
    }
    if isinstance(queue, Volcano):
        scheduling: Body = {"queue": queue.name, "minAvailable": pods + 1}
        policy["schedulingPolicy"] = scheduling | ({"priorityClass": queue.priority} if queue.priority else {})
    return policy


def _replicas(count: int, template: Body) -> Body:
    return {"replicas": count, "restartPolicy": "Never", "template": template}


def _launcher(plan: ClusterPlan, mpi: Mpi, group: GroupPlan, parts: GroupPod, *, ranks: int) -> Body:
    variables = parts.container.get("env") or []
    command = ["mpirun", "-np", str(ranks), "--bind-to", "none", "--map-by", "slot"]
    for entry in variables:
        command += ["-x", entry["name"]]
    container: Body = {
        "name": "launcher",
        "image": mpi.image or group.image,
        "imagePullPolicy": plan.cluster.ray.pull_policy,
        "command": [*command, *map(kept, mpi.command)],
    }
    if variables:
        container["env"] = variables
    container["resources"] = {"requests": LAUNCHER, "limits": LAUNCHER}
    return {"spec": on_the_head(plan) | {"containers": [container]}}


def _worker(mpi: Mpi, group: GroupPlan, parts: GroupPod) -> Body:
    container = {"name": "worker", "image": mpi.image or group.image} | parts.container
    body: Body = {"metadata": parts.metadata} if parts.metadata else {}
    return body | {"spec": parts.spec | {"containers": [container]}}
