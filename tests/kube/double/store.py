"""What the API server keeps: objects by resource, a counter of versions, and the history that watches read.

Bodies in the store are never changed: a write puts a new one. So a body that was read may be sent as it is.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from double.kinds import Kind, Kinds

Body = dict[str, Any]
Place = tuple[str, str]
"""Namespace (empty for resources of the whole cluster) and name."""


def now() -> str:
    """The time as metadata has it, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Change:
    """One write: `new` is None for a deletion (`old` then has the version of the deletion)."""

    version: int
    kind: Kind
    old: Body | None
    new: Body | None


class Store:
    """Objects and their history. Every method may be called from any thread."""

    def __init__(self, kinds: Kinds):
        self.kinds = kinds
        self.lock = threading.RLock()
        self.version = 1
        self.compacted = 0
        """Versions up to this one are forgotten: a watch from there gets 410."""
        self.history: list[Change] = []
        self.listeners: set[Callable[[], None]] = set()
        self._objects: dict[Kind, dict[Place, Body]] = {}

    def get(self, kind: Kind, namespace: str, name: str) -> Body | None:
        with self.lock:
            return self._objects.get(kind, {}).get((namespace if kind.namespaced else "", name))

    def of(self, kind: Kind, namespace: str = "") -> list[Body]:
        """Objects in the order of namespace and name; of all namespaces where none is given."""
        with self.lock:
            objects = self._objects.get(kind, {})
            return [objects[place] for place in sorted(objects) if not namespace or place[0] == namespace]

    def everything(self) -> list[tuple[Kind, Body]]:
        with self.lock:
            return [(kind, body) for kind, objects in self._objects.items() for body in objects.values()]

    def put(self, kind: Kind, body: Body) -> Body:
        """Keep a body, as a new version, and return it as kept."""
        with self.lock:
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version)}
            body = {**body, "metadata": meta}
            place = (meta.get("namespace", ""), meta["name"])
            objects = self._objects.setdefault(kind, {})
            self._tell(Change(self.version, kind, objects.get(place), body))
            objects[place] = body
            return body

    def remove(self, kind: Kind, body: Body) -> Body:
        """Forget an object; the body as its deletion is told."""
        with self.lock:
            self.version += 1
            meta = {**body["metadata"], "resourceVersion": str(self.version)}
            gone = {**body, "metadata": meta}
            del self._objects[kind][meta.get("namespace", ""), meta["name"]]
            self._tell(Change(self.version, kind, gone, None))
            return gone

    def compact(self) -> None:
        """Forget the history, as etcd does after five minutes."""
        with self.lock:
            self.compacted = self.version
            self.history = []
            self._wake()

    def since(self, version: int) -> list[Change]:
        """The changes after a version, oldest first."""
        with self.lock:
            first = len(self.history)
            while first and self.history[first - 1].version > version:
                first -= 1
            return self.history[first:]

    def _tell(self, change: Change) -> None:
        self.history.append(change)
        self._wake()

    def _wake(self) -> None:
        for listener in list(self.listeners):
            listener()
