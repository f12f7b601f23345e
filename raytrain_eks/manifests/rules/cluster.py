"""Rules of a RayCluster: W1, M1-M2, U1-U2, C1-C17, C19. Network policy, TLS and history server: `extras`."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.manifests.names import RAY_CLUSTER
from raytrain_eks.manifests.rules import extras
from raytrain_eks.manifests.rules.breach import Breach, Path, number, part, rows, section, text, variables
from raytrain_eks.manifests.rules.operator import SINCE, Operator, dropped, parsed
from raytrain_eks.spec.kubernetes import is_label_key, is_label_value

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
V2_VARIABLE = "RAY_enable_autoscaler_v2"
FT_ANNOTATION = "ray.io/ft-enabled"
NAMESPACE_ANNOTATION = "ray.io/external-storage-namespace"
HEAD: Path = ("headGroupSpec",)
TEMPLATE: Path = ("headGroupSpec", "template")
ENV: Path = (*TEMPLATE, "spec", "containers", 0, "env")


def of_object(body: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    """Rules of a RayCluster object."""
    yield from name(body, RAY_CLUSTER, "RayCluster")
    yield from _upgrade(body)
    yield from of_spec(section(body, "spec"), ("spec",), operator, section(body, "metadata", "annotations"))


def name(body: Mapping[str, Any], limit: int, kind: str) -> Iterator[Breach]:
    """M1, M2: the length and the form of a name, since the operator makes other names from it."""
    found = text(body, "metadata", "name")
    if len(found) > limit:
        message = f"the name of a {kind} has at most {limit} characters, this one has {len(found)}"
        yield Breach(rule="M1", at=("metadata", "name"), message=message)
    if found and not DNS_1035.match(found):
        message = f"the name of a {kind} must be lower-case letters, digits and dashes, a letter first (DNS-1035)"
        yield Breach(rule="M2", at=("metadata", "name"), message=message)


def _upgrade(body: Mapping[str, Any]) -> Iterator[Breach]:
    kind, at = part(body, "spec", "upgradeStrategy", "type"), ("spec", "upgradeStrategy", "type")
    if kind is None:
        return
    if kind not in ("Recreate", "None"):
        yield Breach(rule="U1", at=at, message="must be Recreate or None")
    if part(body, "metadata", "labels", "ray.io/originated-from-crd") in ("RayJob", "RayService"):
        yield Breach(rule="U2", at=at, message="cannot be set in a cluster that a RayJob or RayService made")


def of_spec(
    spec: Mapping[str, Any], base: Path, operator: Operator, annotations: Mapping[str, Any]
) -> Iterator[Breach]:
    """Rules of a RayCluster's spec that stands at `base`; `annotations` of the object that holds it."""
    checks = [_groups(spec), _autoscaling(spec), _tolerance(spec, annotations, operator), _auth(spec)]
    checks += [_suspended(spec, operator), extras.of_spec(spec, operator)]
    for check in checks:
        for breach in check:
            yield Breach(rule=breach.rule, at=(*base, *breach.at), message=breach.message)
    yield from dropped(spec, base, operator, SINCE)


def autoscales(spec: Mapping[str, Any]) -> bool:
    """Whether the in-tree autoscaler is on."""
    return part(spec, "enableInTreeAutoscaling") is True


def autoscales_v2(spec: Mapping[str, Any]) -> bool:
    """Whether the options ask for the autoscaler's version 2."""
    return text(spec, "autoscalerOptions", "version") == "v2"


def _v2_by_variable(spec: Mapping[str, Any]) -> bool:
    return variables(part(spec, *TEMPLATE)).get(V2_VARIABLE, (0, ""))[1] in ("1", "true")


def _groups(spec: Mapping[str, Any]) -> Iterator[Breach]:
    if not part(spec, *TEMPLATE, "spec", "containers"):
        at = (*TEMPLATE, "spec", "containers")
        yield Breach(rule="C1", at=at, message="the head needs at least one container, Ray's first")
    yield from _group_fields(section(spec, *HEAD), HEAD, "the head")
    seen: set[str] = set()
    for index, group in rows(spec, "workerGroupSpecs"):
        at, called = ("workerGroupSpecs", index), f"the group {text(group, 'groupName') or index}"
        if text(group, "groupName") in seen:
            yield Breach(rule="W1", at=(*at, "groupName"), message="names of worker groups must differ")
        seen.add(text(group, "groupName"))
        if not part(group, "template", "spec", "containers"):
            message = f"{called} needs at least one container, Ray's first"
            yield Breach(rule="C4", at=(*at, "template", "spec", "containers"), message=message)
        yield from _group_fields(group, at, called)
        yield from _replicas(spec, group, at, called)
        yield from _v2_fields(spec, group, at, called)


