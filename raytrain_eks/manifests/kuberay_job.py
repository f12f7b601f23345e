"""RayJob and RayCronJob: one command in a cluster of its own, or in one that exists, once or on a schedule."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Literal

from raytrain_eks.manifests import names
from raytrain_eks.manifests.entrypoint import Mode, entrypoint, runtime_env, runtime_env_problems
from raytrain_eks.manifests.kuberay_cluster import API, cluster_spec, queue_labels
from raytrain_eks.manifests.kuberay_refusal import refuse
from raytrain_eks.manifests.metadata import labels
from raytrain_eks.manifests.object import Body, Object
from raytrain_eks.manifests.pod import Whys
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.cluster_queue import Kueue, Volcano
from raytrain_eks.spec.problem import Problem, SpecError

SYSTEM = "kuberay"
BLOCK_TAIL = timedelta(minutes=30)
"""Before the end of a capacity block EC2 begins to end its instances (EC2 user guide, Capacity Blocks)."""
SUBMITTER = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""The operator's own numbers for the submitter's container (common/job.go)."""


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """What goes, and when, after the job has ended (the operator's deletion rules, 1.5)."""

    when: Literal["SUCCEEDED", "FAILED", "Failed"]
    """The job succeeded or failed; `Failed`: the RayJob failed, for example by its deadline."""
    policy: Literal["DeleteCluster", "DeleteWorkers", "DeleteSelf", "DeleteNone"]
    after: int = 0
    """Seconds."""


@dataclass(frozen=True, kw_only=True)
class Work:
    """A command for a cluster and how it is run there. Times in seconds."""

    name: str
    """A RayJob's name; too long or illegal ones are shortened by `names.ray_job`."""
    command: str
    """A shell command; it reaches the cluster's shell word for word. Empty in InteractiveMode."""
    nodes: Mapping[str, int] | None = None
    """Worker group -> nodes, fixed for the job; groups that are not named are left out. None: as the file says."""
    cluster: str | None = None
    """An existing RayCluster to run in; None: one of its own."""
    mode: Mode = "K8sJobMode"
    retries: int = 0
    """How often the whole job, with a new cluster, is tried again."""
    submit_retries: int | None = None
    """How often the submitter's pod is tried again. None: the operator's 2."""
    deadline: int | None = None
    """After its start the job is ended."""
    submitted: datetime | None = None
    """Now, where a group's capacity block ends; None: its end is not looked at."""
    start_deadline: int | None = None
    """Until the job must have begun to run, waiting for nodes included (operator 1.6)."""
    shutdown: bool = True
    """Delete the cluster when the job has ended; not with `deletions`."""
    keep: int = 0
    """How long the cluster stays then."""
    deletions: tuple[Deletion, ...] = ()
    suspend: bool = False
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    job_id: str | None = None
    cpus: float = 0
    """What the command itself takes of the node it runs on; 0: it runs on the head."""
    gpus: float = 0
    resources: Mapping[str, float] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """When a RayCronJob starts its jobs."""

    cron: str
    """Minute, hour, day, month, weekday; or @daily and the like."""
    zone: str | None = None
    """An IANA time zone. None: that of the operator."""
    suspend: bool = False


def ray_job(plan: ClusterPlan, work: Work) -> Object:
    """The RayJob. Raises SpecError for what the operator would refuse."""
    body, whys = _job(plan, work)
    refuse(body, plan)
    return Object(SYSTEM, body, whys)


def ray_cron_job(plan: ClusterPlan, work: Work, schedule: Schedule) -> Object:
    """The RayCronJob around a RayJob. Raises SpecError for what the operator would refuse."""
    job, whys = _job(plan, work)
    spec: Body = {"schedule": schedule.cron}
    if schedule.zone is not None:
        spec["timeZone"] = schedule.zone
    if schedule.suspend:
        spec["suspend"] = True
    spec["jobTemplate"] = job["spec"]
    metadata = job["metadata"] | {"name": names.ray_cron_job(work.name)}
    body: Body = {"apiVersion": API, "kind": "RayCronJob", "metadata": metadata, "spec": spec}
    refuse(body, plan)
    moved = {f"spec.jobTemplate.{path[5:]}": why for path, why in whys.items() if path.startswith("spec.")}
    return Object(SYSTEM, body, moved)


def _job(plan: ClusterPlan, work: Work) -> tuple[Body, Whys]:
    problems = list(_problems(plan, work))
    if problems:
        raise SpecError(problems)
    whys = Whys()
    spec: Body = {"submissionMode": work.mode}
    if work.mode != "InteractiveMode":
        spec["entrypoint"] = entrypoint(work.command, work.mode)
        if spec["entrypoint"] != work.command:
            whys["spec.entrypoint"] = f"quoted so that the shell in the cluster is the first to read: {work.command}"
    spec |= _run(work)
    if work.cluster is not None:
        # An existing cluster belongs to somebody else, so its end is not this job's.
        spec |= {"clusterSelector": {"ray.io/cluster": work.cluster}} | (_end(work) if work.deletions else {})
    else:
        spec |= _end(work)
        nodes = dict(work.nodes) if work.nodes is not None else {group.name: group.start_nodes for group in plan.groups}
        fixed = work.nodes is not None or isinstance(plan.cluster.queue, Kueue)
        spec["rayClusterSpec"], reasons = cluster_spec(plan, nodes, autoscales=False if fixed else None)
        whys |= {f"spec.rayClusterSpec.{path}": why for path, why in reasons.items()}
    if (submitter := _submitter(plan, work)) is not None:
        spec["submitterPodTemplate"] = submitter
    metadata: Body = {"name": names.ray_job(work.name), "namespace": plan.cluster.namespace}
    metadata["labels"] = labels(plan) | dict(work.labels) | queue_labels(plan)
    return {"apiVersion": API, "kind": "RayJob", "metadata": metadata, "spec": spec}, whys


