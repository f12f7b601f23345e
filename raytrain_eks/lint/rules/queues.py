"""RT90x: batch schedulers and operators, each by its own rules."""

import re
from collections.abc import Iterator, Sequence

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, mapping, text

KUEUE, VOLCANO, KAI = "kueue.x-k8s.io/queue-name", "volcano.sh/queue-name", "kai.scheduler/queue"
_ELASTIC = "kueue.x-k8s.io/elastic-job"
"""With it Kueue follows the autoscaler by workload slices (gate ElasticJobsViaWorkloadSlices)."""
_MOST_GROUPS = 17
"""Worker groups of a RayJob under Kueue: 18 pod sets less the head (Kueue 0.19.2, docs/rayjobs)."""


def _both(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        found = [label for label in (KUEUE, VOLCANO, KAI) if label in resource.labels]
        scheduler = text(resource.get("spec", "schedulerName"))
        if KUEUE in resource.labels and scheduler == "volcano" and VOLCANO not in found:
            found.append("schedulerName: volcano")
        if len(found) > 1:
            path = (*resource.base, "metadata", "labels", found[0])
            reason = (
                f"{' and '.join(found)} on one object: two queues hold the job back, each until the other lets it go"
            )
            yield Hit(on=resource, path=path, reason=reason, fix="keep one of them")


def _clusters(resource: Resource) -> tuple[object, tuple[str | int, ...]]:
    if resource.kind == "RayCluster":
        return resource.get("spec"), ("spec",)
    return resource.get("spec", "rayClusterSpec"), ("spec", "rayClusterSpec")


def _queued_ray(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.of("ray.io", "RayCluster", "RayJob"):
        cluster, steps = _clusters(resource)
        selector = resource.get("spec", "clusterSelector")
        if selector and (KUEUE in resource.labels or VOLCANO in resource.labels):
            reason = "a queue admits a job with its own cluster; this one selects a cluster that runs already"
            path = (*resource.base, "spec", "clusterSelector")
            yield Hit(on=resource, path=path, reason=reason, fix="drop clusterSelector, or the queue's label")
        if KUEUE in resource.labels:
            yield from _under_kueue(resource, cluster, steps)
        if KAI in resource.labels and resource.kind == "RayJob" and _mode(resource) == "K8sJobMode":
            path = (*resource.base, "metadata", "labels", KAI)
            reason = "the KAI scheduler does not take RayJobs in K8sJobMode"
            yield Hit(on=resource, path=path, reason=reason, fix="write submissionMode: HTTPMode or SidecarMode")


def _mode(resource: Resource) -> str:
    return text(resource.get("spec", "submissionMode")) or "K8sJobMode"


def _under_kueue(resource: Resource, cluster: object, steps: tuple[str | int, ...]) -> Iterator[Hit]:
    if resource.kind == "RayJob" and resource.get("spec", "shutdownAfterJobFinishes") is not True:
        reason = "Kueue admits a RayJob only when its cluster goes away with it"
        yield Hit(on=resource, path=(*resource.base, "spec"), reason=reason, fix="write shutdownAfterJobFinishes: true")
    elastic = text(resource.annotations.get(_ELASTIC)) == "true"
    if get(cluster, "enableInTreeAutoscaling") is True and not elastic:
        reason = "Kueue reserves quota once, and the autoscaler asks for more behind its back"
        path = (*resource.base, *steps, "enableInTreeAutoscaling")
        yield Hit(
            on=resource, path=path, reason=reason, fix=f'leave the autoscaler off, or annotate {_ELASTIC}: "true"'
        )
    groups = items(get(cluster, "workerGroupSpecs"))
    if len(groups) > _MOST_GROUPS:
        reason = f"{len(groups)} worker groups, and Kueue takes {_MOST_GROUPS}"
        path = (*resource.base, *steps, "workerGroupSpecs")
        yield Hit(on=resource, path=path, reason=reason, fix="merge groups, or split the job")


def _volcano_jobs(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for job in bundle.of("batch.volcano.sh", "Job"):
        tasks = [mapping(task) for task in items(job.get("spec", "tasks"))]
        replicas = [task.get("replicas", 1) for task in tasks]
        total = sum(count for count in replicas if isinstance(count, int))
        least = job.get("spec", "minAvailable")
        if isinstance(least, int) and least > total:
            reason = f"minAvailable {least}, and the tasks have {total} pods: the gang is never complete"
            path = (*job.base, "spec", "minAvailable")
            yield Hit(on=job, path=path, reason=reason, fix=f"write {total}")
        completes = any(text(mapping(policy).get("action")) == "CompleteJob" for policy in _policies(job, tasks))
        for index, task in enumerate(tasks):
            policy = text(get(task, "template", "spec", "restartPolicy"))
            if policy not in ("Never", "OnFailure") and not completes:
                reason = f"restartPolicy is {policy or 'not written, which is Always'}: a pod that is done starts again"
                path = (*job.base, "spec", "tasks", index, "template", "spec")
                yield Hit(on=job, path=path, reason=reason, fix="write restartPolicy: Never or OnFailure")


def _policies(job: Resource, tasks: Sequence[object]) -> Iterator[object]:
    yield from items(job.get("spec", "policies"))
    for task in tasks:
        yield from items(get(task, "policies"))


_MPI_FLAGS = {
    "--gpus-per-node",
    "--processing-units-per-node",
    "--kubectl-delivery-image",
    "--processing-resource-type",
}
"""Flags of earlier operators (cmd/mpi-operator/app/options/options.go); none of them exists from 0.4.0 on."""


def _mpi_operator(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.main:
            version = re.search(r"mpi-operator:v?(\d+)\.(\d+)", container.image)
            if not version or (int(version[1]), int(version[2])) < (0, 4):
                continue
            for key in ("command", "args"):
                for index, word in enumerate(items(container.data.get(key))):
                    flag = text(word).partition("=")[0]
                    if flag in _MPI_FLAGS:
                        reason = f"mpi-operator {version[1]}.{version[2]} has no flag {flag}, and exits at once"
                        path = (*container.path, key, index)
                        yield Hit(on=pod.owner, path=path, reason=reason, fix="leave it out")


_SLURM_VALUES = {
    "cluster": "clusterName",
    "compute": "nodesets and partitions",
    "storage": "volumes in nodesets.NAME.podSpec",
    "networking": "resources and env in nodesets.NAME",
    "database": "accounting.storageConfig, with a database outside",
}
"""Values that Slinky's slurm chart does not have, and what is meant (chart 1.2.1, values.yaml)."""


def _slinky(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for application in bundle.of("argoproj.io", "Application"):
        source = application.get("spec", "source")
        words = " ".join(text(get(source, key)) for key in ("repoURL", "path", "chart")) + application.name
        helm = mapping(get(source, "helm"))
        if "slurm" not in words.lower() and "slinky" not in words.lower():
            continue
        key = "valuesObject" if "valuesObject" in helm else "values"
        values = _values(helm.get(key))
        path = (*application.base, "spec", "source", "helm", key)
        for name, meant in _SLURM_VALUES.items():
            if name in values:
                reason = f"Slinky's slurm chart has no value {name}, and Helm ignores it in silence"
                yield Hit(on=application, path=path, reason=reason, fix=f"see {meant}")
        if "nodeSelector" in mapping(values.get("controller")):
            reason = "Slinky's slurm chart has no value controller.nodeSelector, and Helm ignores it in silence"
            yield Hit(on=application, path=path, reason=reason, fix="write controller.podSpec.nodeSelector")


def _values(found: object) -> dict[str, object]:
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.spec.source import read_documents

    if isinstance(found, str):
        try:
            documents = read_documents(found, "values")
        except SpecError:
            return {}
        found = documents[0].data if documents else {}
    return dict(mapping(found))


RULES = (
    Rule(
        id="RT901",
        severity="error",
        title="Two queues for one job",
        why="Kueue suspends the job until it has quota, Volcano holds its pods until the gang fits; each counts "
        "resources that the other gives away.",
        fix="Choose one.",
        check=_both,
    ),
    Rule(
        id="RT902",
        severity="error",
        title="A queued Ray job against the queue's rules",
        why="Kueue refuses or never admits a RayJob with clusterSelector, with more than 17 worker groups, or whose "
        "cluster outlives it, and its quota is wrong under the autoscaler (kueue#7569). Volcano refuses it too.",
        fix="Follow the queue's rules, or drop its label.",
        check=_queued_ray,
    ),
    Rule(
        id="RT903",
        severity="error",
        title="A Volcano job that cannot start or end",
        why="A gang larger than its tasks never starts. Pods whose restartPolicy is Always never complete.",
        fix="Correct minAvailable; write restartPolicy.",
        check=_volcano_jobs,
    ),
    Rule(
        id="RT904",
        severity="error",
        title="A flag that mpi-operator does not have",
        why="Go's flag package ends the program at an unknown flag, so the operator is in a crash loop. They went "
        "with the v1 operator; from 0.4 on workers are reached by SSH.",
        fix="Install the operator from its own manifests (deploy/v2beta1/mpi-operator.yaml), with CRD and RBAC.",
        check=_mpi_operator,
    ),
    Rule(
        id="RT905",
        severity="error",
        title="Values that Slinky's chart does not have",
        why="Helm takes any value and renders the chart's defaults: nothing of what was configured happens.",
        fix="Write the chart's own values: clusterName, controller, nodesets, partitions, loginsets, accounting.",
        check=_slinky,
    ),
)
