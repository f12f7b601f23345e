"""What the KubeRay operator makes of a RayCluster (v1.7, controllers/ray/raycluster_controller.go): a head service,
a head pod, worker pods, and the status."""

from decimal import Decimal
from typing import TYPE_CHECKING

from double import refusal
from double.kubelet import Kubelet, time_now
from double.store import Body
from raytrain_eks.spec.quantity import parse

if TYPE_CHECKING:
    from double.api import ApiDouble

MANAGER = "kuberay-operator"
CREATED_BY = {"app.kubernetes.io/created-by": MANAGER, "app.kubernetes.io/name": "kuberay"}
PORTS = {"gcs-server": 6379, "client": 10001, "dashboard": 8265, "metrics": 8080, "serve": 8000}
TOKEN_KEY = "auth_token"


def owner(body: Body) -> Body:
    """The reference to the object that owns another."""
    meta = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


class RayClusters:
    """Reconciles RayClusters. `blocked` and `refused` are what a test has set."""

    def __init__(self, api: "ApiDouble", kubelet: Kubelet):
        self.api = api
        self.kubelet = kubelet
        self.blocked: dict[str, str] = {}
        """Group (`head` for the head) -> why its pods find no node."""
        self.refused: dict[str, str] = {}
        """Group -> why its pods cannot be created at all, a quota mostly."""
        self.invalid: dict[str, str] = {}
        """Name -> what the operator finds wrong with the spec; it only tells an event then."""
        self.token = "double-ray-token"
        """What the Secret of a cluster with token authentication holds."""
        self.dashboard: str | None = None
        """A job server that the services of all heads lead to."""

    def reconcile(self, cluster: Body) -> None:
        """One round."""
        meta, failure = cluster["metadata"], ""
        if meta.get("deletionTimestamp"):
            return
        if meta["name"] in self.invalid:
            of = f"{meta['namespace']}/{meta['name']}"
            text = f"The RayCluster spec is invalid {of}: {self.invalid[meta['name']]}"
            self._tell_once(cluster, "InvalidRayClusterSpec", text)
            return
        if cluster["spec"].get("suspend"):
            for pod in self.pods(cluster):
                self.api.objects.delete(pod)
        else:
            self._service(cluster)
            self._secret(cluster)
            failure = self._create_pods(cluster)
            for pod in self.pods(cluster):
                self._move(pod)
        self._write_status(cluster, failure)

    def pods(self, cluster: Body) -> list[Body]:
        """The pods of a cluster, the head first."""
        meta = cluster["metadata"]
        pods = self.api.objects.all("pods", meta["namespace"])
        mine = [pod for pod in pods if (pod["metadata"].get("labels") or {}).get("ray.io/cluster") == meta["name"]]
        return sorted(mine, key=lambda pod: (pod["metadata"]["labels"]["ray.io/node-type"], pod["metadata"]["name"]))

    def _tell_once(self, body: Body, reason: str, message: str) -> None:
        events = self.api.objects.all("events", body["metadata"]["namespace"])
        if not any(one["message"] == message for one in events):
            self.api.event(body, reason, message, source=f"{body['kind'].lower()}-controller")

    def _service(self, cluster: Body) -> None:
        meta = cluster["metadata"]
        name = f"{meta['name']}-head-svc"
        if name not in self.api.objects.names("services", meta["namespace"]):
            labels = {"ray.io/cluster": meta["name"], "ray.io/node-type": "head", **CREATED_BY}
            ports = [
                {"name": port, "port": number, "targetPort": number, "appProtocol": "tcp"}
                for port, number in PORTS.items()
            ]
            service = {"apiVersion": "v1", "kind": "Service", "spec": {"selector": labels, "ports": ports}}
            place = {
                "name": name,
                "namespace": meta["namespace"],
                "labels": labels,
                "ownerReferences": [owner(cluster)],
            }
            self.api.objects.put({**service, "metadata": place}, manager=MANAGER)
            text = f"Created service {meta['namespace']}/{name}"
            self.api.event(cluster, "CreatedService", text, type="Normal", source="raycluster-controller")
        if self.dashboard:
            for port in ("8265", "dashboard"):
                self.api.backends[f"{meta['namespace']}/{name}:{port}"] = self.dashboard

    def _secret(self, cluster: Body) -> None:
        options = cluster["spec"].get("authOptions") or {}
        meta = cluster["metadata"]
        if options.get("mode") != "token" or options.get("secretName"):
            return
        if meta["name"] not in self.api.objects.names("secrets", meta["namespace"]):
            place = {"name": meta["name"], "namespace": meta["namespace"], "ownerReferences": [owner(cluster)]}
            secret = {"apiVersion": "v1", "kind": "Secret", "metadata": place}
            self.api.objects.put({**secret, "stringData": {TOKEN_KEY: self.token}}, manager=MANAGER)

    def _create_pods(self, cluster: Body) -> str:
        """Pods that are missing; what the API said when it took one not."""
        there = [pod for pod in self.pods(cluster) if pod["status"].get("phase") not in ("Failed", "Succeeded")]
        for pod in self.pods(cluster):
            if pod not in there:
                self.api.objects.delete(pod)
        head = cluster["spec"]["headGroupSpec"]
        wanted = [("headgroup", "head", head, 1)]
        wanted += [
            (group["groupName"], "worker", group, desired(group))
            for group in cluster["spec"].get("workerGroupSpecs") or ()
        ]
        failure = ""
        for name, node, group, count in wanted:
            mine = [pod for pod in there if pod["metadata"]["labels"]["ray.io/group"] == name]
            for pod in mine[count:]:
                self.api.objects.delete(pod)
            for _ in range(count - len(mine)):
                failure = self._create_pod(cluster, name, node, group) or failure
        return failure

    def _create_pod(self, cluster: Body, group: str, node: str, spec: Body) -> str:
        meta = cluster["metadata"]
        kind = "Head" if node == "head" else "Worker"
        key = "head" if node == "head" else group
        template = spec["template"]
        labels = {**(template.get("metadata") or {}).get("labels", {}), "ray.io/is-ray-node": "yes", **CREATED_BY}
        labels |= {"ray.io/cluster": meta["name"], "ray.io/node-type": node, "ray.io/group": group}
        labels["ray.io/identifier"] = f"{meta['name']}-{node}"
        prefix = f"{meta['name']}-head-" if node == "head" else f"{meta['name']}-{group}-worker-"
        place = {"generateName": prefix, "namespace": meta["namespace"], "labels": labels}
        place["annotations"] = (template.get("metadata") or {}).get("annotations") or {}
        place["ownerReferences"] = [owner(cluster)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": template["spec"]}
        try:
            if key in self.refused:
                raise refusal.Refusal(403, "Forbidden", self.refused[key])
            made = self.api.objects.put(pod, manager=MANAGER)
        except refusal.Refusal as no:
            of = f"Failed to create {kind.lower()} Pod"
            of += f" for the cluster {meta['namespace']}/{meta['name']}" if node != "head" else f" {meta['namespace']}/"
            self._tell_once(cluster, f"FailedToCreate{kind}Pod", f"{of}, {no}")
            return f"FailedCreate{kind}Pod {no}"
        text = f"Created {kind.lower()} Pod {meta['namespace']}/{made['metadata']['name']}"
        self.api.event(cluster, f"Created{kind}Pod", text, type="Normal", source="raycluster-controller")
        return ""

    def _move(self, pod: Body) -> None:
        labels = pod["metadata"]["labels"]
        key = "head" if labels["ray.io/node-type"] == "head" else labels["ray.io/group"]
        waits = pod["status"].get("containerStatuses")
        if pod["status"].get("phase") != "Pending" or waits:
            return
        if key in self.blocked:
            self.kubelet.unschedulable(pod, self.blocked[key])
        else:
            self.kubelet.running(pod)

    def _write_status(self, cluster: Body, failure: str) -> None:
        old = cluster.get("status") or {}
        new = self._status(cluster, old, failure)
        kept = ("lastUpdateTime", "observedGeneration", "stateTransitionTimes")
        if {key: value for key, value in old.items() if key not in kept} != {
            key: value for key, value in new.items() if key not in kept
        }:
            self.api.objects.set_status(cluster, new, manager=MANAGER)

    def _status(self, cluster: Body, old: Body, failure: str) -> Body:
        pods = self.pods(cluster)
        workers = [pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "worker"]
        up = [pod for pod in workers if pod["status"].get("phase") == "Running"]
        groups = cluster["spec"].get("workerGroupSpecs") or []
        wanted = sum(desired(group) for group in groups)
        status: Body = {
            "observedGeneration": cluster["metadata"]["generation"],
            "readyWorkerReplicas": len(up),
            "availableWorkerReplicas": len(up),
            "desiredWorkerReplicas": wanted,
            "minWorkerReplicas": sum(group.get("minReplicas", 0) for group in groups),
            "maxWorkerReplicas": sum(group.get("maxReplicas", 0) for group in groups),
            **_resources(cluster, groups),
            "endpoints": {name: str(port) for name, port in PORTS.items()},
            "head": self._head(cluster, pods),
            "lastUpdateTime": time_now(),
        }
        running = bool(pods) and all(pod["status"].get("phase") == "Running" for pod in pods)
        if cluster["spec"].get("suspend") and not pods:
            status["state"] = "suspended"
        elif (running and len(pods) == wanted + 1 and not failure) or old.get("state"):
            status["state"] = "ready" if running and not failure else old.get("state")
        status["conditions"] = _conditions(cluster, old, pods, failure, running=running)
        times = dict(old.get("stateTransitionTimes") or {})
        if status.get("state") and status["state"] != old.get("state"):
            times[status["state"]] = time_now()
        return status | ({"stateTransitionTimes": times} if times else {})

    def _head(self, cluster: Body, pods: list[Body]) -> Body:
        found = {"serviceName": f"{cluster['metadata']['name']}-head-svc"}
        for pod in pods:
            if pod["metadata"]["labels"]["ray.io/node-type"] == "head":
                address = pod["status"].get("podIP", "")
                found |= {"podName": pod["metadata"]["name"], "podIP": address, "serviceIP": address}
        return {name: value for name, value in found.items() if value}


def desired(group: Body) -> int:
    """Worker pods of a group (`GetWorkerGroupDesiredReplicas`)."""
    if group.get("suspend"):
        return 0
    count = max(group.get("replicas") or 0, group.get("minReplicas") or 0)
    return int(min(count, group.get("maxReplicas", count)) * group.get("numOfHosts", 1))


def _resources(cluster: Body, groups: list[Body]) -> Body:
    total: dict[str, Decimal] = {"cpu": Decimal(0), "memory": Decimal(0), "gpu": Decimal(0)}
    for group, count in [(cluster["spec"]["headGroupSpec"], 1), *((group, desired(group)) for group in groups)]:
        for container in group["template"]["spec"]["containers"]:
            resources = container.get("resources") or {}
            for name, amount in {**(resources.get("limits") or {}), **(resources.get("requests") or {})}.items():
                key = "gpu" if name.endswith("/gpu") else name
                if key in total:
                    total[key] += parse(str(amount)) * count
    names = {"cpu": "desiredCPU", "memory": "desiredMemory", "gpu": "desiredGPU"}
    return {names[key]: str(int(value) if value == int(value) else value) for key, value in total.items()} | {
        "desiredTPU": "0"
    }


def _conditions(cluster: Body, old: Body, pods: list[Body], failure: str, *, running: bool) -> list[Body]:
    before = {one["type"]: one for one in old.get("conditions") or ()}
    head = next((pod for pod in pods if pod["metadata"]["labels"]["ray.io/node-type"] == "head"), None)
    suspended = bool(cluster["spec"].get("suspend")) and not pods
    found: dict[str, tuple[bool, str, str]] = {}
    if head is None:
        found["HeadPodReady"] = (False, "HeadPodNotFound", "Head Pod not found")
    elif head["status"].get("phase") == "Running":
        found["HeadPodReady"] = (True, "HeadPodRunningAndReady", "")
    else:
        found["HeadPodReady"] = (False, "Unknown", "")
    done = before.get("RayClusterProvisioned", {}).get("status") == "True" and not suspended
    if running or done:
        text = "All Ray Pods are ready for the first time"
        found["RayClusterProvisioned"] = (True, "AllPodRunningAndReadyFirstTime", text)
    else:
        text = "RayCluster has been suspended" if suspended else "RayCluster Pods are being provisioned for first time"
        found["RayClusterProvisioned"] = (False, "RayClusterPodsProvisioning", text)
    found["RayClusterSuspended"] = (suspended, "RayClusterSuspended", "")
    found["RayClusterSuspending"] = (False, "RayClusterSuspending", "")
    if failure:
        reason, _, text = failure.partition(" ")
        found["ReplicaFailure"] = (True, reason, text)
    return [
        {
            "type": kind,
            "status": str(status),
            "reason": reason,
            "message": text,
            "lastTransitionTime": before[kind]["lastTransitionTime"]
            if before.get(kind, {}).get("status") == str(status)
            else time_now(),
        }
        for kind, (status, reason, text) in found.items()
    ]