def _problems(plan: ClusterPlan, work: Work) -> Iterator[Problem]:
    if work.mode != "InteractiveMode" and (not work.command.strip() or "\0" in work.command):
        yield Problem(path="command", value=work.command, rule="must be a shell command without NUL characters")
    yield from runtime_env_problems(work.runtime_env, work.mode, "runtime_env")
    yield from runtime_env_problems(work.metadata, work.mode, "metadata")
    known = {group.name: group for group in plan.groups}
    for name, count in (work.nodes or {}).items():
        if name not in known:
            rule, fix = "the cluster has no such group", f"it has {', '.join(known)}"
            yield Problem(path="workers.group", value=name, rule=rule, fix=fix)
        elif not 0 < count <= known[name].max_nodes:
            rule = f"the group {name} has at most {known[name].max_nodes} nodes"
            yield Problem(path="workers.nodes", value=str(count), rule=rule)
        elif (ends := known[name].capacity.ends) is not None and work.submitted is not None:
            yield from _outlives(work, work.submitted, datetime.fromisoformat(ends), name)
    queue = plan.cluster.queue
    if work.cluster is not None and queue is not None:
        which = "Volcano" if isinstance(queue, Volcano) else "Kueue"
        rule = f"{which} cannot hold back a job in a cluster that exists already"
        yield Problem(path="cluster", value=work.cluster, rule=rule, fix="let the job have a cluster of its own")
    if isinstance(queue, Kueue) and not work.shutdown:
        rule = "Kueue gets its quota back only when the cluster goes with its job"
        yield Problem(path="shutdown", value="false", rule=rule, fix="leave it true")


def _outlives(work: Work, now: datetime, ends: datetime, group: str) -> Iterator[Problem]:
    """A job must be over before EC2 begins to end the instances of a capacity block, 30 minutes before its end."""
    left = int((ends - BLOCK_TAIL - now).total_seconds())
    if left <= 0:
        rule = f"the capacity block of the group {group} is over at {ends - BLOCK_TAIL:%Y-%m-%d %H:%M %Z}"
        yield Problem(path="workers.group", value=group, rule=rule, fix="buy another block, or take another group")
    elif work.deadline is None or work.deadline > left:
        rule = (
            f"instances of the group {group} begin to end 30 minutes before its capacity block, in {left // 60} minutes"
        )
        fix = f"set a deadline of at most {left // 60} minutes; a checkpoint before it lets the job go on elsewhere"
        yield Problem(path="deadline", value=None if work.deadline is None else str(work.deadline), rule=rule, fix=fix)


def _run(work: Work) -> Body:
    spec: Body = {}
    if work.retries or (work.cluster is None and work.mode != "InteractiveMode"):
        spec["backoffLimit"] = work.retries
    if work.submit_retries is not None:
        spec["submitterConfig"] = {"backoffLimit": work.submit_retries}
    for name, seconds in (("activeDeadlineSeconds", work.deadline), ("preRunningDeadlineSeconds", work.start_deadline)):
        if seconds is not None:
            spec[name] = seconds
    if work.suspend:
        spec["suspend"] = True
    if work.runtime_env:
        spec["runtimeEnvYAML"] = runtime_env(work.runtime_env)
    if work.metadata:
        spec["metadata"] = dict(work.metadata)
    if work.job_id is not None:
        spec["jobId"] = work.job_id
    if work.cpus:
        spec["entrypointNumCpus"] = work.cpus
    if work.gpus:
        spec["entrypointNumGpus"] = work.gpus
    if work.resources:
        spec["entrypointResources"] = runtime_env(work.resources)
    return spec


def _end(work: Work) -> Body:
    if work.deletions:
        rules = []
        for each in work.deletions:
            key = "jobDeploymentStatus" if each.when == "Failed" else "jobStatus"
            rules.append({"policy": each.policy, "condition": {key: each.when, "ttlSeconds": each.after}})
        return {"deletionStrategy": {"deletionRules": rules}}
    if not work.shutdown:
        return {}
    return {"shutdownAfterJobFinishes": True, "ttlSecondsAfterFinished": work.keep}


def _submitter(plan: ClusterPlan, work: Work) -> Body | None:
    """A submitter's pod like the operator's own, where that could not start: a private image, a tainted head node."""
    needed = plan.cluster.ray.pull_secrets or plan.head.tolerations
    if work.mode != "K8sJobMode" or not needed:
        return None
    container = {"name": "ray-job-submitter", "image": plan.head.image, "resources": SUBMITTER}
    spec: Body = {"restartPolicy": "Never"}
    if plan.cluster.ray.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.cluster.ray.pull_secrets]
    if plan.head.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in plan.head.tolerations]
    return {"spec": spec | {"containers": [container]}}
