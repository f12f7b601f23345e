"""Kueue as far as a RayJob meets it: a Workload, and `spec.suspend`."""

from typing import TYPE_CHECKING

from double.kubelet import time_now
from double.raycluster import owner
from double.store import Body

if TYPE_CHECKING:
    from double.api import ApiDouble

QUEUE = "kueue.x-k8s.io/queue-name"


class Kueue:
    """One queue for everybody."""

    def __init__(self, api: "ApiDouble"):
        self.api = api
        self.full: str | None = None
        """Why nothing is admitted; None: everything is."""

    def admit(self, job: Body) -> Body:
        """A Workload beside the job, which is suspended until there is quota; the job as it is then."""
        meta = job["metadata"]
        name = f"rayjob-{meta['name']}-{meta['uid'][:5]}"
        if name not in self.api.objects.names("workloads", meta["namespace"]):
            job = self.api.objects.patch(job, {"spec": {"suspend": True}}, manager="kueue")
            head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
            pods = [{"name": "head", "count": 1, "template": {"spec": head["spec"]}}]
            place = {"name": name, "namespace": meta["namespace"], "ownerReferences": [owner(job)]}
            body = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": place}
            queue = meta["labels"][QUEUE]
            self.api.objects.put({**body, "spec": {"queueName": queue, "podSets": pods}}, manager="kueue")
        workload = self.api.objects.get("workloads", name, meta["namespace"])
        reserved = self.full is None
        reason, text = ("QuotaReserved", "Quota reserved in ClusterQueue") if reserved else ("Pending", self.full)
        condition = {"type": "QuotaReserved", "status": str(reserved), "reason": reason, "message": text}
        known = (workload.get("status") or {}).get("conditions") or [{}]
        if {key: known[0].get(key) for key in condition} != condition:
            conditions = [{**condition, "lastTransitionTime": time_now()}]
            if reserved:
                admitted = {
                    "type": "Admitted",
                    "status": "True",
                    "reason": "Admitted",
                    "message": "The workload is admitted",
                }
                conditions.append({**admitted, "lastTransitionTime": time_now()})
            else:
                self.api.event(workload, "Pending", str(text), type="Warning", source="kueue-admission")
            self.api.objects.set_status(workload, {"conditions": conditions}, manager="kueue")
        if bool(job["spec"].get("suspend")) == reserved:
            job = self.api.objects.patch(job, {"spec": {"suspend": not reserved}}, manager="kueue")
        return job
