"""The KubeRay operator as a script, with the scheduler, the kubelet and Kueue as far as a RayJob meets them.

    operator = Operator(api)               # with `start=OnRay(url, token)` entrypoints run for real
    operator.settle()                      # everything goes as far as it can now; `with operator:` does it by itself
    operator.clusters.blocked["a100"] = happenings.insufficient()    # pods of this group stay Pending
    operator.clusters.refused["a100"] = happenings.over_quota("p")   # pods of this group cannot be created
    operator.clusters.invalid["llm"] = "..."                         # of a RayCluster: only an Event tells
    operator.invalid["llm-1"] = "..."      # of a RayJob: ValidationFailed
    operator.kueue.full = happenings.kueue_no_quota()                # jobs with a Kueue label stay suspended
    operator.entry("llm-1").say("step 1/10"); operator.entry("llm-1").finish("FAILED")
    operator.lose(pod); operator.lose_cluster("llm-1")

The states and their order are those of v1.7, controllers/ray/rayjob_controller.go.
"""

import random
import threading
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from double.entrypoint import ENDED, Entrypoint, Scripted, Start
from double.kubelet import Kubelet, time_now
from double.kueue import QUEUE, Kueue
from double.raycluster import MANAGER, RayClusters, owner
from double.store import Body
from double.submitter import Submitters

if TYPE_CHECKING:
    from double.api import ApiDouble