def _group_fields(group: Mapping[str, Any], at: Path, called: str) -> Iterator[Breach]:
    params = section(group, "rayStartParams")
    both = [key for key in ("num-cpus", "num-gpus", "memory", "resources") if part(params, key)]
    if both and section(group, "resources"):
        message = f"{called} states resources in rayStartParams ({', '.join(both)}) and in `resources`; only one may"
        yield Breach(rule="C2", at=(*at, "resources"), message=message)
    if "labels" in params:
        message = f"{called} must state labels in the field `labels`, not in rayStartParams"
        yield Breach(rule="C3", at=(*at, "rayStartParams", "labels"), message=message)
    for key, value in section(group, "labels").items():
        if not is_label_key(str(key)) or not is_label_value(str(value)):
            message = f"`{key}: {value}` of {called} is no legal label"
            yield Breach(rule="C3", at=(*at, "labels", key), message=message)


def _replicas(spec: Mapping[str, Any], group: Mapping[str, Any], at: Path, called: str) -> Iterator[Breach]:
    least, most = number(group, "minReplicas"), number(group, "maxReplicas")
    if not autoscales(spec) and (least is None or most is None):
        key = "minReplicas" if least is None else "maxReplicas"
        message = f"{called} must state minReplicas and maxReplicas, since the autoscaler is off"
        yield Breach(rule="C4", at=(*at, key), message=message)
    for key, value in (("minReplicas", least), ("maxReplicas", most)):
        if value is not None and value < 0:
            yield Breach(rule="C4", at=(*at, key), message=f"{key} of {called} must not be negative")
    if least is not None and most is not None and least > most:
        message = f"minReplicas of {called} is {least}, more than maxReplicas, which is {most}"
        yield Breach(rule="C4", at=(*at, "minReplicas"), message=message)


def _v2_fields(spec: Mapping[str, Any], group: Mapping[str, Any], at: Path, called: str) -> Iterator[Breach]:
    v2 = autoscales_v2(spec) or _v2_by_variable(spec)
    idle, priority = number(group, "idleTimeoutSeconds"), number(group, "priority")
    if idle is not None and idle < 0:
        yield Breach(rule="C5", at=(*at, "idleTimeoutSeconds"), message=f"of {called} must not be negative")
    elif idle is not None and not v2:
        message = f"of {called} needs the autoscaler's version v2 (autoscalerOptions.version)"
        yield Breach(rule="C5", at=(*at, "idleTimeoutSeconds"), message=message)
    if not priority:
        return
    yield from _ray_at_least(spec, (2, 56, 0), "C6", (*at, "priority"), f"the priority of {called}")
    if not v2:
        message = f"the priority of {called} needs the autoscaler's version v2"
        yield Breach(rule="C6", at=(*at, "priority"), message=message)


def _ray_at_least(
    spec: Mapping[str, Any], least: tuple[int, int, int], rule: str, at: Path, what: str
) -> Iterator[Breach]:
    written, wanted = text(spec, "rayVersion"), ".".join(map(str, least))
    version = parsed(written)
    if version is None or version < least:
        state = f"is {written}" if version else f"is no version: {written}" if written else "is not stated"
        yield Breach(rule=rule, at=at, message=f"{what} needs Ray {wanted} or later, and rayVersion {state}")


