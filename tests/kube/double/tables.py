"""Tables, as `kubectl get` asks for them."""

import re
from datetime import UTC, datetime
from typing import Any

from double.kinds import Kind
from double.store import Body

_DEFINITION = {"format": "", "description": "", "priority": 0}


def wanted(accept: str) -> bool:
    """Whether a client would rather have a table."""
    return "as=Table" in accept.split(",")[0]


def table(kind: Kind, version: str, bodies: list[Body], at: str) -> Body:
    """Objects as a meta.k8s.io/v1 Table."""
    columns, cells = _columns(kind, version)
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": at},
        "columnDefinitions": [{**_DEFINITION, "type": "string", **column} for column in columns],
        "rows": [
            {
                "cells": cells(body),
                "object": {
                    "kind": "PartialObjectMetadata",
                    "apiVersion": "meta.k8s.io/v1",
                    "metadata": body["metadata"],
                },
            }
            for body in bodies
        ],
    }


def _columns(kind: Kind, version: str) -> tuple[list[Body], Any]:
    name, age = {"name": "Name", "format": "name"}, {"name": "Age"}
    if kind.custom:
        extra = kind.columns.get(version) or []
        columns = [name, *({"name": one["name"].title(), **_of(one)} for one in extra)]
        if not any(one["name"].lower() == "age" for one in extra):
            columns.append(age)
            extra = [*extra, {"jsonPath": ".metadata.creationTimestamp", "type": "date", "name": "age"}]
        return columns, lambda body: [body["metadata"]["name"], *(_cell(body, one) for one in extra)]
    more = _OWN.get(kind.plural, {})
    columns = [name, *({"name": title} for title in more), age]
    return columns, lambda body: [body["metadata"]["name"], *(get(body) for get in more.values()), _age(body)]


def _of(column: Body) -> Body:
    kind = column.get("type", "string")
    return {"type": "string" if kind == "date" else kind, "priority": column.get("priority", 0)}


def _cell(body: Body, column: Body) -> Any:
    value: Any = body
    for name in re.findall(r"[^.\[\]]+|\[[^\]]*\]", column["jsonPath"]):
        match = re.fullmatch(r"\[\?\(@\.(\w+)\s*==\s*['\"](.+)['\"]\)\]", name)
        if match and isinstance(value, list):
            value = next((one for one in value if one.get(match[1]) == match[2]), None)
        else:
            value = value.get(name) if isinstance(value, dict) else None
    if column.get("type") == "date" and value:
        return since(value)
    return value


def _age(body: Body) -> str:
    return since(body["metadata"].get("creationTimestamp") or "")


def since(time: str) -> str:
    """How long ago, as kubectl writes it."""
    if not time:
        return "<unknown>"
    seconds = int((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())
    if seconds < 120:
        return f"{max(0, seconds)}s"
    return (
        f"{seconds // 60}m" if seconds < 7200 else f"{seconds // 3600}h" if seconds < 172800 else f"{seconds // 86400}d"
    )


def _ready(body: Body) -> str:
    statuses = body.get("status", {}).get("containerStatuses") or []
    count = len(body.get("spec", {}).get("containers") or ())
    return f"{sum(bool(one.get('ready')) for one in statuses)}/{count}"


def _phase(body: Body) -> str:
    if body["metadata"].get("deletionTimestamp"):
        return "Terminating"
    status = body.get("status", {})
    for one in status.get("containerStatuses") or []:
        for state in ("waiting", "terminated"):
            reason = (one.get("state", {}).get(state) or {}).get("reason")
            if reason:
                return str(reason)
    return str(status.get("reason") or status.get("phase", ""))


def _restarts(body: Body) -> int:
    return sum(one.get("restartCount", 0) for one in body.get("status", {}).get("containerStatuses") or [])


_OWN: dict[str, dict[str, Any]] = {
    "pods": {"Ready": _ready, "Status": _phase, "Restarts": _restarts},
    "namespaces": {"Status": lambda body: body.get("status", {}).get("phase", "")},
    "configmaps": {"Data": lambda body: len(body.get("data") or {})},
    "secrets": {"Type": lambda body: body.get("type", ""), "Data": lambda body: len(body.get("data") or {})},
    "events": {
        "Type": lambda body: body.get("type", ""),
        "Reason": lambda body: body.get("reason", ""),
        "Message": lambda body: body.get("message", ""),
    },
    "persistentvolumeclaims": {"Status": lambda body: body.get("status", {}).get("phase", "")},
    "services": {
        "Type": lambda body: body["spec"].get("type", ""),
        "Cluster-IP": lambda body: body["spec"].get("clusterIP", ""),
    },
}
"""Columns between name and age, of resources where they say something."""