FINALIZER = "ray.io/rayjob-finalizer"
_TERMINAL = ("Complete", "Failed")
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Operator:
    """Reconciles RayClusters and RayJobs of one API double."""

    def __init__(self, api: "ApiDouble", *, start: Start | None = None, dashboard: str | None = None):
        self.api = api
        self.kubelet = Kubelet(api)
        self.clusters = RayClusters(api, self.kubelet)
        self.clusters.dashboard = dashboard
        self.invalid: dict[str, str] = {}
        """RayJob -> what its validation finds."""
        self.kueue = Kueue(api)
        self.submitter = Submitters(api, self.kubelet)
        self.hold: set[str] = set()
        """RayJobs that stay as they are."""
        self.start: Start = start or (lambda job, log: Scripted(log))
        self.entries: dict[str, Entrypoint] = {}
        """Ray jobs by RayJob name."""
        self._heads: dict[str, str] = {}
        """RayJob name -> uid of the head pod that its Ray job runs on."""
        self._changed = threading.Event()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.RLock()
        self.error: BaseException | None = None
        """What ended the thread of `with operator:`."""

    def __enter__(self) -> "Operator":
        self.api.store.listeners.add(self._changed.set)
        self._thread = threading.Thread(target=self._run, name="kuberay-operator", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stopping.set()
        self._changed.set()
        assert self._thread is not None
        self._thread.join(timeout=300)
        self.api.store.listeners.discard(self._changed.set)
        if self.error is not None and exc[0] is None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._changed.wait(0.2)
                self._changed.clear()
                if not self._stopping.is_set():
                    self.settle()
        except BaseException as error:
            self.error = error

    def entry(self, job: str) -> Any:
        """The entrypoint of a RayJob, once it was submitted: `Scripted` unless the test starts real ones."""
        return self.entries[job]

    def submitters(self, job: str, namespace: str = "training") -> list[Body]:
        """The pods that submit a RayJob, the oldest first."""
        return self.submitter.pods(job, namespace)

    def settle(self) -> None:
        """Reconcile until nothing changes."""
        with self._lock:
            for _ in range(100):
                before = self.api.store.version
                for job in self.api.objects.all("rayjobs"):
                    if job["metadata"]["name"] not in self.hold:
                        self.reconcile(job)
                for cluster in self.api.objects.all("rayclusters"):
                    self.clusters.reconcile(cluster)
                if self.api.store.version == before:
                    return
        raise AssertionError("the operator does not come to rest")

    def lose(self, pod: Body, *, interrupted: bool = True) -> None:
        """A pod is lost with its node; the operator makes another."""
        self.kubelet.lost(pod, interrupted=interrupted)

    def lose_cluster(self, name: str, namespace: str = "training") -> None:
        """All pods of a RayJob's cluster are lost at once, and its Ray job with them: the submitter cannot go on."""
        with self._lock:
            job = self.api.objects.get("rayjobs", name, namespace)
            for pod in self._pods_of(job):
                self.kubelet.lost(pod)
            self._lost(job)

    def _pods_of(self, job: Body) -> list[Body]:
        meta, name = job["metadata"], job["status"].get("rayClusterName")
        return self.clusters.pods({"metadata": {"name": name, "namespace": meta["namespace"]}})

    def _head_of(self, job: Body) -> str:
        return next((pod["metadata"]["uid"] for pod in self._pods_of(job)), "")

    def _lost(self, job: Body) -> None:
        """The head is gone, and the Ray job with it: the submitter tries in vain."""
        entry = self.entries.pop(job["metadata"]["name"], None)
        if isinstance(entry, Scripted):
            entry.finish("FAILED", "Job supervisor actor died unexpectedly.")
        elif entry is not None:
            getattr(entry, "forget", entry.stop)()
        self.submitter.end(job, 1)
        text = "Job has reached the specified backoff limit"
        message = f"Job submission has failed. Reason: BackoffLimitExceeded. Message: {text}"
        self._set(job, jobDeploymentStatus="Failed", reason="SubmissionFailed", message=message)

    def reconcile(self, job: Body) -> None:
        """One round for a RayJob."""
        meta, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        if meta.get("deletionTimestamp"):
            return self._deleted(job)
        if meta["name"] in self.invalid:
            return self._invalid(job, self.invalid[meta["name"]])
        if QUEUE in (meta.get("labels") or {}) and status.get("jobDeploymentStatus") not in _TERMINAL:
            job = self.kueue.admit(job)
            spec = job["spec"]
        state = status.get("jobDeploymentStatus", "")
        if spec.get("suspend") and state in ("Initializing", "Running"):
            return self._set(job, jobDeploymentStatus="Suspending")
        match state:
            case "":
                self._initialise(job)
            case "Initializing":
                self._initialising(job)
            case "Running":
                self._running(job)
            case "Suspending" | "Retrying":
                self._release(job)
            case "Suspended":
                if not spec.get("suspend"):
                    self._set(job, jobStatus="", jobDeploymentStatus="")
            case "Complete" | "Failed":
                self._after(job)
        return None

    def _set(self, job: Body, **changes: Any) -> None:
        """Write the status; None takes a field out."""
        status = {**(job.get("status") or {}), **changes}
        if changes.get("jobDeploymentStatus") in _TERMINAL:
            status["endTime"] = time_now()
            self._count(job, status)
        status["observedGeneration"] = job["metadata"]["generation"]
        kept = {name: value for name, value in status.items() if value is not None}
        self.api.objects.set_status(job, kept, manager=MANAGER)

    def _count(self, job: Body, status: Body) -> None:
        status["failed"] = (status.get("failed") or 0) + (status["jobDeploymentStatus"] == "Failed")
        status["succeeded"] = (status.get("succeeded") or 0) + (status.get("jobStatus") == "SUCCEEDED")
        limit = job["spec"].get("backoffLimit") or 0
        again = status["jobDeploymentStatus"] == "Failed" and status["failed"] < limit + 1
        if again and status.get("reason") not in ("DeadlineExceeded", "JobStatusCheckTimeoutExceeded"):
            status["jobDeploymentStatus"] = "Retrying"
            del status["endTime"]

    def _tell(self, body: Body, reason: str, message: str, *, type: str = "Normal") -> None:
        self.api.event(body, reason, message, type=type, source="rayjob-controller")

    def _invalid(self, job: Body, message: str) -> None:
        if (job.get("status") or {}).get("message") == message:
            return
        meta = job["metadata"]
        text = f"{meta['namespace']}/{meta['name']}: {message}"
        self._tell(job, "InvalidRayJobSpec", text, type="Warning")
        self._set(job, jobDeploymentStatus="ValidationFailed", reason="ValidationFailed", message=message)

    def _initialise(self, job: Body) -> None:
        meta, spec, status = job["metadata"], job["spec"], job.get("status") or {}
        if FINALIZER not in (meta.get("finalizers") or ()):
            finalizers = [*(meta.get("finalizers") or ()), FINALIZER]
            job = self.api.objects.patch(job, {"metadata": {"finalizers": finalizers}}, manager=MANAGER)
        suffix = "".join(random.choices(_LETTERS, k=5))
        selected = (spec.get("clusterSelector") or {}).get("ray.io/cluster")
        self._set(
            job,
            jobId=status.get("jobId") or spec.get("jobId") or f"{meta['name']}-{suffix}",
            rayClusterName=status.get("rayClusterName") or selected or f"{meta['name']}-{suffix}",
            jobStatus="",
            jobDeploymentStatus="Initializing",
            startTime=time_now(),
        )

    def _initialising(self, job: Body) -> None:
        if self._past(job, "preRunningDeadlineSeconds"):
            seconds = job["spec"]["preRunningDeadlineSeconds"]
            text = f"The RayJob did not reach the Running state within {seconds} seconds (preRunningDeadlineSeconds)"
            return self._set(job, jobDeploymentStatus="Failed", reason="PreRunningDeadlineExceeded", message=text)
        cluster = self._cluster(job)
        if cluster is None:
            return None
        state = (cluster.get("status") or {}).get("state")
        if state != "ready":
            seen = cluster.get("status") or {}
            if seen and seen != job["status"].get("rayClusterStatus"):
                self._set(job, rayClusterStatus=seen)
            return None
        meta = cluster["metadata"]
        url = f"{meta['name']}-head-svc.{meta['namespace']}.svc.cluster.local:8265"
        if job["spec"].get("submissionMode", "K8sJobMode") == "K8sJobMode":
            self.submitter.create(job, url)
        self._set(job, dashboardURL=url, jobDeploymentStatus="Running", rayClusterStatus=cluster["status"])
        return None

    def _cluster(self, job: Body) -> Body | None:
        meta, spec = job["metadata"], job["spec"]
        name = job["status"]["rayClusterName"]
        if name in self.api.objects.names("rayclusters", meta["namespace"]):
            return self.api.objects.get("rayclusters", name, meta["namespace"])
        if spec.get("clusterSelector"):
            text = f"RayCluster {meta['namespace']}/{name} set in the clusterSelector is not found. "
            text += "It must be created manually"
            if not any(one["message"] == text for one in self.api.objects.all("events", meta["namespace"])):
                self._tell(job, "RayClusterNotFound", text, type="Warning")
            return None
        labels = {**(meta.get("labels") or {}), "ray.io/originated-from-cr-name": meta["name"]}
        labels |= {"ray.io/originated-from-crd": "RayJob"}
        labels.pop(QUEUE, None)
        place = {"name": name, "namespace": meta["namespace"], "labels": labels, "ownerReferences": [owner(job)]}
        place["annotations"] = dict(meta.get("annotations") or {})
        body = {
            "apiVersion": job["apiVersion"],
            "kind": "RayCluster",
            "metadata": place,
            "spec": spec["rayClusterSpec"],
        }
        made = self.api.objects.put(body, manager=MANAGER)
        self._tell(job, "CreatedRayCluster", f"Created RayCluster {meta['namespace']}/{name}")
        return made

    def _running(self, job: Body) -> None:
        if self._past(job, "activeDeadlineSeconds"):
            start, seconds = job["status"]["startTime"], job["spec"]["activeDeadlineSeconds"]
            text = (
                f"The RayJob has passed the activeDeadlineSeconds. StartTime: {start}. ActiveDeadlineSeconds: {seconds}"
            )
            self._stop(job)
            return self._set(job, jobDeploymentStatus="Failed", reason="DeadlineExceeded", message=text)
        meta = job["metadata"]
        if meta["name"] not in self.entries:
            for pod in self.submitter.pods(meta["name"], meta["namespace"]):
                if "submitter" in self.clusters.blocked:
                    self.kubelet.unschedulable(pod, self.clusters.blocked["submitter"])
                    return None
                self.kubelet.running(pod)
            self._heads[meta["name"]] = self._head_of(job)
            self.entries[meta["name"]] = self.start(job, self.submitter.log(job))
        if self._heads[meta["name"]] != self._head_of(job):
            return self._lost(job)
        state = self.entries[meta["name"]].state()
        changes: Body = {"jobStatus": state.status, "message": state.message}
        times = {"startTime": state.started, "endTime": state.ended}
        changes["rayJobInfo"] = {name: _time(value) for name, value in times.items() if value}
        if state.status in ENDED:
            self.submitter.log(job).close()
            self.submitter.end(job, 0 if state.status == "SUCCEEDED" else 1)
            failed = state.status == "FAILED"
            changes |= {"jobDeploymentStatus": "Failed" if failed else "Complete"}
            changes |= {"reason": "AppFailed"} if failed else {}
        if any(job["status"].get(name) != value for name, value in changes.items()):
            self._set(job, **changes)
        return None

    def _past(self, job: Body, field: str) -> bool:
        seconds, start = job["spec"].get(field), job["status"].get("startTime")
        if not seconds or not start:
            return False
        return (datetime.now(UTC) - datetime.fromisoformat(start)).total_seconds() > seconds

    def _stop(self, job: Body) -> None:
        entry = self.entries.pop(job["metadata"]["name"], None)
        if entry is not None and entry.state().status not in ENDED:
            entry.stop()

    def _remove(self, job: Body) -> None:
        """Cluster and submitter go."""
        meta, status = job["metadata"], job["status"]
        name = status.get("rayClusterName")
        if not job["spec"].get("clusterSelector") and name in self.api.objects.names("rayclusters", meta["namespace"]):
            self.api.objects.delete(self.api.objects.get("rayclusters", name, meta["namespace"]))
            self._tell(job, "DeletedRayCluster", f"Deleted cluster {meta['namespace']}/{name}")

    def _release(self, job: Body) -> None:
        meta = job["metadata"]
        self._stop(job)
        self._remove(job)
        if meta["name"] in self.api.objects.names("jobs.batch", meta["namespace"]):
            self.api.objects.delete(self.api.objects.get("jobs.batch", meta["name"], meta["namespace"]))
        state = "Suspended" if job["status"]["jobDeploymentStatus"] == "Suspending" else ""
        cleared = ("rayClusterStatus", "rayClusterName", "dashboardURL", "jobId", "message", "reason", "rayJobInfo")
        self._set(job, **dict.fromkeys(cleared), jobStatus="", jobDeploymentStatus=state)

    def _deleted(self, job: Body) -> None:
        self._stop(job)
        left = [name for name in job["metadata"].get("finalizers") or () if name != FINALIZER]
        if left != job["metadata"].get("finalizers"):
            self.api.objects.patch(job, {"metadata": {"finalizers": left}}, manager=MANAGER)

    def _after(self, job: Body) -> None:
        """What goes after the end: the cluster, at once or later (`shutdownAfterJobFinishes`, deletion rules)."""
        spec, status = job["spec"], job["status"]
        ended = datetime.fromisoformat(status["endTime"]).timestamp()
        if spec.get("shutdownAfterJobFinishes") and time.time() >= ended + spec.get("ttlSecondsAfterFinished", 0):
            self._remove(job)
        for rule in (spec.get("deletionStrategy") or {}).get("deletionRules") or ():
            when = rule["condition"]
            met = when.get("jobStatus") == status.get("jobStatus")
            met = met or when.get("jobDeploymentStatus") == status["jobDeploymentStatus"]
            if met and time.time() >= ended + when.get("ttlSeconds", 0):
                if rule["policy"] == "DeleteCluster":
                    self._remove(job)
                elif rule["policy"] == "DeleteSelf":
                    return self.api.objects.delete(job)
        return None


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
