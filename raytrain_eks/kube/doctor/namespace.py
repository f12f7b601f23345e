"""The namespace: whether it is there, and what in it would refuse, hold back or hide a pod; and what pods refer to."""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, place
from raytrain_eks.kube.errors import Forbidden
from raytrain_eks.spec.cluster_queue import Volcano
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

ENFORCE = "pod-security.kubernetes.io/enforce"
PULLING = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName")


def examine(look: Look) -> Iterator[Diagnosis]:
    """The namespace, then what pods in it name."""
    where = f"Namespace {look.namespace}"
    found = look.client.find("v1", "Namespace", look.namespace)
    if found is None:
        if look.brings("Namespace", look.namespace):
            yield green("namespace.exists", where, "is not there yet; `apply` makes it")
        else:
            yield red("namespace.exists", where, "does not exist", f"kubectl create namespace {look.namespace}")
        return
    if (found.get("status") or {}).get("phase") == "Terminating":
        yield red("namespace.exists", where, "is being deleted", "wait until it is gone; finalizers may hold it")
        return
    yield green("namespace.exists", where, "exists")
    yield from security(look, found)
    yield from quota(look)
    yield from secrets(look)
    yield from priority(look)
    yield from pulling(look)


def security(look: Look, namespace: Body) -> Iterator[Diagnosis]:
    """Pod Security admission refuses pods when they are created, long after a RayJob was taken."""
    level = ((namespace.get("metadata") or {}).get("labels") or {}).get(ENFORCE)
    if look.plan is None or level in (None, "privileged"):
        return
    id, where = "namespace.security", place(namespace)
    if look.plan.cluster.network.host_network:
        why = f"enforces `{level}`, which refuses pods on the host's network: no worker is ever created"
        yield red(id, where, why, f"label it {ENFORCE}=privileged, or leave host_network out")
    elif level == "restricted":
        why = "enforces `restricted`: pods without runAsNonRoot, seccompProfile and dropped capabilities are refused"
        yield yellow(id, where, why, f"label it {ENFORCE}=baseline, or add a securityContext by `pod`")
    else:
        yield green(id, where, f"enforces `{level}`, which Ray's pods keep to")


def quota(look: Look) -> Iterator[Diagnosis]:
    """A quota on CPU or memory refuses every pod that states none, as the operator's own init container."""
    quotas = list(look.client.list("v1", "ResourceQuota", look.namespace))
    limits = list(look.client.list("v1", "LimitRange", look.namespace))
    brought = any(each.kind == "LimitRange" for each in look.bundle.objects)
    for each in quotas:
        hard = (each.get("spec") or {}).get("hard") or {}
        on_pods = sorted(
            name for name in hard if name.removeprefix("requests.").removeprefix("limits.") in ("cpu", "memory")
        )
        if on_pods and not brought and not any(map(_defaults, limits)):
            why = f"limits {', '.join(on_pods)}, and no LimitRange gives defaults: it refuses KubeRay's init container"
            fix = "add a LimitRange with defaultRequest (and default, for limits), as `ground: {resource_quota: true}`"
            yield red("namespace.quota", place(each), why, fix)
        elif hard:
            yield _room(look, each, hard)


def _defaults(limit_range: Body) -> bool:
    entries = (limit_range.get("spec") or {}).get("limits") or []
    return any(each.get("type") == "Container" and each.get("defaultRequest") for each in entries)


def _room(look: Look, each: Body, hard: Mapping[str, Any]) -> Diagnosis:
    """What the largest group needs against what is left of accelerators."""
    from raytrain_eks.kube.doctor.queues import wanted
    from raytrain_eks.spec.quantity import parse

    used = (each.get("status") or {}).get("used") or {}
    short = []
    for name, count in (wanted(look.plan) if look.plan is not None else {}).items():
        key = f"requests.{name}"
        if key in hard and (left := parse(str(hard[key])) - parse(str(used.get(key) or 0))) < count:
            short.append(f"{left} {name} left of {hard[key]}, the groups have {count} at most")
    if short:
        return yellow("namespace.quota", place(each), "; ".join(short), "raise the quota, or take fewer nodes")
    return green("namespace.quota", place(each), "leaves room")


def secrets(look: Look) -> Iterator[Diagnosis]:
    """Secrets that the file names and does not make. Their values are not looked at, only their keys."""
    if look.plan is None:
        return
    cluster = look.plan.cluster
    keys = {(reference.name, reference.key) for reference in cluster.secrets.values()}
    keys |= {(cluster.auth.secret, "auth_token")} if cluster.auth.secret else set()
    for name, key in sorted(keys):
        yield _secret(look, name, key)
    for name in cluster.ray.pull_secrets:
        yield _secret(look, name, ".dockerconfigjson")


def _secret(look: Look, name: str, key: str) -> Diagnosis:
    id, where = "namespace.secret", f"Secret {look.namespace}/{name}"
    try:
        found = look.client.find("v1", "Secret", name, look.namespace)
    except Forbidden:
        return yellow(
            id, where, "may not be looked at, so whether it is there is not known", "ask who may: get secrets"
        )
    if found is None:
        why = "does not exist: pods that name it stay in CreateContainerConfigError"
        return red(id, where, why, f"kubectl -n {look.namespace} create secret generic {name} --from-file={key}=FILE")
    there = {*(found.get("data") or {}), *(found.get("stringData") or {})}
    if key not in there:
        return red(id, where, f"has no key {key}; it has {', '.join(sorted(there)) or 'none'}", "add the key")
    return green(id, where, f"has the key {key}")


def priority(look: Look) -> Iterator[Diagnosis]:
    """The PriorityClass of the queue."""
    queue = look.plan.cluster.queue if look.plan is not None else None
    if isinstance(queue, Volcano) and queue.priority:
        where = f"PriorityClass {queue.priority}"
        if look.client.find("scheduling.k8s.io/v1", "PriorityClass", queue.priority) is None:
            yield red("namespace.priority", where, "does not exist, and pods that name it are refused", "create it")
        else:
            yield green("namespace.priority", where, "exists")


def pulling(look: Look) -> Iterator[Diagnosis]:
    """Pods of the namespace whose images are not pulled now: the next job's may be the same."""
    failing: dict[str, str] = {}
    for pod in look.client.list("v1", "Pod", look.namespace):
        for each in (pod.get("status") or {}).get("containerStatuses") or []:
            waiting = (each.get("state") or {}).get("waiting") or {}
            if waiting.get("reason") in PULLING:
                failing.setdefault(str(each.get("image")), str(waiting.get("message") or waiting["reason"])[:300])
    for image, why in sorted(failing.items()):
        fix = "does the tag exist, may the nodes' role pull it (ecr:BatchGetImage), is there a pull secret?"
        yield red("images.pull", image, f"cannot be pulled: {why}", fix)
