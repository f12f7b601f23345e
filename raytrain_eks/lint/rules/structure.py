"""RT304, RT305: fields that a kind does not have, and fields without which it is refused.

Not a schema check: only the levels where people err, of the kinds in `fields.csv` (names of fields, taken from the
CustomResourceDefinitions of the versions named there), and what the API server's own validation says of workloads.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, mapping, text
from raytrain_eks.spec.problem import nearest
from raytrain_eks.spec.source import Path

HERE = File(__file__).parent
_ELSEWHERE = {
    ("FileSystem", "dataRepositoryAssociations"): "the ACK controller does not offer data repository associations: "
    "create them outside (`aws fsx create-data-repository-association`), or use importPath and exportPath, which "
    "PERSISTENT_2 does not take",
}
"""Where a wished-for field can be had instead."""
_WORKLOADS = ("Deployment", "StatefulSet", "DaemonSet", "ReplicaSet")


@dataclass(frozen=True)
class Level:
    """The fields of one level of a kind."""

    group: str
    """API version: `ray.io/v1`."""
    kind: str
    path: str
    """`spec.workerGroupSpecs[]`."""
    required: tuple[str, ...]
    known: tuple[str, ...]
    source: str


@cache
def _levels() -> tuple[Level, ...]:
    with (HERE / "fields.csv").open(newline="", encoding="utf-8") as file:
        return tuple(
            Level(
                group=row["group"],
                kind=row["kind"],
                path=row["path"],
                required=tuple(row["required"].split()),
                known=tuple(row["known"].split()),
                source=row["source"],
            )
            for row in csv.DictReader(file)
        )


def _places(resource: Resource, level: Level) -> Iterator[tuple[Path, object]]:
    found: list[tuple[Path, object]] = [((), resource.data)]
    for step in level.path.split("."):
        name, many = step.removesuffix("[]"), step.endswith("[]")
        inner = [((*path, name), get(value, name)) for path, value in found if get(value, name) is not None]
        if many:
            inner = [
                ((*path, index), item)
                for path, value in inner
                if isinstance(value, list)
                for index, item in enumerate(value)
            ]
        found = inner
    yield from found


def _levels_of(bundle: Bundle) -> Iterator[tuple[Resource, Level, Path, object]]:
    for level in _levels():
        for resource in bundle.of(level.group.rpartition("/")[0], level.kind):
            if resource.api_version == level.group:
                for path, value in _places(resource, level):
                    yield resource, level, path, value


def _unknown_fields(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource, level, path, value in _levels_of(bundle):
        for key in mapping(value):
            if key in level.known:
                continue
            guess = nearest(key, level.known)
            reason = f"{level.path} of {resource.kind} has no field {key} ({level.source})"
            fix = _ELSEWHERE.get((resource.kind, key)) or (
                f"did you mean {guess}?" if guess else f"known here: {', '.join(level.known)}"
            )
            yield Hit(on=resource, path=(*resource.base, *path, key), reason=reason, fix=fix, key=True)


def _missing_fields(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource, level, path, value in _levels_of(bundle):
        if not isinstance(value, dict):
            continue
        for key in level.required:
            if key not in value:
                reason = f"{level.path} of {resource.kind} needs {key}"
                yield Hit(on=resource, path=(*resource.base, *path), reason=reason, fix=f"add {key}")
    for resource in bundle.resources:
        if resource.is_a("karpenter.k8s.aws", "EC2NodeClass"):
            yield from _identity(resource)
        if resource.is_a("apps", *_WORKLOADS):
            yield from _selector(resource)
    for pod in bundle.pods:
        yield from _containers(pod)


def _identity(resource: Resource) -> Iterator[Hit]:
    given = [key for key in ("role", "instanceProfile") if resource.get("spec", key)]
    if len(given) != 1:
        said = "neither is there" if not given else "both are there"
        reason = f"must specify exactly one of role and instanceProfile, and {said}"
        fix = "write role: the name of the IAM role of the nodes"
        yield Hit(on=resource, path=(*resource.base, "spec"), reason=reason, fix=fix)


def _selector(resource: Resource) -> Iterator[Hit]:
    if not isinstance(resource.get("spec", default={}), dict):
        return
    spec = (*resource.base, "spec")
    wanted = mapping(resource.get("spec", "selector", "matchLabels"))
    labels = mapping(resource.get("spec", "template", "metadata", "labels"))
    if not resource.get("spec", "selector"):
        reason = f"a {resource.kind} needs a selector, and its template the same labels"
        yield Hit(on=resource, path=spec, reason=reason, fix="add selector.matchLabels and template.metadata.labels")
    elif any(labels.get(key) != value for key, value in wanted.items()):
        reason = "the template's labels do not match the selector"
        fix = f"give the template {', '.join(f'{key}: {text(value)}' for key, value in wanted.items())}"
        yield Hit(on=resource, path=(*spec, "selector"), reason=reason, fix=fix)


def _containers(pod: Pod) -> Iterator[Hit]:
    if pod.owner.group not in ("", "apps", "batch", "ray.io", "kubeflow.org", "batch.volcano.sh"):
        return
    # A tree with unreadable parts may well have had an image.
    if pod.owner.kind == "ConfigMap" or pod.owner.document.problems:
        return
    for container in pod.containers:
        if not container.image:
            reason = f"the container {container.name or 'without a name'} has no image"
            yield Hit(on=pod.owner, path=container.path, reason=reason, fix="add image")
    policy = text(pod.spec.get("restartPolicy"))
    if pod.owner.is_a("batch", "Job", "CronJob") and policy not in ("Never", "OnFailure"):
        reason = f"a Job's pods need restartPolicy Never or OnFailure; {policy or 'unset, which is Always,'} is refused"
        yield Hit(on=pod.owner, path=pod.path, reason=reason, fix="write restartPolicy: Never")
    if pod.owner.is_a("apps", *_WORKLOADS) and policy not in ("", "Always"):
        reason = f"a {pod.owner.kind}'s pods always restart; restartPolicy {policy} is refused"
        yield Hit(on=pod.owner, path=(*pod.path, "restartPolicy"), reason=reason, fix="leave it out, or use a Job")


RULES = (
    Rule(
        id="RT304",
        severity="error",
        title="A field that the kind does not have",
        why="`kubectl apply` refuses it, and a controller that writes through the API loses it in silence: what was "
        "asked for does not happen.",
        fix="Write the field that is meant; `kubectl explain` knows them.",
        check=_unknown_fields,
    ),
    Rule(
        id="RT305",
        severity="error",
        title="A field that is missing",
        why="The API server, or the kind's validation rules, refuse the object without it.",
        fix="Add it.",
        check=_missing_fields,
    ),
)
