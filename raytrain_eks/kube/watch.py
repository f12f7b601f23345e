"""Following objects: a list, then its changes, over any number of connections.

A watch is asked for in windows of a minute, with bookmarks, so that a connection that died in silence is noticed. Where
one breaks, the next begins at the last resourceVersion that was seen. When the API no longer holds that one (410), the
list is made anew and compared with what was known: nothing is missed but states in between (kubernetes.io, "Efficient
detection of changes").
"""

import json
import math
import random
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import Gone, KubeError, Unreachable, of_answer

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client
    from raytrain_eks.kube.kinds import Kind

WINDOW_S = 60
PATIENCE_S = 300
"""Seconds without any answer after which the API counts as gone."""
_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 5.0
Event = tuple[str, dict[str, Any]]


def watch(
    client: "Client",
    kind: "Kind",
    where: str | None,
    *,
    labels: str | None = None,
    fields: str | None = None,
    seconds: float | None = None,
) -> Iterator[Event]:
    """What is there, as ADDED, then each change, until `seconds` are over. Raises KubeError."""
    follower = _Follower(client, kind, where, labels, fields)
    end = math.inf if seconds is None else time.monotonic() + seconds
    heard = time.monotonic()
    broken = 0
    while (left := end - time.monotonic()) > 0:
        try:
            for event in follower.window(min(WINDOW_S, max(1, math.ceil(left)))):
                heard, broken = time.monotonic(), 0
                yield event
                if time.monotonic() >= end:
                    return
            heard, broken = time.monotonic(), 0
        except Gone:
            follower.version = None
        except (ConnectionError, Unreachable) as error:
            broken += 1
            if time.monotonic() - heard > PATIENCE_S:
                raise error if isinstance(error, KubeError) else Unreachable(_silent(client, error)) from None
            pause = min(_PAUSE_S * 2**broken, _LONGEST_PAUSE_S)
            time.sleep(min(random.uniform(pause / 4, pause), max(0.0, end - time.monotonic())))


def _silent(client: "Client", error: ConnectionError) -> str:
    return f"{client.server} has not answered for {PATIENCE_S} s: {error}"


class _Follower:
    """What is known of the objects, and from which version on the API is to tell changes."""

    def __init__(self, client: "Client", kind: "Kind", where: str | None, labels: str | None, fields: str | None):
        self.client, self.kind, self.where = client, kind, where
        self.selectors = {"labelSelector": labels, "fieldSelector": fields}
        self.known: dict[str, dict[str, Any]] = {}
        self.version: str | None = None

    def window(self, seconds: int) -> Iterator[Event]:
        """Events of one connection. Raises Gone, ConnectionError, KubeError."""
        if self.version is None:
            yield from self._listed()
        params = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": seconds}
        params |= {"resourceVersion": self.version, **self.selectors}
        path, asked = self.kind.path(self.where), self.kind.asked("watch", self.where)
        for line in self.client.transport.lines(path, asked, params=params, silence_s=seconds + 15):
            event = _parsed(line)
            if event["type"] == "ERROR":
                status = event["object"]
                raise of_answer(int(status.get("code") or 500), status, asked, self.client.server)
            body = event["object"]
            self.version = body["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                yield self._noted(event["type"], body)

    def _noted(self, what: str, body: dict[str, Any]) -> Event:
        if what == "DELETED":
            self.known.pop(_id(body), None)
        else:
            self.known[_id(body)] = body
        return what, body

    def _listed(self) -> Iterator[Event]:
        found: dict[str, dict[str, Any]] = {}
        labels, fields = self.selectors["labelSelector"], self.selectors["fieldSelector"]
        place = (self.kind.api_version, self.kind.kind, self.where or "*")
        version = None
        for items, listed in self.client.pages(*place, labels=labels, fields=fields):
            found |= {_id(each): each for each in items}
            version = listed
        before, self.known, self.version = self.known, found, version
        for id, body in before.items():
            if id not in found:
                yield "DELETED", body
        for id, body in found.items():
            if id not in before:
                yield "ADDED", body
            elif before[id]["metadata"].get("resourceVersion") != body["metadata"].get("resourceVersion"):
                yield "MODIFIED", body


def _id(body: dict[str, Any]) -> str:
    """An object's identity; an object made anew under an old name is another one."""
    metadata = body["metadata"]
    return str(metadata.get("uid") or f"{metadata.get('namespace')}/{metadata['name']}")


def _parsed(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
        return {"type": event["type"], "object": event["object"]}
    except (ValueError, KeyError, TypeError):
        raise ConnectionError("the API's watch wrote something that is no event") from None
