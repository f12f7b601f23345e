"""RT82x: who can reach a cluster's door, and who can read its secrets."""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.rules.ray import Cluster, clusters
from raytrain_eks.lint.tree import get, items, mapping, text
from raytrain_eks.spec.secret_names import reveals

OUTSIDE = ("NodePort", "LoadBalancer")
DOORS = {"8265": "the dashboard with the Jobs API", "10001": "Ray's client port", "6379": "the GCS"}
"""Port of a head -> what listens there; each of them runs whatever it is given."""
NAMES = {"dashboard": "8265", "client": "10001", "gcs-server": "6379", "redis": "6379"}
"""Names that KubeRay gives these ports."""


def _guarded(cluster: Cluster) -> bool:
    return text(get(cluster.spec, "authOptions", "mode")) == "token"


def _exposed(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    fix = "write authOptions: {mode: token}, or keep the head inside: serviceType: ClusterIP and no ingress"
    for cluster in clusters(bundle):
        if _guarded(cluster):
            continue
        head, path = mapping(cluster.spec.get("headGroupSpec")), (*cluster.path, "headGroupSpec")
        ways = {
            ("serviceType",): text(head.get("serviceType")),
            ("headService", "spec", "type"): text(get(head, "headService", "spec", "type")),
        }
        for steps, type in ways.items():
            if type in OUTSIDE:
                reason = (
                    f"{type}: whoever reaches the nodes runs code in the cluster, for its Jobs API asks for no token"
                )
                yield Hit(on=cluster.owner, path=(*path, *steps), reason=reason, fix=fix)
        if text(head.get("enableIngress")) == "true":
            reason = "an ingress leads to the dashboard, and its Jobs API asks for no token"
            yield Hit(on=cluster.owner, path=(*path, "enableIngress"), reason=reason, fix=fix)
    guarded = {cluster.owner.name for cluster in clusters(bundle) if _guarded(cluster)}
    for service in bundle.of("", "Service"):
        if text(service.get("spec", "type")) in OUTSIDE and not _leads_to(service, guarded):
            yield from _service(service, fix)
    for ingress in bundle.of("networking.k8s.io", "Ingress"):
        yield from _ingress(ingress, guarded, fix)


def _leads_to(service: Resource, guarded: set[str]) -> bool:
    return text(get(service.data, "spec", "selector", "ray.io/cluster")) in guarded


def _service(service: Resource, fix: str) -> Iterator[Hit]:
    if text(get(service.data, "spec", "selector", "ray.io/node-type")) not in ("", "head"):
        return
    for index, port in enumerate(items(service.get("spec", "ports"))):
        door = _door(mapping(port).get("targetPort", mapping(port).get("port")))
        if door is not None:
            type = text(service.get("spec", "type"))
            reason = f"{type}: {DOORS[door]} is reached from outside, and nothing says that it asks for a token"
            yield Hit(on=service, path=(*service.base, "spec", "ports", index), reason=reason, fix=fix)


def _ingress(ingress: Resource, guarded: set[str], fix: str) -> Iterator[Hit]:
    for rule_index, rule in enumerate(items(ingress.get("spec", "rules"))):
        for index, entry in enumerate(items(get(mapping(rule), "http", "paths"))):
            service: Mapping[str, Any] = mapping(get(mapping(entry), "backend", "service"))
            port = mapping(service.get("port"))
            door = _door(port.get("number", port.get("name")))
            cluster = text(service.get("name")).removesuffix("-head-svc")
            if door is not None and cluster not in guarded:
                path = (*ingress.base, "spec", "rules", rule_index, "http", "paths", index, "backend")
                reason = f"an ingress leads to {DOORS[door]}, and nothing says that it asks for a token"
                yield Hit(on=ingress, path=path, reason=reason, fix=fix)


def _door(port: Any) -> str | None:
    """The port of a head by its number or name; None for any other."""
    found = NAMES.get(text(port), text(port))
    return found if found in DOORS else None


def _plain_secrets(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.containers:
            for name, (value, path) in container.env.items():
                if value is not None and reveals(name, value):
                    reason = f"{name} has its value in the manifest, where everyone who may read the object reads it"
                    fix = "keep it in a Secret and refer to it: valueFrom: {secretKeyRef: {name: …, key: …}}"
                    yield Hit(on=pod.owner, path=path, reason=reason, fix=fix)


RULES = (
    Rule(
        id="RT820",
        severity="error",
        title="A dashboard that anyone may use",
        why="Ray's dashboard, Jobs API and client port run whatever they are given, with the rights of the pods. "
        "Without token authentication (Ray 2.52, authOptions of KubeRay 1.5.1) whoever reaches them owns the cluster; "
        "exposed ones have been taken over (ShadowRay, 2024).",
        fix="Token authentication, and ClusterIP with kubectl port-forward.",
        check=_exposed,
    ),
    Rule(
        id="RT821",
        severity="error",
        title="A secret in plain sight",
        why="A literal value of an environment variable is in etcd, in the repository of the manifests and in every "
        "`kubectl get -o yaml`. The rule goes by the variable's name; the value is never shown.",
        fix="A Secret, and a reference to its key.",
        check=_plain_secrets,
    ),
)
