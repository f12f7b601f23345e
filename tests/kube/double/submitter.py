"""The Kubernetes Job that submits a RayJob, with its pods, and its log."""

from typing import TYPE_CHECKING

from double.kubelet import Kubelet, time_now
from double.podlogs import Log
from double.raycluster import CREATED_BY, MANAGER, owner
from double.store import Body

if TYPE_CHECKING:
    from double.api import ApiDouble

NAME = "ray-job-submitter"
CONTROLLER = "kube-controller-manager"


class Submitters:
    """Makes and ends them."""

    def __init__(self, api: "ApiDouble", kubelet: Kubelet):
        self.api = api
        self.kubelet = kubelet

    def create(self, job: Body, url: str) -> None:
        """The Job whose pod submits, and the pod that the Job controller makes."""
        meta = job["metadata"]
        if meta["name"] in self.api.objects.names("jobs.batch", meta["namespace"]):
            return
        template = job["spec"].get("submitterPodTemplate") or {"spec": {"containers": [{"name": NAME, "image": "ray"}]}}
        spec = {"restartPolicy": "Never", **template["spec"]}
        variables = [
            {"name": "RAY_DASHBOARD_ADDRESS", "value": url},
            {"name": "RAY_JOB_SUBMISSION_ID", "value": job["status"]["jobId"]},
        ]
        first = dict(spec["containers"][0])
        first["env"] = [*(first.get("env") or ()), *variables]
        spec["containers"] = [first, *spec["containers"][1:]]
        labels = {"ray.io/originated-from-cr-name": meta["name"], "ray.io/originated-from-crd": "RayJob"} | CREATED_BY
        del labels["app.kubernetes.io/name"]
        place = {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [owner(job)],
        }
        limit = (job["spec"].get("submitterConfig") or {}).get("backoffLimit", 2)
        inner = {"metadata": {"labels": labels}, "spec": spec}
        body = {"apiVersion": "batch/v1", "kind": "Job", "metadata": place}
        made = self.api.objects.put({**body, "spec": {"backoffLimit": limit, "template": inner}}, manager=MANAGER)
        text = f"Created Kubernetes Job {meta['namespace']}/{meta['name']}"
        self.api.event(job, "CreatedRayJobSubmitter", text, type="Normal", source="rayjob-controller")
        self._pod(made)

    def _pod(self, made: Body) -> Body:
        meta, template = made["metadata"], made["spec"]["template"]
        labels = {
            **template["metadata"]["labels"],
            "job-name": meta["name"],
            "batch.kubernetes.io/job-name": meta["name"],
        }
        place = {"generateName": f"{meta['name']}-", "namespace": meta["namespace"], "labels": labels}
        place["ownerReferences"] = [owner(made)]
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": place, "spec": template["spec"]}
        return self.api.objects.put(pod, manager=CONTROLLER)

    def pods(self, job: str, namespace: str = "training") -> list[Body]:
        """The pods that submit a RayJob, the oldest first."""
        found = [
            pod
            for pod in self.api.objects.all("pods", namespace)
            if (pod["metadata"].get("labels") or {}).get("job-name") == job
        ]
        return sorted(found, key=lambda pod: int(pod["metadata"]["resourceVersion"]))

    def log(self, job: Body) -> Log:
        """Where the driver's log is shown: the submitter's pod; without one, nowhere that Kubernetes knows."""
        meta = job["metadata"]
        pods = self.pods(meta["name"], meta["namespace"])
        return self.api.logs[f"{meta['namespace']}/{pods[-1]['metadata']['name']}"] if pods else Log()

    def end(self, job: Body, code: int) -> None:
        meta = job["metadata"]
        for pod in self.pods(meta["name"], meta["namespace"]):
            if pod["status"].get("phase") in ("Pending", "Running"):
                self.kubelet.ended(pod, code)
                self.api.logs[f"{meta['namespace']}/{pod['metadata']['name']}"].close()
        if meta["name"] in self.api.objects.names("jobs.batch", meta["namespace"]):
            made = self.api.objects.get("jobs.batch", meta["name"], meta["namespace"])
            condition = {"type": "Failed" if code else "Complete", "status": "True", "lastTransitionTime": time_now()}
            if code:
                text = "Job has reached the specified backoff limit"
                condition |= {"reason": "BackoffLimitExceeded", "message": text}
            self.api.objects.set_status(made, {"conditions": [condition]}, manager=CONTROLLER)
