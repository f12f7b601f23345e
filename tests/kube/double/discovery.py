"""What a client asks before it asks anything: versions, groups, resources, and which of them take which parameters."""

from typing import Any

from double.kinds import Kind, Kinds
from double.schema import VERSION
from double.store import Body

_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
_REVIEWS = {
    "authorization.k8s.io": ("SelfSubjectAccessReview", "SelfSubjectRulesReview"),
    "authentication.k8s.io": ("SelfSubjectReview",),
}
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def version() -> Body:
    """/version"""
    major, minor = VERSION.split(".")
    found = {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.5-eks-113cf36", "platform": "linux/amd64"}
    return {**found, "gitCommit": "0" * 40, "gitTreeState": "clean", "goVersion": "go1.24.6", "compiler": "gc"}


def core_versions() -> Body:
    """/api"""
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _groups(kinds: Kinds) -> dict[str, list[str]]:
    found = {group: versions for group, versions in kinds.groups().items() if group}
    return {**found, **{group: ["v1"] for group in _REVIEWS}}


def groups(kinds: Kinds) -> Body:
    """/apis"""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group(*each) for each in _groups(kinds).items()]}


def group(kinds: Kinds, name: str) -> Body | None:
    """/apis/GROUP"""
    versions = _groups(kinds).get(name)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)} if versions else None


def _group(name: str, versions: list[str]) -> Body:
    both = [{"groupVersion": f"{name}/{one}", "version": one} for one in versions]
    return {"name": name, "versions": both, "preferredVersion": both[0]}


def resources(kinds: Kinds, group: str, version: str) -> Body | None:
    """/apis/GROUP/VERSION and /api/v1"""
    found: list[Body] = []
    for kind in kinds:
        if kind.group == group and version in kind.versions:
            one: Body = {"name": kind.plural, "singularName": kind.name.lower(), "namespaced": kind.namespaced}
            one |= {"kind": kind.name, "verbs": _VERBS}
            one |= {"shortNames": list(kind.short)} if kind.short else {}
            found.append(one | ({"categories": list(kind.categories)} if kind.categories else {}))
            found += [
                {"name": f"{kind.plural}/{sub}", "singularName": "", "namespaced": kind.namespaced} | of
                for sub, of in _subresources(kind)
            ]
    for review in _REVIEWS.get(group, ()) if version == "v1" else ():
        plural = review.lower() + "s"
        found.append({"name": plural, "singularName": "", "namespaced": False, "kind": review, "verbs": ["create"]})
    if not found:
        return None
    at = f"{group}/{version}" if group else version
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": at, "resources": found}


def _subresources(kind: Kind) -> list[tuple[str, Body]]:
    found: list[tuple[str, Body]] = []
    if kind.status:
        found.append(("status", {"kind": kind.name, "verbs": ["get", "patch", "update"]}))
    if kind.plural == "pods":
        found.append(("log", {"kind": "Pod", "verbs": ["get"]}))
    if kind.plural in ("pods", "services") and not kind.group:
        verbs = ["create", "delete", "get", "patch", "update"]
        found.append(("proxy", {"kind": f"{kind.name}ProxyOptions", "verbs": verbs}))
    return found


def aggregated(kinds: Kinds, *, core: bool) -> Body:
    """/api and /apis for a client that takes everything in one answer."""
    of = {"": ["v1"]} if core else _groups(kinds)
    items = []
    for name, versions in of.items():
        each = []
        for one in versions:
            listed = resources(kinds, name, one)
            assert listed is not None
            each.append({"version": one, "freshness": "Current", "resources": _nested(name, one, listed["resources"])})
        items.append({"metadata": {"name": name} if name else {"creationTimestamp": None}, "versions": each})
    return {"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items}


def _nested(group: str, version: str, listed: list[Body]) -> list[Body]:
    found: dict[str, Body] = {}
    for one in listed:
        plural, _, sub = one["name"].partition("/")
        kind = {"group": group, "version": version, "kind": one["kind"]}
        if sub:
            inner = {"subresource": sub, "responseKind": kind, "verbs": one["verbs"]}
            found[plural].setdefault("subresources", []).append(inner)
        else:
            found[plural] = {"resource": plural, "responseKind": kind, "verbs": one["verbs"]}
            found[plural] |= {"scope": "Namespaced" if one["namespaced"] else "Cluster"}
            found[plural] |= {"singularResource": one["singularName"]}
            found[plural] |= {key: one[key] for key in ("shortNames", "categories") if key in one}
    return list(found.values())


def openapi_paths(kinds: Kinds) -> Body:
    """/openapi/v3"""
    found: dict[str, Any] = {}
    for group, versions in kinds.groups().items():
        for version in versions:
            path = f"apis/{group}/{version}" if group else f"api/{version}"
            found[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": found}


def openapi(kinds: Kinds, group: str, version: str) -> Body:
    """/openapi/v3/...: the paths and their parameters, which clients look at before they ask for server-side
    validation; without schemas, which they do not need for it."""
    parameters = [{"name": name, "in": "query"} for name in ("dryRun", "fieldManager", "fieldValidation")]
    paths: Body = {}
    for kind in kinds:
        if kind.group == group and version in kind.versions:
            start = f"/apis/{group}/{version}" if group else f"/api/{version}"
            within = "/namespaces/{namespace}" if kind.namespaced else ""
            mark = {"x-kubernetes-group-version-kind": {"group": group, "version": version, "kind": kind.name}}
            each = {"parameters": parameters, "responses": {}, **mark}
            paths[f"{start}{within}/{kind.plural}"] = {"post": {**each, "x-kubernetes-action": "post"}}
            one = {"patch": {**each, "x-kubernetes-action": "patch"}, "put": {**each, "x-kubernetes-action": "put"}}
            paths[f"{start}{within}/{kind.plural}/{{name}}"] = one
    info = {"title": "Kubernetes", "version": f"v{VERSION}"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
