"""Create, replace, patch and apply, with what an API server does around them: versions, generations, defaults,
managed fields, optimistic concurrency, the status subresource, dry runs."""

import random
import uuid
from dataclasses import dataclass, replace
from typing import Any

from double import managed, patch, refusal
from double.admission import Admission
from double.deletion import Deletion
from double.kinds import Kind, of_definition
from double.plain import copied
from double.store import Body, Store, now

_KEPT = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink")
"""Metadata that no write changes."""
_WITHOUT_GENERATION = {"configmaps", "secrets", "events", "serviceaccounts", "namespaces", "nodes", "endpoints"}
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names."""


@dataclass(frozen=True)
class Write:
    """How something is written."""

    manager: str = "unknown"
    subresource: str = ""
    dry_run: bool = False
    validation: str = "Warn"
    """`Strict`, `Warn` or `Ignore`: what happens to unknown fields."""
    force: bool = False
    """Of an apply: take fields that others own."""
    version: str = ""
    """The version of the API that is written in; empty: the stored one."""


class Writer:
    """The writing half of the API server."""

    def __init__(self, store: Store):
        self.store = store
        self.admission = Admission(store)
        self.deletion = Deletion(store)

    def create(self, kind: Kind, namespace: str, body: Body, write: Write) -> Body:
        """A new object, as kept."""
        with self.store.lock:
            body = self._addressed(kind, namespace, body, write)
            meta = body["metadata"]
            self.admission.namespace_takes(kind, namespace, meta["name"])
            if self.store.get(kind, namespace, meta["name"]) is not None:
                raise refusal.exists(kind, meta["name"])
            self._born(kind, meta)
            if kind.status:
                body.pop("status", None)
            body = self.admission.admit(kind, write, body, None)
            body["metadata"]["managedFields"] = managed.track(self._shape(kind, write), {}, body, _owner(kind, write))
            return body if write.dry_run else self._keep(kind, body)

    def restore(self, kind: Kind, body: Body) -> Body:
        """Keep an object as it is given, looked at by nobody: a test's own, many at once or very large."""
        with self.store.lock:
            meta = dict(body["metadata"])
            self._born(kind, meta)
            return self.store.put(kind, {**body, "metadata": meta})

    def replace(self, kind: Kind, namespace: str, name: str, body: Body, write: Write) -> Body:
        """PUT: the whole object anew."""
        with self.store.lock:
            live = self._live(kind, namespace, name)
            body = self._addressed(kind, namespace, body, write)
            if body["metadata"]["name"] != name:
                raise refusal.bad_request(
                    f"the name of the object ({body['metadata']['name']}) does not match the name on the URL ({name})"
                )
            if kind.custom and not body["metadata"].get("resourceVersion"):
                cause = (
                    "FieldValueInvalid",
                    "metadata.resourceVersion",
                    "Invalid value: 0: must be specified for an update",
                )
                raise refusal.invalid(kind, name, [cause])
            return self._update(kind, live, body, write)

    def patch(self, kind: Kind, namespace: str, name: str, content: str, change: Any, write: Write) -> Body:
        """A JSON, merge or strategic merge patch."""
        with self.store.lock:
            live = self._live(kind, namespace, name)
            try:
                if content == "application/json-patch+json":
                    body = patch.json_patch(live, change)
                elif content == "application/merge-patch+json":
                    body = patch.merge_patch(live, change)
                elif content == "application/strategic-merge-patch+json" and not kind.custom:
                    body = patch.strategic(self._shape(kind, write), live, change)
                else:
                    known = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
                    message = (
                        f"the body of the request was in an unknown format - accepted media types include: {known}"
                    )
                    raise refusal.Refusal(415, "UnsupportedMediaType", message)
            except patch.PatchError as error:
                message = f"the server rejected our request due to an error in our request: {error}"
                raise refusal.Refusal(422, "Invalid", message) from None
            body = copied(body)
            body["apiVersion"] = kind.api(write.version or kind.storage)
            return self._update(kind, live, body, write)

    def apply(self, kind: Kind, namespace: str, name: str, applied: Body, write: Write) -> Body:
        """Server-side apply: the fields of `applied` belong to its manager from now on."""
        with self.store.lock:
            applied = self._addressed(kind, namespace, {"metadata": {}, **applied}, write, name)
            if applied["metadata"].get("managedFields"):
                raise refusal.bad_request("metadata.managedFields must be nil")
            sent_version = applied["metadata"].pop("resourceVersion", None)
            shape = self._shape(kind, write)
            self.admission.typed(kind, applied)
            applied = _without_nulls(applied) if not kind.custom else applied
            _keep_half(kind, write, applied, {})
            live = self.store.get(kind, namespace, name)
            if live is None:
                return self._apply_new(kind, namespace, name, applied, write)
            if sent_version not in (None, "", live["metadata"]["resourceVersion"]):
                raise refusal.modified(kind, name)
            try:
                body, entries = managed.apply(shape, live, applied, _owner(kind, write, "Apply"), force=write.force)
            except managed.Conflicts as found:
                raise _apply_conflict(found) from None
            body["apiVersion"] = kind.api(kind.storage)
            return self._finish(kind, live, body, entries, write)

    def _apply_new(self, kind: Kind, namespace: str, name: str, applied: Body, write: Write) -> Body:
        if write.subresource:
            raise refusal.not_found(kind, name)
        self.admission.namespace_takes(kind, namespace, name)
        shape = self._shape(kind, write)
        body, entries = managed.apply(shape, {}, applied, _owner(kind, write, "Apply"), force=True)
        self._born(kind, body["metadata"])
        body = self.admission.admit(kind, write, body, None)
        if entries:
            body["metadata"]["managedFields"] = entries
        return body if write.dry_run else self._keep(kind, body)

    def delete(self, kind: Kind, namespace: str, name: str, options: Body) -> tuple[Body, bool]:
        """The object as it is now, and whether it is gone; see `Deletion.delete`."""
        with self.store.lock:
            return self.deletion.delete(kind, self._live(kind, namespace, name), options)

    def _live(self, kind: Kind, namespace: str, name: str) -> Body:
        live = self.store.get(kind, namespace, name)
        if live is None:
            raise refusal.not_found(kind, name)
        return live

    def _shape(self, kind: Kind, write: Write) -> Any:
        return kind.versions[write.version or kind.storage]

    def _addressed(self, kind: Kind, namespace: str, body: Any, write: Write, name: str = "") -> Body:
        """The body with what its address says: kind, namespace, name."""
        api = kind.api(write.version or kind.storage)
        if not isinstance(body, dict) or not isinstance(body.setdefault("metadata", {}), dict):
            raise refusal.bad_request(f'{kind.name} in version "{write.version}" cannot be handled as a {kind.name}')
        if body.get("kind", kind.name) != kind.name or body.get("apiVersion", api) != api:
            wrong = f"{body.get('apiVersion')}, Kind={body.get('kind')}"
            raise refusal.bad_request(
                f"the API version in the data ({wrong}) does not match the expected API version ({api})"
            )
        body = copied(body) | {"apiVersion": api, "kind": kind.name}
        meta = body["metadata"]
        if kind.namespaced:
            if meta.setdefault("namespace", namespace) != namespace:
                raise refusal.bad_request(
                    "the namespace of the provided object does not match the namespace sent on the request"
                )
        else:
            meta.pop("namespace", None)
        if name:
            meta["name"] = name
        if not meta.get("name") and meta.get("generateName"):
            meta["name"] = meta["generateName"][:58] + "".join(random.choices(_SUFFIX, k=5))
        if not meta.get("name"):
            cause = ("FieldValueRequired", "metadata.name", "Required value: name or generateName is required")
            raise refusal.invalid(kind, "", [cause])
        return body

    def _born(self, kind: Kind, meta: Body) -> None:
        for name in ("resourceVersion", "deletionTimestamp", "selfLink"):
            meta.pop(name, None)
        meta |= {"uid": str(uuid.uuid4()), "creationTimestamp": now()}
        if kind.plural not in _WITHOUT_GENERATION:
            meta["generation"] = 1

    def _update(self, kind: Kind, live: Body, body: Body, write: Write) -> Body:
        meta, name = body["metadata"], live["metadata"]["name"]
        if meta.get("resourceVersion") not in (None, "", live["metadata"]["resourceVersion"]):
            raise refusal.modified(kind, name)
        if meta.get("uid") not in (None, "", live["metadata"]["uid"]):
            uid = live["metadata"]["uid"]
            why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {uid}"
            raise refusal.conflict(kind, name, why)
        cleared = "managedFields" in meta and meta["managedFields"] in ([], [{}])
        _keep_half(kind, write, body, live)
        for key in (*_KEPT, "generation", "resourceVersion", "managedFields"):
            body["metadata"].pop(key, None)
            if key in live["metadata"]:
                body["metadata"][key] = live["metadata"][key]
        if cleared:
            entries: list[Body] = []
        else:
            entries = managed.track(self._shape(kind, write), live, body, _owner(kind, write))
        return self._finish(kind, live, body, entries, write)

    def _finish(self, kind: Kind, live: Body, body: Body, entries: list[Body], write: Write) -> Body:
        body["apiVersion"] = kind.api(kind.storage)
        body = self.admission.admit(kind, replace(write, version=kind.storage), body, live)
        meta = body["metadata"]
        spec = {key: value for key, value in body.items() if key not in ("metadata", "status")}
        if "generation" in meta and spec != {
            key: value for key, value in live.items() if key not in ("metadata", "status")
        }:
            meta["generation"] += 1
        meta["managedFields"] = entries
        if not entries:
            del meta["managedFields"]
        if body == live:
            return live
        return body if write.dry_run else self._keep(kind, body)

    def _keep(self, kind: Kind, body: Body) -> Body:
        if body["metadata"].get("deletionTimestamp") and not body["metadata"].get("finalizers"):
            self.store.put(kind, body)
            return self.deletion.finish(kind, body)
        if kind.plural == "customresourcedefinitions":
            self.store.kinds.add(of_definition(body))
            conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
            body = {**body, "status": {"conditions": conditions}}
        return self.store.put(kind, body)


