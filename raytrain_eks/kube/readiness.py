"""When an object that was applied is ready, and why it is not yet.

A kind that is not in the table is ready when it exists. Only what cannot get better by itself is hopeless: a spec that
its operator refuses, or that AWS refuses.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import pods
from raytrain_eks.kube.client import event_time
from raytrain_eks.kube.reasons import Sentence, explain

if TYPE_CHECKING:
    from raytrain_eks.kube.apply import Result
    from raytrain_eks.kube.client import Client

Body = Mapping[str, Any]
WORKLOAD = ("kueue.x-k8s.io/v1beta2", "Workload")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0


@dataclass(frozen=True)
class State:
    """How far an object is."""

    ready: bool
    text: str = ""
    """Why it is not ready, as a sentence without a full stop."""
    fix: str = ""
    hopeless: bool = False
    """It does not get better by waiting."""


READY = State(True)


def state(client: "Client", body: Body) -> State:
    """How far an object is, as the API has it now. Raises KubeError."""
    found = _RULES.get((str(body["apiVersion"]).rpartition("/")[0], str(body["kind"])))
    return found(client, body) if found is not None else READY


def wait(
    client: "Client", applied: Sequence["Result"], seconds: float, say: Callable[[str], None] = lambda text: None
) -> list[tuple["Result", State]]:
    """Wait until all are ready; what is not after so many seconds, or never will be, each with its reason.

    `say` gets a line whenever the reason of an object changes. Raises KubeError.
    """
    end = time.monotonic() + seconds
    waiting = {(each.api_version, each.kind, each.namespace, each.name): each for each in applied}
    told: dict[Any, str] = {}
    pause = FIRST_PAUSE_S
    while True:
        open_ = list(_open(client, waiting, told, say))
        hopeless = [each for each in open_ if each[1].hopeless]
        if not open_ or hopeless or time.monotonic() + pause > end:
            return hopeless or open_
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _open(
    client: "Client", waiting: dict[Any, "Result"], told: dict[Any, str], say: Callable[[str], None]
) -> Iterator[tuple["Result", State]]:
    for key, each in list(waiting.items()):
        live = client.find(each.api_version, each.kind, each.name, each.namespace)
        found = state(client, live) if live is not None else State(False, "somebody deleted it", hopeless=True)
        if found.ready:
            del waiting[key]
            if key in told:
                say(f"{each.key} is ready")
            continue
        if told.get(key) != found.text:
            told[key] = found.text
            say(f"waiting for {each.key}: {found.text}")
        yield each, found


def _condition(body: Body, type: str) -> Body | None:
    conditions = (body.get("status") or {}).get("conditions") or []
    return next((each for each in conditions if each.get("type") == type), None)


def _by_condition(type: str, who: str) -> Callable[["Client", Body], State]:
    """Ready when a condition is True; `who` sets it."""

    def rule(client: "Client", body: Body) -> State:
        found = _condition(body, type)
        if found is None:
            return State(False, f"{who} has not looked at it yet; does it run?")
        if found["status"] == "True":
            return READY
        said = explain(str(found.get("reason") or ""), str(found.get("message") or ""), str(body["kind"]))
        return State(False, said.text or f"{type} is {found['status']}", said.fix)

    return rule


def _of_aws(client: "Client", body: Body) -> State:
    """Objects of AWS Controllers for Kubernetes."""
    terminal = _condition(body, "ACK.Terminal")
    if terminal is not None and terminal["status"] == "True":
        said = explain("ACK.Terminal", str(terminal.get("message") or ""), str(body["kind"]))
        return State(False, said.text, said.fix, hopeless=True)
    synced = _condition(body, "ACK.ResourceSynced")
    if synced is None:
        return State(False, "its ACK controller has not looked at it yet; does it run?")
    if synced["status"] == "True":
        return READY
    held = _condition(body, "ACK.Recoverable") or synced
    return State(False, str(held.get("message") or held.get("reason") or "AWS is making it"))


def _namespace(client: "Client", body: Body) -> State:
    phase = (body.get("status") or {}).get("phase", "Active")
    return READY if phase == "Active" else State(False, f"it is {phase}", hopeless=phase == "Terminating")


def _daemons(client: "Client", body: Body) -> State:
    status = body.get("status") or {}
    if status.get("observedGeneration", 0) < body["metadata"].get("generation", 1):
        return State(False, "its controller has not seen it yet")
    wanted, there = int(status.get("desiredNumberScheduled") or 0), int(status.get("numberReady") or 0)
    return READY if there >= wanted else State(False, f"{there} of {wanted} nodes have it running")


def _claim(client: "Client", body: Body) -> State:
    if (body.get("status") or {}).get("phase") == "Bound":
        return READY
    last = next(iter(reversed(client.events(body))), None)
    if last is None:
        return READY if _late(client, body) else State(False, "it is not bound")
    if last["reason"] == "WaitForFirstConsumer":
        return READY
    said = explain(str(last["reason"]), str(last.get("message") or ""), "PersistentVolumeClaim")
    return State(False, said.text, said.fix)


def _late(client: "Client", body: Body) -> bool:
    """Whether the claim is bound only when the first pod uses it."""
    name = (body.get("spec") or {}).get("storageClassName")
    found = client.find("storage.k8s.io/v1", "StorageClass", name) if name else None
    return found is not None and found.get("volumeBindingMode") == "WaitForFirstConsumer"


def _volume(client: "Client", body: Body) -> State:
    status = body.get("status") or {}
    phase = status.get("phase")
    if phase in ("Available", "Bound"):
        return READY
    return State(False, f"it is {phase}: {status['message']}" if status.get("message") else f"it is {phase or 'new'}")


def _volcano_queue(client: "Client", body: Body) -> State:
    phase = (body.get("status") or {}).get("state")
    return (
        READY if phase == "Open" else State(False, f"Volcano has it as {phase}" if phase else "Volcano has not seen it")
    )


def _ray_cluster(client: "Client", body: Body) -> State:
    status, metadata = body.get("status") or {}, body["metadata"]
    seen = int(status.get("observedGeneration") or 0) >= int(metadata.get("generation") or 1)
    if not seen:
        # A spec that the operator refuses leaves no trace in the status, only an Event. One that it takes leaves none
        # either, unless something else in the status changes with it (KubeRay, InconsistentRayClusterStatus).
        refused = _refused(client, body)
        if refused is not None:
            return refused
        if status.get("desiredWorkerReplicas") != _workers(body):
            return State(False, "the KubeRay operator has not taken it up yet; does it run?")
    if (body.get("spec") or {}).get("suspend") or status.get("state") == "suspended":
        said = _in_queue(client, metadata) or explain("RayClusterSuspended")
        return State(False, said.text, said.fix)
    failure = _condition(body, "ReplicaFailure")
    if failure is not None and failure["status"] == "True":
        said = explain(str(failure.get("reason") or ""), str(failure.get("message") or ""), "RayCluster")
        return State(False, said.text, said.fix)
    if status.get("state") == "ready":
        return READY
    return _pods_of(client, metadata)


def _workers(body: Body) -> int:
    """Worker pods that a RayCluster asks for (KubeRay, CalculateDesiredReplicas)."""
    wanted = 0
    for group in (body.get("spec") or {}).get("workerGroupSpecs") or ():
        if not group.get("suspend"):
            least, most = group.get("minReplicas") or 0, group.get("maxReplicas", 2**31 - 1)
            wanted += min(max(group.get("replicas") or 0, least), most) * group.get("numOfHosts", 1)
    return wanted


def _in_queue(client: "Client", metadata: Body) -> Sentence | None:
    """Kueue's word on why it holds an object."""
    if not client.serves(*WORKLOAD):
        return None
    for workload in client.list(*WORKLOAD, metadata.get("namespace")):
        owners = workload["metadata"].get("ownerReferences") or []
        held = _condition(workload, "QuotaReserved")
        if held is not None and held["status"] != "True" and metadata.get("uid") in [each["uid"] for each in owners]:
            return explain(str(held.get("reason") or "Pending"), str(held.get("message") or ""), "Workload")
    return None


