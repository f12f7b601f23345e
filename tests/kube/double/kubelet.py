"""Pods as scheduler and kubelet move them: pending with a reason, starting, running, ended, lost."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from double.store import Body

if TYPE_CHECKING:
    from double.api import ApiDouble

MANAGER = "kubelet"


def time_now() -> str:
    """The time as a status has it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _condition(kind: str, status: str, **more: str) -> Body:
    return {"type": kind, "status": status, "lastTransitionTime": time_now(), **more}


class Kubelet:
    """Writes pods' status and the events that go with it. A pod is named by its body or by `namespace/name`."""

    def __init__(self, api: "ApiDouble"):
        self.api = api
        self._addresses = 0

    def unschedulable(self, pod: Body, message: str, *, source: str = "default-scheduler") -> Body:
        """No node takes the pod; told once per message."""
        known = [one.get("message") for one in pod.get("status", {}).get("conditions") or ()]
        if message not in known:
            self.api.event(pod, "FailedScheduling", message, source=source)
        condition = _condition("PodScheduled", "False", reason="Unschedulable", message=message)
        return self._status(pod, {"phase": "Pending", "conditions": [condition], "qosClass": "Guaranteed"})

    def waiting(self, pod: Body, reason: str, message: str = "", *, node: str = "") -> Body:
        """On a node, and its first container does not start: `ContainerCreating`, `ImagePullBackOff`,
        `CreateContainerConfigError`, `CrashLoopBackOff`."""
        pod = self._placed(pod, node)
        container = pod["spec"]["containers"][0]
        state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
        image = container.get("image", "")
        if reason == "ImagePullBackOff":
            state["waiting"]["message"] = f'Back-off pulling image "{image}": ErrImagePull: {message}'
            self._event(pod, "Pulling", f'Pulling image "{image}"', type="Normal")
            self._event(pod, "Failed", f'Failed to pull image "{image}": {message}')
            self._event(pod, "Failed", "Error: ErrImagePull")
            self._event(pod, "BackOff", f'Back-off pulling image "{image}"', type="Normal")
            self._event(pod, "Failed", "Error: ImagePullBackOff")
        elif reason == "CrashLoopBackOff":
            self._event(pod, "BackOff", f"Back-off restarting failed container {container['name']} in pod")
        status = {"name": container["name"], "ready": False, "restartCount": 0, "state": state, "image": image}
        return self._status(
            pod, {"phase": "Pending", "containerStatuses": [{**status, "imageID": ""}], **self._on(pod)}
        )

    def running(self, pod: Body, *, node: str = "", restarts: int = 0) -> Body:
        """Every container runs and is ready."""
        pod = self._placed(pod, node)
        statuses = [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": f"{container.get('image', '')}@sha256:{'0' * 64}",
                "ready": True,
                "started": True,
                "restartCount": restarts,
                "state": {"running": {"startedAt": time_now()}},
            }
            for container in pod["spec"]["containers"]
        ]
        self._addresses += 1
        where = {"podIP": f"10.0.{self._addresses // 250}.{self._addresses % 250 + 1}", "startTime": time_now()}
        status = {"phase": "Running", "containerStatuses": statuses, **where, **self._on(pod, ready=True)}
        return self._status(pod, status)

    def ended(self, pod: Body, code: int = 0, *, reason: str = "", message: str = "") -> Body:
        """The first container has ended, and with it the pod: `OOMKilled` has code 137."""
        container = pod["spec"]["containers"][0]
        reason = reason or ("Error" if code else "Completed")
        ended = {"exitCode": code, "reason": reason, "startedAt": time_now(), "finishedAt": time_now()}
        ended |= {"message": message} if message else {}
        status = {"name": container["name"], "ready": False, "restartCount": 0, "image": container.get("image", "")}
        status |= {"imageID": "", "state": {"terminated": ended}}
        phase = "Failed" if code else "Succeeded"
        return self._status(pod, {**pod.get("status", {}), "phase": phase, "containerStatuses": [status]})

    def evicted(self, pod: Body, message: str = "The node was low on resource: memory.") -> Body:
        """Put off its node."""
        self._event(pod, "Evicted", message)
        status = {**pod.get("status", {}), "phase": "Failed", "reason": "Evicted", "message": message}
        return self._status(pod, status)

    def lost(self, pod: Body, *, interrupted: bool = True) -> None:
        """The pod's node is gone, and the pod with it; on spot with the two minutes' notice that Karpenter tells."""
        if interrupted:
            self.api.event(pod, "TaintManagerEviction", "Marking for deletion Pod", source="taint-eviction-controller")
            claim = pod["spec"].get("nodeName", "node")
            self.api.event(pod, "Evicted", f"Evicted pod: Spot Interruption of {claim}", source="karpenter")
        self.api.objects.delete(pod)

    def _placed(self, pod: Body, node: str) -> Body:
        if pod["spec"].get("nodeName"):
            return pod
        self._addresses += 1
        node = node or f"ip-10-0-0-{self._addresses}.us-west-2.compute.internal"
        meta = pod["metadata"]
        text = f"Successfully assigned {meta['namespace']}/{meta['name']} to {node}"
        self.api.event(pod, "Scheduled", text, type="Normal", source="default-scheduler")
        return self.api.objects.patch(pod, {"spec": {"nodeName": node}}, manager="kube-scheduler")

    def _on(self, pod: Body, *, ready: bool = False) -> Body:
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        more = {} if ready else {"reason": "ContainersNotReady"}
        names = ", ".join(one["name"] for one in pod["spec"]["containers"])
        more |= {} if ready else {"message": f"containers with unready status: [{names}]"}
        conditions = [
            _condition(
                kind,
                "True" if ready or kind == "Initialized" else "False",
                **(more if "Ready" in kind and kind != "PodReadyToStartContainers" else {}),
            )
            for kind in kinds
        ]
        return {"conditions": [*conditions, _condition("PodScheduled", "True")], "hostIP": "10.0.0.1"}

    def _event(self, pod: Body, reason: str, message: str, *, type: str = "Warning") -> None:
        self.api.event(pod, reason, message, type=type, source="kubelet")

    def _status(self, pod: Body, status: dict[str, Any]) -> Body:
        return self.api.objects.set_status(pod, status, manager=MANAGER)
