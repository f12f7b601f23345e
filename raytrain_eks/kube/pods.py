"""Why a pod does not run: from its status first, then from the Events about it."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.reasons import Sentence, explain

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

_TELLING = ("FailedScheduling", "FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox", "Unhealthy")
"""Events that say more than a pod's own status does."""
_VAGUE = ("ContainerCreating", "PodInitializing")


def ready(pod: Mapping[str, Any]) -> bool:
    """Whether a pod takes requests."""
    return any(each["type"] == "Ready" and each["status"] == "True" for each in _conditions(pod))


def trouble(pod: Mapping[str, Any], events: Sequence[Mapping[str, Any]] = ()) -> Sentence | None:
    """Why a pod does not run, in a sentence; None when it runs, or nothing is known against it.

    `events` are those about it, the oldest first (`Client.events`).
    """
    status = pod.get("status") or {}
    if status.get("reason"):
        return explain(str(status["reason"]), str(status.get("message") or ""), "Pod")
    for each in _conditions(pod):
        if each["type"] == "PodScheduled" and each["status"] == "False":
            return _unscheduled(each, events)
    found = [sentence for container in _containers(status) if (sentence := _container(container)) is not None]
    vague = all(each.reason in _VAGUE for each in found)
    if found and not vague:
        return next(each for each in found if each.reason not in _VAGUE)
    told = next((each for each in reversed(events) if each.get("reason") in _TELLING), None)
    if told is not None and not ready(pod) and told["reason"] != "FailedScheduling":
        return explain(str(told["reason"]), str(told.get("message") or ""), "Pod")
    return found[0] if found else None


def why_pending(client: "Client", pod: Mapping[str, Any]) -> Sentence | None:
    """`trouble`, with the Events asked for only where the status does not say it. Raises KubeError."""
    if ready(pod):
        return None
    return trouble(pod, client.events({"kind": "Pod", **pod}))


def _unscheduled(condition: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> Sentence:
    """Karpenter's word on it, or its node in preparation, tells more than the scheduler's."""
    last = next((each for each in reversed(events) if _by_karpenter(each)), None)
    if last is not None:
        return explain(str(last["reason"]), str(last.get("message") or ""), "Pod")
    return explain(str(condition.get("reason") or "Unschedulable"), str(condition.get("message") or ""), "Pod")


def _by_karpenter(event: Mapping[str, Any]) -> bool:
    source = str((event.get("source") or {}).get("component") or event.get("reportingComponent") or "")
    return "karpenter" in source and event.get("reason") in ("FailedScheduling", "Nominated")


def _container(status: Mapping[str, Any]) -> Sentence | None:
    state, last = status.get("state") or {}, (status.get("lastState") or {}).get("terminated") or {}
    if waiting := state.get("waiting"):
        if waiting.get("reason") == "CrashLoopBackOff" and last.get("reason") == "OOMKilled":
            return explain("OOMKilled", str(last.get("message") or ""), "Pod")
        return explain(str(waiting.get("reason") or "ContainerCreating"), str(waiting.get("message") or ""), "Pod")
    ended = state.get("terminated")
    if ended and ended.get("exitCode"):
        code = f"container {status.get('name')} ended with exit code {ended['exitCode']}"
        reason = str(ended.get("reason") or "Error")
        return explain(reason, str(ended.get("message") or code), "Pod")
    return None


def _containers(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [*(status.get("initContainerStatuses") or []), *(status.get("containerStatuses") or [])]


def _conditions(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return list((pod.get("status") or {}).get("conditions") or [])