def _tolerance(spec: Mapping[str, Any], annotations: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    options = part(spec, "gcsFaultToleranceOptions")
    env = variables(part(spec, *TEMPLATE))
    params = section(spec, *HEAD, "rayStartParams")
    at: Path = ("gcsFaultToleranceOptions",)
    enabled = options is not None or str(annotations.get(FT_ANNOTATION, "")).lower() == "true"
    if annotations.get(FT_ANNOTATION) and options is not None:
        yield Breach(rule="C7", at=at, message=f"the annotation {FT_ANNOTATION} and these options exclude each other")
    if "RAY_REDIS_ADDRESS" in env and not enabled:
        message = "RAY_REDIS_ADDRESS turns fault tolerance on; it is set by gcsFaultToleranceOptions instead"
        yield Breach(rule="C8", at=(*ENV, env["RAY_REDIS_ADDRESS"][0]), message=message)
    if options is not None:
        for variable, instead in (("REDIS_PASSWORD", "redisPassword"), ("RAY_REDIS_ADDRESS", "redisAddress")):
            if variable in env:
                message = f"{variable} is set by gcsFaultToleranceOptions.{instead} instead"
                yield Breach(rule="C9", at=(*ENV, env[variable][0]), message=message)
        if part(params, "redis-password"):
            message = "is set by gcsFaultToleranceOptions.redisPassword instead"
            yield Breach(rule="C9", at=(*HEAD, "rayStartParams", "redis-password"), message=message)
        if annotations.get(NAMESPACE_ANNOTATION):
            message = f"the annotation {NAMESPACE_ANNOTATION} is set by externalStorageNamespace instead"
            yield Breach(rule="C9", at=at, message=message)
        yield from _backend(spec, section(spec, *at), env, operator)
    message = "is set by gcsFaultToleranceOptions.redisUsername instead"
    if part(params, "redis-username"):
        yield Breach(rule="C11", at=(*HEAD, "rayStartParams", "redis-username"), message=message)
    if "REDIS_USERNAME" in env:
        yield Breach(rule="C11", at=(*ENV, env["REDIS_USERNAME"][0]), message=f"REDIS_USERNAME {message}")


def _backend(
    spec: Mapping[str, Any], options: Mapping[str, Any], env: Mapping[str, tuple[int, str]], operator: Operator
) -> Iterator[Breach]:
    at: Path = ("gcsFaultToleranceOptions",)
    if (part(options, "backend") or "redis") != "rocksdb":
        if part(options, "storage") is not None:
            yield Breach(rule="C10", at=(*at, "storage"), message="only the backend rocksdb has storage")
        return
    gate = "GCSFaultToleranceEmbeddedStorage"
    if not operator.enabled(gate):
        yield Breach(rule="C10", at=(*at, "backend"), message=f"rocksdb needs the operator's feature gate {gate}")
    for key in ("redisAddress", "redisUsername", "redisPassword", "externalStorageNamespace"):
        if part(options, key):
            yield Breach(rule="C10", at=(*at, key), message="the backend rocksdb has no Redis")
    storage = section(options, "storage")
    for key in ("size", "storageClassName", "accessModes"):
        if part(storage, "claimName") and part(storage, key):
            message = "an existing claim (claimName) has its own"
            yield Breach(rule="C10", at=(*at, "storage", key), message=message)
    for variable in ("RAY_gcs_storage", "RAY_gcs_storage_path"):
        if variable in env:
            yield Breach(rule="C10", at=(*ENV, env[variable][0]), message=f"the operator sets {variable} itself")
    for index, mount in rows(spec, *TEMPLATE, "spec", "containers", 0, "volumeMounts"):
        if text(mount, "name") == "gcs-storage" or text(mount, "mountPath") == "/data/gcs":
            where = (*TEMPLATE, "spec", "containers", 0, "volumeMounts", index)
            yield Breach(rule="C10", at=where, message="the operator mounts gcs-storage at /data/gcs itself")
    for index, volume in rows(spec, *TEMPLATE, "spec", "volumes"):
        if text(volume, "name") == "gcs-storage":
            where = (*TEMPLATE, "spec", "volumes", index)
            yield Breach(rule="C10", at=where, message="the operator adds the volume gcs-storage itself")


def _suspended(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    for index, group in rows(spec, "workerGroupSpecs"):
        if part(group, "suspend") is True:
            at = ("workerGroupSpecs", index, "suspend")
            if not operator.enabled("RayJobDeletionPolicy"):
                message = "a suspended group needs the operator's feature gate RayJobDeletionPolicy"
                yield Breach(rule="C12", at=at, message=message)
            if autoscales(spec):
                yield Breach(rule="C12", at=at, message="a group cannot be suspended while the autoscaler is on")


def _autoscaling(spec: Mapping[str, Any]) -> Iterator[Breach]:
    env = variables(part(spec, *TEMPLATE))
    options = section(spec, "autoscalerOptions")
    if not autoscales(spec) and _v2_by_variable(spec):
        message = f"{V2_VARIABLE} is set, and enableInTreeAutoscaling is not true"
        yield Breach(rule="C13", at=(*ENV, env[V2_VARIABLE][0]), message=message)
    if autoscales(spec) and part(options, "version") is not None and V2_VARIABLE in env:
        message = f"autoscalerOptions.version and {V2_VARIABLE} exclude each other; keep the former"
        yield Breach(rule="C14", at=(*ENV, env[V2_VARIABLE][0]), message=message)
    if autoscales(spec) and autoscales_v2(spec):
        groups: list[Path] = [(), *(("workerGroupSpecs", index) for index, _ in rows(spec, "workerGroupSpecs"))]
        for group in groups:
            at = (*(group or HEAD), "template", "spec", "restartPolicy")
            if part(spec, *at) not in (None, "", "Never"):
                message = "must be Never or left out with the autoscaler's version v2"
                yield Breach(rule="C15", at=at, message=message)
    idle = number(options, "idleTimeoutSeconds")
    if idle is not None and idle < 0:
        at = ("autoscalerOptions", "idleTimeoutSeconds")
        yield Breach(rule="C16", at=at, message="must not be negative")
    for index, row in rows(options, "env"):
        if text(row, "name") == "KUBERAY_GEN_AUTOSCALER_START_CMD":
            message = "the operator sets KUBERAY_GEN_AUTOSCALER_START_CMD itself"
            yield Breach(rule="C17", at=("autoscalerOptions", "env", index), message=message)


def _auth(spec: Mapping[str, Any]) -> Iterator[Breach]:
    options = section(spec, "authOptions")
    by_kubernetes = part(options, "enableK8sTokenAuth") is True
    if part(options, "mode") != "token":
        if by_kubernetes:
            at = ("authOptions", "enableK8sTokenAuth")
            yield Breach(rule="C19", at=at, message="needs authOptions.mode: token")
        return
    yield from _ray_at_least(spec, (2, 52, 0), "C19", ("authOptions", "mode"), "token authentication")
    if by_kubernetes:
        at = ("authOptions", "enableK8sTokenAuth")
        yield from _ray_at_least(spec, (2, 55, 0), "C19", at, "authentication by Kubernetes tokens")
        if part(options, "secretName"):
            message = "excludes secretName: the token is the service account's own"
            yield Breach(rule="C19", at=at, message=message)
