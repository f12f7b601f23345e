"""The Kubernetes objects of a submission: the RayJob, and the ConfigMap that carries its code. Pure.

The RayJob is the record of the job on Kubernetes: its labels and annotations say which run it is an attempt of, where
the run's folder is and what the job file said, so that every verb works from another machine, too.
"""

import base64
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from raytrain_eks.lint import Settings, lint_objects, of_cluster
from raytrain_eks.manifests import external, names, storage
from raytrain_eks.manifests.bundle import build
from raytrain_eks.manifests.entrypoint import entrypoint, runtime_env, runtime_env_problems
from raytrain_eks.manifests.kuberay_cluster import API
from raytrain_eks.manifests.kuberay_job import BLOCK_TAIL, SUBMITTER, Work, ray_job
from raytrain_eks.manifests.metadata import MANAGED_BY
from raytrain_eks.manifests.object import Body
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.secret_names import reveals
from raytrain_eks.submit.eks_code import PACKED, UNPACK, UNPACKED, Code
from raytrain_eks.submit.eks_place import Place
from raytrain_eks.submit.eks_state import CONTENT, FILE, RUN_LABEL, STORAGE, SUBMITTER_CONTAINER, WORKERS
from raytrain_eks.submit.entrypoint import shell_line
from raytrain_eks.submit.target import STOP_GRACE_S, Submission
from raytrain_eks.submit.target import STORAGE as STORAGE_KEY

CONTENT_LIMIT = 128 * 1024
"""Bytes of a job file: annotations may have 256 KiB together (validation/objectmeta.go)."""


def secrets(job: Job) -> list[Problem]:
    """Variables that look like secrets: whoever may read RayJobs would read them."""
    found = []
    for name, value in job.environment.items():
        if reveals(name, value):
            rule = "looks like a secret, and everyone who may read RayJobs could read it"
            fix = f"keep it in a Secret and write `secrets: {{{name}: {{name: …, key: …}}}}` in the cluster file"
            found.append(Problem(path=f"environment.{name}", value="(not shown)", rule=rule, fix=fix))
    return found


def expanded(job: Job) -> list[Problem]:
    """Variables whose value the operator's submit script would change."""
    rule = "`$` and backticks do not survive the operator's submit script"
    fix = "write it under `environment` of the cluster file's head and workers"
    return [
        Problem(path=f"environment.{name}", value=value, rule=rule, fix=fix)
        for name, value in job.environment.items()
        if "$" in value or "`" in value
    ]


def objects(
    submission: Submission, place: Place, code: Code, *, content: bytes, kubernetes: str = "1.33", now: datetime
) -> list[Body]:
    """The ConfigMap, where there is one, and the RayJob. Raises SpecError for what the operator or the API would
    refuse, and for what lint knows cannot run."""
    if len(content) > CONTENT_LIMIT:
        rule = f"has {len(content)} bytes, and the RayJob that carries it takes {CONTENT_LIMIT}"
        raise SpecError([Problem(path="", rule=rule, file=submission.job_file)])
    job = _in_own(submission, place, code, now) if place.cluster is None else _in_existing(submission, place, code)
    job["spec"]["submitterPodTemplate"] = _submitter(job, place, code)
    metadata = job["metadata"]
    metadata["annotations"] = dict(metadata.get("annotations") or {}) | {
        STORAGE: submission.metadata[STORAGE_KEY],
        FILE: submission.job_file,
        CONTENT: content.decode("utf-8", "surrogateescape").encode("utf-8", "replace").decode(),
        WORKERS: str(place.workers),
    }
    found = [*([_config_map(job, code)] if code.mounted else []), job]
    _lint(found, place, kubernetes)
    return found


def _lint(bodies: list[Body], place: Place, kubernetes: str) -> None:
    """Beside everything else of the cluster file, since the job's pods refer to it. Raises SpecError."""
    settings, others = Settings(kubernetes=kubernetes), []
    if place.plan is not None:
        settings = of_cluster.settings(place.plan)
        awaited = {*external.declared(place.plan.cluster), *storage.awaited(place.plan)}
        settings = replace(settings, external=settings.external | {name.lower() for name in awaited})
        # A file's own RayCluster does not run beside the job's.
        others = [body for body in build(place.plan).bodies if body["kind"] != "RayCluster"]
    ours = {f"{body['kind']} {body['metadata']['namespace']}/{body['metadata']['name']}" for body in bodies}
    problems = [
        Problem(path=f"{each.object}: {each.path}", rule=f"{each.reason} ({each.rule})", fix=each.fix)
        for each in lint_objects([*others, *bodies], settings)
        if each.severity == "error" and each.object in ours
    ]
    if problems:
        raise SpecError(problems)


