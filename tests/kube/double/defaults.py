"""Defaults that Kubernetes' own types get when they are kept: the ones a comparison with what was sent meets."""

import base64
from typing import Any

from double.kinds import Kind
from double.plain import copied
from double.store import Body

_POD = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "securityContext": {},
    "enableServiceLinks": True,
}
_CONTAINER = {"terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File"}
_ROLLING = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
_SPEC: dict[str, dict[str, Any]] = {
    "daemonsets": {"revisionHistoryLimit": 10, "updateStrategy": _ROLLING},
    "deployments": {
        "replicas": 1,
        "revisionHistoryLimit": 10,
        "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}},
    },
    "jobs": {"backoffLimit": 6, "completions": 1, "parallelism": 1, "completionMode": "NonIndexed", "suspend": False},
    "services": {"type": "ClusterIP", "sessionAffinity": "None", "internalTrafficPolicy": "Cluster"},
    "persistentvolumeclaims": {"volumeMode": "Filesystem"},
    "persistentvolumes": {"volumeMode": "Filesystem", "persistentVolumeReclaimPolicy": "Retain"},
    "namespaces": {"finalizers": ["kubernetes"]},
}
_TOP: dict[str, dict[str, Any]] = {
    "storageclasses": {"reclaimPolicy": "Delete", "volumeBindingMode": "Immediate"},
    "secrets": {"type": "Opaque"},
}
_STATUS: dict[str, dict[str, Any]] = {
    "namespaces": {"phase": "Active"},
    "pods": {"phase": "Pending"},
    "persistentvolumeclaims": {"phase": "Pending"},
    "persistentvolumes": {"phase": "Available"},
    "services": {"loadBalancer": {}},
}


def fill(kind: Kind, body: Body, live: Body | None) -> None:
    """Defaults of the kind into the body, which is changed."""
    for name, value in _TOP.get(kind.plural, {}).items():
        body.setdefault(name, copied(value))
    if kind.plural in _SPEC:
        spec = body.setdefault("spec", {})
        for name, value in _SPEC[kind.plural].items():
            spec.setdefault(name, copied(value))
    if live is None and kind.plural in _STATUS:
        body["status"] = dict(_STATUS[kind.plural])
    if kind.plural == "pods":
        _pod(body.get("spec") or {})
        _requests(body.get("spec") or {})
    elif kind.group in ("apps", "batch"):
        spec = body.get("spec") or {}
        spec = (spec.get("jobTemplate") or {}).get("spec") or spec
        _pod((spec.get("template") or {}).get("spec") or {})
    elif kind.plural == "services":
        _service(body["spec"], body["metadata"].get("uid", ""))
    elif kind.plural == "secrets":
        for name, text in (body.pop("stringData", None) or {}).items():
            body.setdefault("data", {})[name] = base64.b64encode(text.encode()).decode()
    elif kind.plural == "namespaces":
        body["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = body["metadata"]["name"]


def _pod(spec: dict[str, Any]) -> None:
    if not spec:
        return
    for name, value in _POD.items():
        spec.setdefault(name, copied(value))
    if "serviceAccountName" in spec:
        spec["serviceAccount"] = spec["serviceAccountName"]
    for container in [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]:
        for name, value in _CONTAINER.items():
            container.setdefault(name, value)
        image = container.get("image", "")
        latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
        container.setdefault("imagePullPolicy", "Always" if latest and "@" not in image else "IfNotPresent")
        container.setdefault("resources", {})
        for port in container.get("ports") or ():
            port.setdefault("protocol", "TCP")


def _requests(spec: dict[str, Any]) -> None:
    """What a pod limits and does not request, it requests as much of; templates are left as they are."""
    for container in spec.get("containers") or ():
        limits = (container["resources"] or {}).get("limits") or {}
        if limits:
            container["resources"]["requests"] = {**limits, **(container["resources"].get("requests") or {})}


def _service(spec: dict[str, Any], uid: str) -> None:
    for port in spec.get("ports") or ():
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))
    if spec["type"] != "ExternalName" and "clusterIP" not in spec:
        number = int(uid.replace("-", "") or "1", 16)
        spec["clusterIP"] = f"10.100.{number % 250}.{number // 250 % 250 + 1}"
    if "clusterIP" in spec:
        spec.setdefault("clusterIPs", [spec["clusterIP"]])
        spec.setdefault("ipFamilies", ["IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")
