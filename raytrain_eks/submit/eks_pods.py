"""The pods of a RayJob, and why it does not run yet: conditions, container states and Events as sentences.

A RayCluster's mistakes stand nowhere but in its Events (KubeRay, raycluster_controller.go), so those are read as well.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import KubeError
from raytrain_eks.kube.reasons import Sentence, explain
from raytrain_eks.submit.target import Pod

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Body, Client

CLUSTER_LABEL, TYPE_LABEL, GROUP_LABEL = "ray.io/cluster", "ray.io/node-type", "ray.io/group"
JOB_LABEL = "job-name"
"""The Job controller's label of the pods that submit; the Job has the RayJob's name."""
KUEUES = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
"""Versions of Kueue's kinds, the newer one first."""
VOLCANO = "scheduling.volcano.sh/v1beta1"
MOST = 8
"""Sentences that are told."""


def cluster_of(client: "Client", job: "Body") -> "Body | None":
    """The RayCluster that a RayJob runs in; None while there is none."""
    name = (job.get("status") or {}).get("rayClusterName") or (job["spec"].get("clusterSelector") or {}).get(
        CLUSTER_LABEL
    )
    return client.find("ray.io/v1", "RayCluster", name, job["metadata"]["namespace"]) if name else None


def submitters(client: "Client", job: "Body") -> "list[Body]":
    """The pods that submitted it, the oldest first."""
    metadata = job["metadata"]
    found = client.list("v1", "Pod", metadata["namespace"], labels=f"{JOB_LABEL}={metadata['name']}")
    return sorted(found, key=lambda pod: (pod["metadata"].get("creationTimestamp") or "", pod["metadata"]["name"]))


def pods_of(client: "Client", job: "Body") -> "list[Body]":
    """The pods of its own cluster, then those that submit. Of a cluster that is shared, only the latter."""
    name = (job.get("status") or {}).get("rayClusterName")
    own = name and not job["spec"].get("clusterSelector")
    found = (
        list(client.list("v1", "Pod", job["metadata"]["namespace"], labels=f"{CLUSTER_LABEL}={name}")) if own else []
    )
    head_first = sorted(found, key=lambda pod: (_role(pod) != "head", pod["metadata"]["name"]))
    return [*head_first, *submitters(client, job)]


def shown(pod: Mapping[str, Any]) -> Pod:
    """A pod on a line."""
    status = pod.get("status") or {}
    waiting = [found.text for found in states(pod)]
    phase = str(status.get("phase") or "Pending")
    if phase == "Running" and not all(each.get("ready") for each in status.get("containerStatuses") or []):
        phase = "Starting"
    return Pod(
        name=str(pod["metadata"]["name"]),
        role=_role(pod),
        phase="Ending" if pod["metadata"].get("deletionTimestamp") else phase,
        node=(pod.get("spec") or {}).get("nodeName"),
        restarts=sum(int(each.get("restartCount") or 0) for each in status.get("containerStatuses") or []),
        why=waiting[0] if waiting else None,
    )


def _role(pod: Mapping[str, Any]) -> str:
    labels = pod["metadata"].get("labels") or {}
    if labels.get(TYPE_LABEL) == "head":
        return "head"
    return str(labels.get(GROUP_LABEL) or labels.get(TYPE_LABEL) or "submit")


def states(pod: Mapping[str, Any]) -> Iterator[Sentence]:
    """What keeps a pod, by its own status."""
    status = pod.get("status") or {}
    for condition in status.get("conditions") or []:
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            reason = str(condition.get("reason") or "")
            yield explain(
                "FailedScheduling" if reason == "Unschedulable" else reason, condition.get("message") or "", "Pod"
            )
    for each in [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]:
        state = each.get("state") or {}
        waiting, ended = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            yield explain(str(waiting["reason"]), str(waiting.get("message") or ""), "Pod")
        # A plain `Error` says no more than that the program ended with it.
        if ended and ended.get("exitCode") and (ended.get("message") or ended.get("reason") not in (None, "Error")):
            yield explain(str(ended.get("reason") or "Error"), str(ended.get("message") or ""), "Pod")
    if status.get("reason"):
        yield explain(str(status["reason"]), str(status.get("message") or ""), "Pod")


