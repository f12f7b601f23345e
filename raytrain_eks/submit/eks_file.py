"""What `--on eks` reads and writes beside the Kubernetes API: the job's cluster file, and the run's folder where it can
be reached from this machine."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raytrain_eks.checkpoint.run import JOB, RunFolder
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.submit.assemble import JobFile
from raytrain_eks.submit.eks_state import CONTENT, FILE, STORAGE, cancelled, job_state
from raytrain_eks.submit.errors import AlreadyComplete
from raytrain_eks.submit.target import Phase

if TYPE_CHECKING:
    from raytrain_eks.plan.cluster import ClusterPlan


def plan_of(job: Job, folder: Path, namespace: str | None) -> "ClusterPlan":
    """The plan of the job's cluster file; `namespace` wins over the file's. Raises SpecError."""
    from raytrain_eks.plan.cluster import resolve
    from raytrain_eks.spec.load import of_document, read_document

    if job.cluster is None:
        rule = "`--on eks` makes a cluster for the job, and the file names none"
        fix = "add `cluster: cluster_specs/...yaml`, or name a RayCluster that is there: --cluster NAME"
        raise SpecError([Problem(path="cluster", rule=rule, fix=fix)])
    path = folder / Path(os.path.expanduser(job.cluster))
    if not path.is_file():
        fix = "a relative path starts where `submit` is run"
        raise SpecError([Problem(path="cluster", value=job.cluster, rule=f"there is no such file ({path})", fix=fix)])
    document = read_document(str(path))
    cluster = of_document(document, expect="Cluster")
    if namespace is not None and namespace != cluster.namespace:
        cluster = cluster.model_copy(update={"namespace": namespace})
    return resolve(cluster, document=document)


def namespace_of(job: Job, folder: Path) -> str | None:
    """The namespace of the job's cluster file; None where it names none, or that cannot be read."""
    try:
        return plan_of(job, folder, None).cluster.namespace
    except (SpecError, OSError):
        return None


def of_rayjob(body: dict[str, Any]) -> JobFile | None:
    """The job file that a RayJob carries; None when it is not one of ours."""
    annotations = body["metadata"].get("annotations") or {}
    if CONTENT not in annotations:
        return None
    return JobFile.of(Path(annotations.get(FILE) or "job.yaml"), annotations[CONTENT].encode())


def newest_of(bodies: Iterable[dict[str, Any]], storage: str | None) -> dict[str, Any] | None:
    """The newest RayJob whose run's folder is in `storage` (None: anywhere); None for none."""
    same = [
        body
        for body in bodies
        if storage is None or (body["metadata"].get("annotations") or {}).get(STORAGE) == storage
    ]
    return max(same, key=lambda body: str(body["metadata"].get("creationTimestamp")), default=None)


def refuse_complete(file: JobFile, storage: str, earlier: Iterable[dict[str, Any]]) -> None:
    """Raises AlreadyComplete when the run is over and this file would not extend it: by its folder where that can be
    read, else by its newest RayJob. So no node is started to find it out."""
    if file.tiny:
        return
    name = file.job.name
    folder = RunFolder(storage, name)
    try:
        known = folder.identity() is not None
        summary = folder.summary() or {} if known else {}
        if known:
            if summary.get("status") == "complete" and _same(file, folder.storage.read(JOB)):
                raise AlreadyComplete(f"{name} is already complete, {summary.get('steps')} steps: {folder.url}")
            return
    except OSError:
        pass
    newest = newest_of(earlier, storage)
    if newest is None or job_state(newest).phase is not Phase.SUCCEEDED or cancelled(newest):
        return
    before = of_rayjob(newest)
    if before is not None and _same(file, before.content):
        raise AlreadyComplete(
            f"{name} is already complete, as RayJob {newest['metadata']['name']} says: {folder.url}\n"
            "  where that folder was removed, delete the RayJob as well, or change `name`"
        )


def _same(file: JobFile, content: bytes) -> bool:
    """Whether the run of a stored file ends where this one's does."""
    try:
        before = JobFile.of(Path(JOB), content)
    except SpecError:
        return False
    if file.sweep is not None or before.sweep is not None:
        return file.spec == before.spec
    return before.job.stop == file.job.stop and before.job.identity() == file.job.identity()


def request_stop(storage: str, run: str) -> bool:
    """Ask the workers of a run for a last checkpoint and the end, through its folder; False where that is not here."""
    from raytrain_eks.train import control

    folder = RunFolder(storage, run)
    try:
        if folder.identity() is None:
            return False
        control.request_stop(folder)
    except OSError:
        return False
    return True
