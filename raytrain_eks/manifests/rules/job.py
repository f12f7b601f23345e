"""Rules of a RayJob: M1-M2 and J1-J15."""

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from raytrain_eks.manifests.names import RAY_JOB
from raytrain_eks.manifests.rules import cluster
from raytrain_eks.manifests.rules.breach import Breach, Path, number, part, rows, section, text
from raytrain_eks.manifests.rules.operator import Operator, Version, dropped

MODES = ("K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode")
SINCE: dict[Path, Version] = {
    ("preRunningDeadlineSeconds",): (1, 6, 0),
    ("deletionStrategy", "deletionRules"): (1, 5, 0),
}
"""Field of a RayJob's spec -> the first operator whose definition has it."""
ORDER = ("DeleteWorkers", "DeleteCluster", "DeleteSelf")


def of_object(body: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    """Rules of a RayJob object."""
    yield from cluster.name(body, RAY_JOB, "RayJob")
    yield from of_spec(section(body, "spec"), ("spec",), operator, section(body, "metadata", "annotations"))


def of_spec(
    spec: Mapping[str, Any], base: Path, operator: Operator, annotations: Mapping[str, Any]
) -> Iterator[Breach]:
    """Rules of a RayJob's spec that stands at `base`."""
    for check in (_suspension(spec), _deletion(spec, operator), _clusters(spec), _mode(spec), _numbers(spec)):
        for breach in check:
            yield Breach(rule=breach.rule, at=(*base, *breach.at), message=breach.message)
    own = part(spec, "rayClusterSpec")
    if own is not None:
        at: Path = (*base, "rayClusterSpec")
        if part(own, "authOptions", "enableK8sTokenAuth") is True:
            where = (*at, "authOptions", "enableK8sTokenAuth")
            yield Breach(rule="J10", at=where, message="is not for RayJobs")
        if part(own, "upgradeStrategy", "type") is not None:
            where = (*at, "upgradeStrategy", "type")
            yield Breach(rule="U2", at=where, message="cannot be set in a cluster that a RayJob makes")
        yield from cluster.of_spec(section(spec, "rayClusterSpec"), at, operator, annotations)
    yield from dropped(spec, base, operator, SINCE)


def _selected(spec: Mapping[str, Any]) -> bool:
    return bool(section(spec, "clusterSelector"))


def _suspension(spec: Mapping[str, Any]) -> Iterator[Breach]:
    if part(spec, "suspend") is not True:
        return
    if part(spec, "shutdownAfterJobFinishes") is not True:
        yield Breach(rule="J1", at=("suspend",), message="only a job with shutdownAfterJobFinishes can be suspended")
    if _selected(spec):
        yield Breach(
            rule="J5", at=("suspend",), message="a job in an existing cluster (clusterSelector) cannot be suspended"
        )


def _deletion(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    ttl = number(spec, "ttlSecondsAfterFinished")
    shutdown = part(spec, "shutdownAfterJobFinishes") is True
    if ttl is not None and ttl < 0:
        yield Breach(rule="J2", at=("ttlSecondsAfterFinished",), message="must not be negative")
    if ttl is not None and ttl > 0 and not shutdown:
        yield Breach(rule="J3", at=("ttlSecondsAfterFinished",), message="needs shutdownAfterJobFinishes: true")
    strategy, at = part(spec, "deletionStrategy"), ("deletionStrategy",)
    if strategy is None:
        return
    if not operator.enabled("RayJobDeletionPolicy"):
        yield Breach(rule="J4", at=at, message="needs the operator's feature gate RayJobDeletionPolicy")
    legacy = part(strategy, "onSuccess") is not None or part(strategy, "onFailure") is not None
    by_rules = bool(part(strategy, "deletionRules"))
    if by_rules and shutdown:
        message = "deletionRules and shutdownAfterJobFinishes exclude each other"
        yield Breach(rule="J4", at=(*at, "deletionRules"), message=message)
    if by_rules and legacy:
        message = "deletionRules exclude onSuccess and onFailure"
        yield Breach(rule="J4", at=(*at, "deletionRules"), message=message)
    elif legacy:
        yield from _legacy(spec, section(spec, *at), shutdown)
    elif by_rules:
        yield from _rules(spec, section(spec, *at))
    else:
        yield Breach(rule="J4", at=at, message="needs deletionRules, or onSuccess and onFailure")


def _legacy(spec: Mapping[str, Any], strategy: Mapping[str, Any], shutdown: bool) -> Iterator[Breach]:
    for key in ("onSuccess", "onFailure"):
        at: Path = ("deletionStrategy", key)
        policy = part(strategy, key, "policy")
        if policy is None:
            yield Breach(rule="J4", at=at, message="onSuccess and onFailure both need a policy")
            continue
        yield from _policy(spec, policy, (*at, "policy"))
        if policy == "DeleteNone" and shutdown:
            message = "DeleteNone and shutdownAfterJobFinishes exclude each other"
            yield Breach(rule="J4", at=(*at, "policy"), message=message)


def _policy(spec: Mapping[str, Any], policy: Any, at: Path) -> Iterator[Breach]:
    if _selected(spec) and policy in ("DeleteCluster", "DeleteWorkers"):
        yield Breach(rule="J4", at=at, message=f"{policy} is not for a job in an existing cluster (clusterSelector)")
    if cluster.autoscales(section(spec, "rayClusterSpec")) and policy == "DeleteWorkers":
        yield Breach(rule="J4", at=at, message="DeleteWorkers is not for a cluster with the autoscaler on")


def _rules(spec: Mapping[str, Any], strategy: Mapping[str, Any]) -> Iterator[Breach]:
    seen: dict[tuple[str, str], dict[str, tuple[int, int | float]]] = {}
    for index, row in rows(strategy, "deletionRules"):
        at: Path = ("deletionStrategy", "deletionRules", index)
        condition, policy = section(row, "condition"), text(row, "policy")
        keys = [key for key in ("jobStatus", "jobDeploymentStatus") if part(condition, key) is not None]
        ttl = number(condition, "ttlSeconds") or 0
        if len(keys) != 1:
            message = "needs exactly one of jobStatus and jobDeploymentStatus"
            yield Breach(rule="J4", at=(*at, "condition"), message=message)
            continue
        if ttl < 0:
            yield Breach(rule="J4", at=(*at, "condition", "ttlSeconds"), message="must not be negative")
        yield from _policy(spec, policy, (*at, "policy"))
        before = seen.setdefault((keys[0], text(condition, keys[0])), {})
        if policy in before:
            yield Breach(rule="J4", at=at, message=f"there is a rule with {policy} for the same condition before")
        else:
            before[policy] = (index, ttl)
    for (key, value), found in seen.items():
        ordered = [(policy, *found[policy]) for policy in ORDER if policy in found]
        for (earlier, _, less), (later, index, more) in pairwise(ordered):
            if more < less:
                where = ("deletionStrategy", "deletionRules", index, "condition", "ttlSeconds")
                message = f"for {key} {value}, {later} ({more:g} s) must not come before {earlier} ({less:g} s)"
                yield Breach(rule="J4", at=where, message=message)


def _clusters(spec: Mapping[str, Any]) -> Iterator[Breach]:
    if part(spec, "rayClusterSpec") is None and not _selected(spec):
        yield Breach(rule="J6", at=("rayClusterSpec",), message="needs rayClusterSpec or clusterSelector")
    if not _selected(spec):
        return
    if not part(spec, "clusterSelector", "ray.io/cluster"):
        yield Breach(rule="J7", at=("clusterSelector",), message="needs a cluster's name under ray.io/cluster")
    if part(spec, "submissionMode") == "SidecarMode":
        yield Breach(rule="J7", at=("submissionMode",), message="SidecarMode is not for a job in an existing cluster")
    if (number(spec, "backoffLimit") or 0) > 0:
        yield Breach(rule="J7", at=("backoffLimit",), message="a job in an existing cluster cannot be tried again")


def _mode(spec: Mapping[str, Any]) -> Iterator[Breach]:
    mode = part(spec, "submissionMode")
    if mode not in (None, "", *MODES):
        message = f"must be one of {', '.join(MODES)}; the definition lets anything through"
        yield Breach(rule="J0", at=("submissionMode",), message=message)
    if mode == "InteractiveMode" and (number(spec, "backoffLimit") or 0) > 0:
        yield Breach(rule="J8", at=("backoffLimit",), message="a job in InteractiveMode cannot be tried again")
    if mode != "SidecarMode":
        return
    for key in ("submitterPodTemplate", "submitterConfig"):
        if part(spec, key) is not None:
            yield Breach(rule="J9", at=(key,), message="SidecarMode has no submitter of its own")
    at: Path = ("rayClusterSpec", "headGroupSpec", "template", "spec", "restartPolicy")
    if part(spec, *at) not in (None, "", "Never"):
        yield Breach(rule="J9", at=at, message="must be Never or left out in SidecarMode")


def _numbers(spec: Mapping[str, Any]) -> Iterator[Breach]:
    if (written := text(spec, "runtimeEnvYAML")) and not _is_yaml(written):
        yield Breach(rule="J12", at=("runtimeEnvYAML",), message="must be a YAML mapping")
    for rule, key in (("J13", "activeDeadlineSeconds"), ("J14", "preRunningDeadlineSeconds")):
        value = number(spec, key)
        if value is not None and value <= 0:
            yield Breach(rule=rule, at=(key,), message="must be positive")
    limit = number(spec, "backoffLimit")
    if limit is not None and limit < 0:
        yield Breach(rule="J15", at=("backoffLimit",), message="must not be negative")


def _is_yaml(written: str) -> bool:
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.spec.source import read_documents

    try:
        documents = read_documents(written, "runtimeEnvYAML")
    except SpecError:
        return False
    return len(documents) <= 1 and all(isinstance(document.data, Mapping) for document in documents)
