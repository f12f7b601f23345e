"""The objects of the double as a test handles them: directly, and as any controller would."""

from typing import Any

from double.kinds import Kind
from double.patch import merge_patch
from double.plain import copied
from double.store import Body
from double.writes import Write, Writer

MANAGER = "test"


class Objects:
    """Plain bodies in and out. A resource is named by plural or kind, with its group where two have the name."""

    def __init__(self, writer: Writer):
        self.writer = writer
        self.store = writer.store

    def put(self, body: Body, *, manager: str = MANAGER, status: bool = True) -> Body:
        """Create an object, with its status where it has one; refused as the API server would."""
        kind = self.store.kinds.of(body["apiVersion"], body["kind"])
        version = body["apiVersion"].rpartition("/")[2]
        namespace = body["metadata"].get("namespace", "default" if kind.namespaced else "")
        made = self.writer.create(kind, namespace, body, Write(manager=manager, version=version))
        if kind.status and status and "status" in body:
            return self.set_status(made, body["status"], manager=manager)
        return copied(made)

    def apply(self, body: Body, *, manager: str = MANAGER, force: bool = False, validation: str = "Warn") -> Body:
        """Server-side apply."""
        kind, meta = self._kind(body), body["metadata"]
        version = body["apiVersion"].rpartition("/")[2]
        write = Write(manager=manager, version=version, force=force, validation=validation)
        return copied(self.writer.apply(kind, meta.get("namespace", ""), meta["name"], body, write))

    def get(self, resource: str, name: str, namespace: str = "training") -> Body:
        """An object; KeyError when it is not there."""
        kind = self.store.kinds.named(resource)
        body = self.store.get(kind, namespace, name)
        if body is None:
            raise KeyError(f"no {kind.resource} {namespace}/{name}")
        return copied(body)

    def all(self, resource: str, namespace: str = "") -> list[Body]:
        """Objects of a resource, of all namespaces where none is given."""
        return copied(self.store.of(self.store.kinds.named(resource), namespace))

    def names(self, resource: str, namespace: str = "") -> list[str]:
        """Their names."""
        return [body["metadata"]["name"] for body in self.store.of(self.store.kinds.named(resource), namespace)]

    def patch(self, body: Body, change: Body, *, manager: str = MANAGER) -> Body:
        """A merge patch of an object, spec and status alike."""
        kind = self._kind(body)
        meta = body["metadata"]
        place = (meta.get("namespace", ""), meta["name"])
        write = Write(manager=manager)
        done = self.store.get(kind, *place)
        rest = {key: value for key, value in change.items() if key != "status"}
        if rest or not kind.status:
            done = self.writer.patch(kind, *place, "application/merge-patch+json", change, write)
        if kind.status and "status" in change:
            status = {"status": change["status"]}
            write = Write(manager=manager, subresource="status")
            done = self.writer.patch(kind, *place, "application/merge-patch+json", status, write)
        return copied(done or {})

    def set_status(self, body: Body, status: Body, *, manager: str = MANAGER) -> Body:
        """Replace an object's status as a whole."""
        kind = self._kind(body)
        meta = body["metadata"]
        with self.store.lock:
            live = self.store.get(kind, meta.get("namespace", ""), meta["name"])
            whole = {**(live or body), "status": copied(status)}
            write = Write(manager=manager, subresource="status")
            done = self.writer.replace(kind, meta.get("namespace", ""), meta["name"], whole, write)
        return copied(done)

    def delete(self, body: Body, **options: Any) -> None:
        """Delete an object; `options` are those of DeleteOptions."""
        kind = self._kind(body)
        self.writer.delete(kind, body["metadata"].get("namespace", ""), body["metadata"]["name"], options)

    def merged(self, body: Body, change: Body) -> Body:
        """A body with a merge patch laid over, not stored."""
        found: Body = merge_patch(body, change)
        return found

    def _kind(self, body: Body) -> Kind:
        return self.store.kinds.of(body["apiVersion"], body["kind"])