def why(client: "Client", job: "Body", pods: "list[Body]") -> list[str]:
    """Why it does not run, each reason once, the most telling first; what may not be read is left out."""
    found: list[tuple[str, Sentence]] = []
    status = job.get("status") or {}
    if status.get("reason") or status.get("jobDeploymentStatus") == "ValidationFailed":
        reason = str(status.get("reason") or status["jobDeploymentStatus"])
        found.append(("", explain(reason, str(status.get("message") or ""), "RayJob")))
    found += [("", each) for each in _queues(client, job)]
    with contextlib.suppress(KubeError):
        for body in (job, cluster_of(client, job)):
            found += [("", each) for each in _events(client, body)] if body is not None else []
    for pod in pods:
        told = list(states(pod))
        if not told and _starts(pod):
            with contextlib.suppress(KubeError):
                told = list(_events(client, pod))
        found += [(_role(pod), each) for each in told]
    return _once(found)


def _starts(pod: Mapping[str, Any]) -> bool:
    return str((pod.get("status") or {}).get("phase") or "Pending") == "Pending"


def _events(client: "Client", body: "Body") -> Iterator[Sentence]:
    """The newest warning of each reason."""
    newest = {str(event.get("reason")): event for event in client.events(body) if event.get("type") == "Warning"}
    for reason, event in newest.items():
        yield explain(reason, str(event.get("message") or ""), str(body.get("kind") or "Pod"))


def _queues(client: "Client", job: "Body") -> Iterator[Sentence]:
    """Where it stands with Kueue or Volcano."""
    metadata = job["metadata"]
    labels, where = metadata.get("labels") or {}, metadata["namespace"]
    with contextlib.suppress(KubeError):
        if "kueue.x-k8s.io/queue-name" in labels:
            for workload in client.list(kueue(client), "Workload", where):
                owners = workload["metadata"].get("ownerReferences") or []
                if any(owner.get("uid") == metadata.get("uid") for owner in owners):
                    yield from _unmet(workload, "Workload", ("QuotaReserved", "Admitted"))
        if "volcano.sh/queue-name" in labels and (name := (job.get("status") or {}).get("rayClusterName")):
            group = client.find(VOLCANO, "PodGroup", f"ray-{name}-pg", where)
            yield from _unmet(group or {}, "PodGroup", ("Unschedulable",), when="True")


def kueue(client: "Client") -> str:
    """The version of Kueue's kinds that the API serves."""
    return next((version for version in KUEUES if client.serves(version, "LocalQueue")), KUEUES[0])


def _unmet(body: Mapping[str, Any], kind: str, types: tuple[str, ...], when: str = "False") -> Iterator[Sentence]:
    for condition in (body.get("status") or {}).get("conditions") or []:
        if condition.get("type") in types and condition.get("status") == when:
            yield explain(str(condition.get("reason") or condition["type"]), str(condition.get("message") or ""), kind)
            return


def _once(found: list[tuple[str, Sentence]]) -> list[str]:
    """Each sentence once, with the kinds of pods that it is about; errors before what may pass."""
    about: dict[str, tuple[Sentence, dict[str, int]]] = {}
    for role, sentence in found:
        if sentence.severity != "info":
            _, roles = about.setdefault(sentence.text, (sentence, {}))
            if role:
                roles[role] = roles.get(role, 0) + 1
    ordered = sorted(about.values(), key=lambda each: each[0].severity != "error")
    lines = []
    for sentence, roles in ordered[:MOST]:
        who = ", ".join(f"{count} x {role}" if count > 1 else role for role, count in roles.items())
        lines.append((f"{who}: " if who else "") + sentence.text + (f" ({sentence.fix})" if sentence.fix else ""))
    return lines
