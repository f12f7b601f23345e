"""Deleting: finalizers, what belongs to what is gone, namespaces with everything in them."""

from typing import Any

from double import refusal
from double.kinds import Kind
from double.store import Body, Store, now

_FOREGROUND = "foregroundDeletion"
_ORPHAN = "orphan"


class Deletion:
    """Deletes objects as the API server, the garbage collector and the namespace controller do together. What those do
    a moment later happens here at once."""

    def __init__(self, store: Store):
        self.store = store

    def delete(self, kind: Kind, body: Body, options: Body) -> tuple[Body, bool]:
        """Delete an object; `options` are a DeleteOptions. The object as it is now, and whether it is gone: one with
        finalizers stays, marked, until they are taken off."""
        meta = body["metadata"]
        for key, wanted in (options.get("preconditions") or {}).items():
            if wanted and meta.get(key) != wanted:
                what = "UID" if key == "uid" else "ResourceVersion"
                raise refusal.conflict(
                    kind,
                    meta["name"],
                    f"the {what} in the precondition ({wanted}) does not match the {what} in record "
                    f"({meta.get(key)}). The object might have been deleted and then recreated",
                )
        finalizers = list(meta.get("finalizers") or ())
        policy = options.get("propagationPolicy") or ("Orphan" if options.get("orphanDependents") else "Background")
        if policy == "Foreground" and any(self._dependents(meta["uid"])):
            finalizers.append(_FOREGROUND)
        if "All" in (options.get("dryRun") or []):
            return body, not finalizers
        if policy == "Orphan":
            self._orphan(meta["uid"])
        holds = bool(finalizers) or kind.plural == "namespaces"
        if not holds:
            return self.finish(kind, body), True
        if not meta.get("deletionTimestamp"):
            meta = {**meta, "deletionTimestamp": now(), "deletionGracePeriodSeconds": 0}
            if finalizers:
                meta["finalizers"] = finalizers
            if "generation" in meta:
                meta["generation"] += 1
            body = {**body, "metadata": meta}
            if kind.plural == "namespaces":
                body["status"] = {"phase": "Terminating"}
            body = self.store.put(kind, body)
        self._go_on()
        left = self.store.get(kind, meta.get("namespace", ""), meta["name"])
        return (body, True) if left is None else (left, False)

    def finish(self, kind: Kind, body: Body) -> Body:
        """Take an object out, and with it what nothing else holds."""
        gone = self.store.remove(kind, body)
        if kind.plural == "customresourcedefinitions":
            self._forget_kind(body)
        self._go_on()
        return gone

    def _forget_kind(self, definition: Body) -> None:
        spec = definition["spec"]
        for kind, body in self.store.everything():
            if (kind.group, kind.plural) == (spec["group"], spec["names"]["plural"]):
                self.store.remove(kind, body)
        self.store.kinds.remove(spec["group"], spec["names"]["plural"])

    def _dependents(self, uid: str) -> list[tuple[Kind, Body]]:
        return [
            (kind, body)
            for kind, body in self.store.everything()
            if any(owner.get("uid") == uid for owner in body["metadata"].get("ownerReferences") or ())
        ]

    def _orphan(self, uid: str) -> None:
        for kind, body in self._dependents(uid):
            owners = [owner for owner in body["metadata"]["ownerReferences"] if owner["uid"] != uid]
            self.store.put(kind, {**body, "metadata": {**body["metadata"], "ownerReferences": owners}})

    def _go_on(self) -> None:
        """What the controllers do next, until nothing is left to do."""
        while self._collect() or self._end_foreground() or self._end_namespaces():
            pass

    def _collect(self) -> bool:
        everything = self.store.everything()
        alive = {body["metadata"]["uid"] for _, body in everything}
        going = {body["metadata"]["uid"] for _, body in everything if _FOREGROUND in _finalizers(body)}
        for kind, body in everything:
            owners = body["metadata"].get("ownerReferences") or ()
            held = any(owner.get("uid") in alive - going for owner in owners)
            if owners and not held and not body["metadata"].get("deletionTimestamp"):
                self.delete(kind, body, {})
                return True
        return False

    def _end_foreground(self) -> bool:
        for kind, body in self.store.everything():
            if _FOREGROUND in _finalizers(body) and not self._dependents(body["metadata"]["uid"]):
                left = [name for name in _finalizers(body) if name != _FOREGROUND]
                kept = self.store.put(kind, {**body, "metadata": {**body["metadata"], "finalizers": left}})
                if not left:
                    self.store.remove(kind, kept)
                return True
        return False

    def _end_namespaces(self) -> bool:
        namespaces = self.store.kinds.named("namespaces")
        for body in self.store.of(namespaces):
            name = body["metadata"]["name"]
            if not body["metadata"].get("deletionTimestamp"):
                continue
            inside = [(kind, one) for kind, one in self.store.everything() if one["metadata"].get("namespace") == name]
            for kind, one in inside:
                if not one["metadata"].get("deletionTimestamp"):
                    self.delete(kind, one, {})
                    return True
            if not inside and not _finalizers(body):
                self.store.remove(namespaces, body)
                return True
        return False


def _finalizers(body: Body) -> list[Any]:
    return list(body["metadata"].get("finalizers") or ())