def _owner(kind: Kind, write: Write, operation: str = "Update") -> managed.Owner:
    return managed.Owner(write.manager, operation, kind.api(write.version or kind.storage), write.subresource, now())


def _keep_half(kind: Kind, write: Write, body: Body, live: Body) -> None:
    """A write to the status leaves everything else; a write to the object leaves the status. An applied body (`live`
    empty) loses the half that is not written."""
    if write.subresource == "status":
        for key in [key for key in body if key not in ("apiVersion", "kind", "metadata", "status")]:
            del body[key]
        body |= {key: copied(value) for key, value in live.items() if key not in ("metadata", "status")}
        if live:
            body["metadata"] = copied(live["metadata"])
        else:
            body["metadata"] = {key: body["metadata"][key] for key in ("name", "namespace") if key in body["metadata"]}
    elif kind.status:
        body.pop("status", None)
        if "status" in live:
            body["status"] = live["status"]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(inner) for name, inner in value.items() if inner is not None}
    return [_without_nulls(inner) for inner in value] if isinstance(value, list) else value


def _apply_conflict(found: managed.Conflicts) -> refusal.Refusal:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {owner}", "field": managed.written(path)}
        for owner, path in found.found
    ]
    return refusal.Refusal(409, "Conflict", str(found), details={"causes": causes})