def _refused(client: "Client", body: Body) -> State | None:
    managers = body["metadata"].get("managedFields") or []
    since = max((str(each.get("time") or "").removesuffix("Z") for each in managers), default="")
    for event in reversed(client.events(body)):
        if str(event.get("reason")).startswith("InvalidRayCluster") and event_time(event) >= since:
            said = explain(str(event["reason"]), str(event.get("message") or ""), "RayCluster")
            return State(False, said.text, said.fix, hopeless=True)
    return None


def _pods_of(client: "Client", metadata: Body) -> State:
    found = client.list("v1", "Pod", metadata.get("namespace"), labels=f"ray.io/cluster={metadata['name']}")
    open_ = [pod for pod in found if not pods.ready(pod)]
    # The head first: nothing works without it.
    open_.sort(key=lambda pod: (pod["metadata"].get("labels") or {}).get("ray.io/node-type") != "head")
    for pod in open_:
        said = pods.why_pending(client, pod)
        if said is not None:
            return State(False, f"pod {pod['metadata']['name']}: {said.text}", said.fix)
    if open_:
        return State(False, f"pod {open_[0]['metadata']['name']} is starting")
    return State(False, "its head is not there yet")


def _ray_job(client: "Client", body: Body) -> State:
    status = body.get("status") or {}
    if status.get("jobDeploymentStatus") == "ValidationFailed":
        said = explain("ValidationFailed", str(status.get("message") or ""), "RayJob")
        return State(False, said.text, said.fix, hopeless=True)
    return READY if status.get("jobDeploymentStatus") else State(False, "the KubeRay operator has not taken it up yet")


_ACK = {
    ("fsx.services.k8s.aws", "FileSystem"): _of_aws,
    ("ec2.services.k8s.aws", "LaunchTemplate"): _of_aws,
    ("eks.services.k8s.aws", "Nodegroup"): _of_aws,
}
_RULES: dict[tuple[str, str], Callable[["Client", Body], State]] = {
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "PersistentVolume"): _volume,
    ("apps", "DaemonSet"): _daemons,
    ("karpenter.k8s.aws", "EC2NodeClass"): _by_condition("Ready", "Karpenter"),
    ("karpenter.sh", "NodePool"): _by_condition("Ready", "Karpenter"),
    ("kueue.x-k8s.io", "ClusterQueue"): _by_condition("Active", "Kueue"),
    ("kueue.x-k8s.io", "LocalQueue"): _by_condition("Active", "Kueue"),
    ("scheduling.volcano.sh", "Queue"): _volcano_queue,
    ("ray.io", "RayCluster"): _ray_cluster,
    ("ray.io", "RayJob"): _ray_job,
    **_ACK,
}
