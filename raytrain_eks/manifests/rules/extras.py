"""Rules of a RayCluster's history server (C18), network policy (C20) and TLS (C21)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.manifests.rules.breach import RAY, Breach, Path, part, rows, section, text, variables
from raytrain_eks.manifests.rules.operator import Operator

DNS_1123 = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
COLLECTOR = "ray-history-collector"
OWNED = (
    "POD_IP",
    "FQ_RAY_IP",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_ROLE",
    "OWNER_KIND",
    "OWNER_NAME",
    "EVENTS_PORT",
)
"""Variables of the collector that the operator sets itself."""
TLS = ("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
NEEDED = {
    "GCS": ("GCS_BUCKET",),
    "S3": ("S3_REGION",),
    "ALIYUNOSS": ("ALIYUN_BUCKET", "ALIYUN_ENDPOINT", "ALIYUN_REGION"),
}
"""Storage backend of the collector -> the variables that it needs."""


def of_spec(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    """What a RayCluster's spec says about the three."""
    yield from _history(spec, operator)
    yield from _network(spec, operator)
    yield from _tls(spec, operator)


def _templates(spec: Mapping[str, Any]) -> Iterator[Path]:
    yield ("headGroupSpec", "template")
    for index, _ in rows(spec, "workerGroupSpecs"):
        yield ("workerGroupSpecs", index, "template")


def _history(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    at: Path = ("historyServerOptions",)
    if part(spec, *at) is None:
        return
    if not operator.enabled("RayClusterHistoryServer"):
        yield Breach(rule="C18", at=at, message="needs the operator's feature gate RayClusterHistoryServer")
    collector: Path = (*at, "collectorOptions")
    if part(spec, *collector) is None:
        yield Breach(rule="C18", at=collector, message="must be set")
        return
    if not part(spec, *collector, "image"):
        yield Breach(rule="C18", at=(*collector, "image"), message="must be set")
    yield from _collector(spec, collector)
    for template in _templates(spec):
        for index, container in rows(spec, *template, "spec", "containers"):
            if text(container, "name") == COLLECTOR:
                where = (*template, "spec", "containers", index, "name")
                yield Breach(rule="C18", at=where, message=f"the operator adds the container {COLLECTOR} itself")


def _collector(spec: Mapping[str, Any], collector: Path) -> Iterator[Breach]:
    at: Path = (*collector, "env")
    env = {text(row, "name"): (index, row) for index, row in rows(spec, *at)}
    for name in OWNED:
        if name in env:
            yield Breach(rule="C18", at=(*at, env[name][0]), message=f"the operator sets {name} itself")
    backend = text(env.get("STORAGE_BACKEND", (0, {}))[1], "value").upper()
    if not backend:
        yield Breach(rule="C18", at=at, message="needs STORAGE_BACKEND with a literal value")

    def given(name: str) -> bool:
        row = env.get(name, (0, {}))[1]
        return bool(text(row, "value")) or part(row, "valueFrom") is not None

    needed: tuple[str, ...] = NEEDED.get(backend, ())
    if backend == "AZUREBLOB":
        key, account = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL"
        mode = text(env.get("AZURE_STORAGE_AUTH_MODE", (0, {}))[1], "value").strip().lower()
        either = () if given(key) or given(account) else (f"{key} or {account}",)
        by_mode = {"connection_string": (key,), "workload_identity": (account,), "default": (account,)}
        needed = by_mode.get(mode, either)
    for name in needed:
        if " or " in name or not given(name):
            yield Breach(rule="C18", at=at, message=f"STORAGE_BACKEND {backend} needs {name}")


def _network(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    at: Path = ("networkPolicy",)
    policy = part(spec, *at)
    if policy is None:
        return
    if not operator.enabled("RayClusterNetworkPolicy"):
        yield Breach(rule="C20", at=at, message="needs the operator's feature gate RayClusterNetworkPolicy")
    mode = part(policy, "mode") or "DenyAll"
    open_side = {"DenyAllEgress": "ingressRules", "DenyAllIngress": "egressRules"}.get(str(mode))
    places: list[Path] = [(*at, "head"), (*at, "worker")]
    places += [(*at, "workerGroups", index) for index, _ in rows(policy, "workerGroups")]
    for place in places:
        if open_side and part(spec, *place, open_side):
            message = f"{mode} leaves that direction open, so there is nothing to allow"
            yield Breach(rule="C20", at=(*place, open_side), message=message)
    names = set()
    for index, group in rows(spec, "workerGroupSpecs"):
        name = text(group, "groupName")
        names.add(name)
        if not DNS_1123.match(name):
            where: Path = ("workerGroupSpecs", index, "groupName")
            yield Breach(rule="C20", at=where, message="with networkPolicy a group's name must be a DNS-1123 label")
    for index, row in rows(policy, "workerGroups"):
        if text(row, "groupName") not in names:
            where = (*at, "workerGroups", index, "groupName")
            yield Breach(rule="C20", at=where, message="is the name of no worker group")


def _tls(spec: Mapping[str, Any], operator: Operator) -> Iterator[Breach]:
    at: Path = ("tlsOptions",)
    if part(spec, *at) is None:
        return
    if not operator.enabled("RayClusterMTLS"):
        yield Breach(rule="C21", at=at, message="needs the operator's feature gate RayClusterMTLS")
    if section(spec, *at).get("enabled") is not True:
        return
    for template in _templates(spec):
        env = variables(part(spec, *template))
        for name in TLS:
            if name in env:
                where = (*template, *RAY, "env", env[name][0])
                yield Breach(rule="C21", at=where, message=f"the operator sets {name} itself")
        yield from _tls_mounts(spec, (*template, *RAY, "volumeMounts"))
    for index, row in rows(spec, "autoscalerOptions", "env"):
        if text(row, "name") in TLS:
            where = ("autoscalerOptions", "env", index)
            yield Breach(rule="C21", at=where, message=f"the operator sets {text(row, 'name')} itself")
    yield from _tls_mounts(spec, ("autoscalerOptions", "volumeMounts"))


def _tls_mounts(spec: Mapping[str, Any], at: Path) -> Iterator[Breach]:
    for index, mount in rows(spec, *at):
        if text(mount, "name") == "ray-tls" or text(mount, "mountPath") == "/etc/ray/tls":
            yield Breach(rule="C21", at=(*at, index), message="the operator mounts ray-tls at /etc/ray/tls itself")
