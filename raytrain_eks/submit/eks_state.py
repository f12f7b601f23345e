"""A RayJob as a job: its phase in the words of Ray's job server, its exit code, its run. Pure.

Status fields: KubeRay 1.7, apis/ray/v1/rayjob_types.go and rayjob_controller.go.
"""

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from raytrain_eks.kube.reasons import explain
from raytrain_eks.submit.target import RUN, JobState, Phase
from raytrain_eks.submit.target import STORAGE as STORAGE_KEY

API, KIND = "ray.io/v1", "RayJob"
RUN_LABEL = "raytrain-eks/run"
STORAGE, FILE, CONTENT, WORKERS = (f"raytrain-eks/{word}" for word in ("storage", "job-file", "job", "workers"))
"""Annotations: where run folders are, the job file's name and its text, the workers as the plan counts them."""
CANCELLED = "raytrain-eks/cancelled"
"""Annotation: when somebody asked for the run's end."""
SUBMITTER_CONTAINER = "ray-job-submitter"

_EXIT = re.compile(r"exit code (-?\d+)")
_ENDS = {"SUCCEEDED": Phase.SUCCEEDED, "STOPPED": Phase.STOPPED, "FAILED": Phase.FAILED}


def job_state(body: Mapping[str, Any]) -> JobState:
    """The job of a RayJob object."""
    status, metadata, spec = body.get("status") or {}, body["metadata"], body["spec"]
    phase = _phase(body, str(status.get("jobDeploymentStatus") or ""), str(status.get("jobStatus") or ""))
    message, ran = str(status.get("message") or ""), status.get("rayJobInfo") or {}
    if phase is Phase.FAILED and status.get("reason") not in (None, "", "AppFailed"):
        message = _reason(str(status["reason"]), message, bool(ran.get("startTime")))
    told = _EXIT.search(message) if phase is Phase.FAILED and status.get("jobStatus") == "FAILED" else None
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    ours = {RUN: labels.get(RUN_LABEL), STORAGE_KEY: annotations.get(STORAGE)}
    return JobState(
        id=id_of(body),
        phase=phase,
        exit_code=int(told[1]) if told else None,
        message=message,
        entrypoint=str(spec.get("entrypoint") or ""),
        metadata={key: str(value) for key, value in ours.items() if value is not None},
        started=seconds(ran.get("startTime") or status.get("startTime") or metadata.get("creationTimestamp")),
        ended=seconds(ran.get("endTime") or status.get("endTime")),
        ran=bool(ran.get("startTime")),
    )


def _reason(reason: str, message: str, ran: bool) -> str:
    """Why the operator gave a job up. A pod that submits and follows ends like one that could not submit."""
    if reason == "SubmissionFailed" and ran:
        return "its cluster was lost, or could not be reached any more: the pod that follows the driver gave up"
    return explain(reason, message, KIND).text


def _phase(body: Mapping[str, Any], deployment: str, job: str) -> Phase:
    """Until the pod that submits has ended, a job that is over still runs: its log is not whole before."""
    if deployment in ("Failed", "ValidationFailed"):
        stopped = job == "STOPPED" or (cancelled(body) and job != "FAILED")
        return Phase.STOPPED if stopped else Phase.FAILED
    if deployment == "Complete":
        return _ENDS.get(job, Phase.SUCCEEDED)
    if deployment in ("Suspending", "Suspended"):
        return Phase.STOPPED if cancelled(body) else Phase.PENDING
    return Phase.RUNNING if job in ("RUNNING", *_ENDS) else Phase.PENDING


def id_of(body: Mapping[str, Any]) -> str:
    """The job's id: on its head's job server it is called so."""
    status = body.get("status") or {}
    return str(body["spec"].get("jobId") or status.get("jobId") or body["metadata"]["name"])


def cancelled(body: Mapping[str, Any]) -> bool:
    """Whether somebody asked for its end."""
    return CANCELLED in (body["metadata"].get("annotations") or {})


def seconds(time: object) -> float | None:
    """Seconds since the epoch of an API's time; None for none."""
    try:
        return datetime.fromisoformat(str(time)).timestamp() if time else None
    except ValueError:
        return None