def command(submission: Submission) -> str:
    """What the cluster's shell runs, in the unpacked working directory."""
    return shell_line("python", submission.job_file, submission.options, script=submission.script)


def environment_of(submission: Submission, code: Code) -> dict[str, Any]:
    """The runtime environment of the driver and its workers."""
    # The supervisor of a job reads the time between SIGTERM and SIGKILL from its own environment.
    variables = submission.environment | {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_GRACE_S)}
    return {"working_dir": code.uri, "env_vars": variables}


def _in_own(submission: Submission, place: Place, code: Code, now: datetime) -> Body:
    assert place.plan is not None
    work = Work(
        name=submission.id,
        command=command(submission),
        nodes=place.nodes,
        runtime_env=environment_of(submission, code),
        metadata=submission.metadata,
        job_id=submission.id,
        labels={RUN_LABEL: submission.run},
        submitted=now,
        deadline=_block_deadline(place, now),
    )
    return ray_job(place.plan, work).body


def _block_deadline(place: Place, now: datetime) -> int | None:
    """Seconds until EC2 begins to end the instances of the job's capacity block; None without one."""
    assert place.plan is not None
    ends = [datetime.fromisoformat(end) for name in place.nodes if (end := place.plan.group(name).capacity.ends)]
    return max(int((min(ends) - BLOCK_TAIL - now).total_seconds()), 1) if ends else None


def _in_existing(submission: Submission, place: Place, code: Code) -> Body:
    changed = [
        *runtime_env_problems(environment_of(submission, code), "K8sJobMode", "environment"),
        *runtime_env_problems(submission.metadata, "K8sJobMode", "storage"),
    ]
    if changed:
        raise SpecError(changed)
    spec: Body = {
        "submissionMode": "K8sJobMode",
        "entrypoint": entrypoint(command(submission), "K8sJobMode"),
        "runtimeEnvYAML": runtime_env(environment_of(submission, code)),
        "metadata": dict(submission.metadata),
        "jobId": submission.id,
        "clusterSelector": {"ray.io/cluster": place.cluster},
    }
    labels = {"app.kubernetes.io/managed-by": MANAGED_BY, RUN_LABEL: submission.run}
    metadata: Body = {"name": names.ray_job(submission.id), "namespace": place.namespace, "labels": labels}
    return {"apiVersion": API, "kind": "RayJob", "metadata": metadata, "spec": spec}


def _submitter(job: Body, place: Place, code: Code) -> Body:
    """The pod that submits: the operator's own (common/job.go), with the code in it."""
    container: Body = {"name": SUBMITTER_CONTAINER, "image": place.image, "resources": SUBMITTER}
    spec: Body = {"restartPolicy": "Never"}
    if place.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in place.pull_secrets]
    if place.tolerations:
        spec["tolerations"] = [dict(each) for each in place.tolerations]
    if code.mounted:
        name = code_name(job["metadata"]["name"])
        unpacked = {"name": "unpacked", "mountPath": UNPACKED}
        spec["initContainers"] = [
            {
                "name": "unpack",
                "image": place.image,
                "command": ["python", "-c", UNPACK],
                "resources": SUBMITTER,
                "volumeMounts": [{"name": "code", "mountPath": PACKED, "readOnly": True}, unpacked],
            }
        ]
        container["volumeMounts"] = [unpacked | {"readOnly": True}]
        spec["volumes"] = [{"name": "code", "configMap": {"name": name}}, {"name": "unpacked", "emptyDir": {}}]
    return {"spec": spec | {"containers": [container]}}


def code_name(ray_job_name: str) -> str:
    """The ConfigMap's name; RayJob names leave room for a suffix."""
    return f"{ray_job_name}-code"


def _config_map(job: Body, code: Code) -> Body:
    metadata = job["metadata"]
    labels = {key: value for key, value in metadata["labels"].items() if not _is_queue(key)}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": code_name(metadata["name"]), "namespace": metadata["namespace"], "labels": labels},
        "binaryData": {code.name: base64.b64encode(code.content).decode()},
        "immutable": True,
    }


def _is_queue(key: str) -> bool:
    """A label by which a queue takes an object."""
    return key.startswith(("kueue.", "volcano.", "ray.io/"))


def owned_by(body: Mapping[str, Any]) -> list[Body]:
    """The owner references that make an object go with this one."""
    metadata = body["metadata"]
    return [
        {"apiVersion": body["apiVersion"], "kind": body["kind"], "name": metadata["name"], "uid": metadata["uid"]},
    ]


def now() -> datetime:
    """The time that capacity blocks are held against."""
    return datetime.now(UTC)
