"""Get, list and watch."""

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from double import refusal, selectors, tables
from double.kinds import Kind
from double.store import Body, Change, Store

Query = Any


def seen(kind: Kind, version: str, body: Body) -> Body:
    """An object as a version of the API shows it."""
    api = kind.api(version)
    return body if body["apiVersion"] == api else {**body, "apiVersion": api}


def chosen(kind: Kind, query: Query, name: str = "") -> Callable[[Body], bool]:
    """The test of a request's selectors."""
    try:
        by_label = selectors.labels(query.get("labelSelector", ""))
        by_field = selectors.fields(query.get("fieldSelector", ""), kind.plural)
    except selectors.SelectorError as error:
        raise refusal.bad_request(str(error)) from None
    return lambda body: by_label(body) and by_field(body)


class Lists:
    """Lists in pages; a page's token holds what is left of the list as it was."""

    def __init__(self, store: Store):
        self.store = store
        self._left: dict[str, tuple[int, list[Body]]] = {}

    def page(self, kind: Kind, version: str, namespace: str, query: Query) -> Body:
        """A list object, or its next page."""
        with self.store.lock:
            at, bodies = self._bodies(kind, namespace, query)
        limit = int(query.get("limit") or 0)
        meta: Body = {"resourceVersion": str(at)}
        if limit and len(bodies) > limit:
            token = base64.urlsafe_b64encode(json.dumps({"rv": at, "n": len(self._left)}).encode()).decode()
            self._left[token] = (at, bodies[limit:])
            meta["continue"] = token
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(bodies) - limit
            bodies = bodies[:limit]
        items = [seen(kind, version, body) for body in bodies]
        return {"kind": f"{kind.name}List", "apiVersion": kind.api(version), "metadata": meta, "items": items}

    def _bodies(self, kind: Kind, namespace: str, query: Query) -> tuple[int, list[Body]]:
        token = query.get("continue")
        if token:
            if token not in self._left:
                raise refusal.bad_request("continue key is not valid: malformed")
            at, bodies = self._left[token]
            if at <= self.store.compacted:
                raise refusal.expired(
                    "The provided continue parameter is too old to display a consistent list result. You can start a "
                    "new list without the continue parameter, or use the continue token in this response to retrieve "
                    "the remainder of the results."
                )
            return at, bodies
        wanted = query.get("resourceVersion") or "0"
        if not wanted.isdecimal():
            raise refusal.bad_request(
                f'Invalid value: "{wanted}": strconv.ParseUint: parsing "{wanted}": invalid syntax'
            )
        if int(wanted) > self.store.version:
            message = f"Too large resource version: {wanted}, current: {self.store.version}"
            raise refusal.Refusal(504, "Timeout", message, retry_after=1)
        test = chosen(kind, query)
        return self.store.version, [body for body in self.store.of(kind, namespace) if test(body)]


@dataclass(eq=False)
class Watch:
    """A watch that is open. A test ends it by `command`: `drop` cuts it, `close` ends it in good order, `expire` tells
    410 Gone first, `bookmark` sends one."""

    kind: Kind
    namespace: str
    commands: list[str] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    woken: asyncio.Event = field(default_factory=asyncio.Event)

    def wake(self) -> None:
        self.loop.call_soon_threadsafe(self.woken.set)

    def command(self, what: str) -> None:
        self.commands.append(what)
        self.wake()


class Watches:
    """The open watches of a server."""

    def __init__(self, store: Store):
        self.store = store
        self.open: set[Watch] = set()
        self.bookmark_every = 60.0
        """Seconds between bookmarks, for those who ask for them."""

    async def serve(
        self, request: web.Request, kind: Kind, version: str, namespace: str, name: str
    ) -> web.StreamResponse:
        """Answer a watch until its time is over, the client goes or a test ends it."""
        query = request.query
        test = chosen(kind, query)
        as_table = tables.wanted(request.headers.get("Accept", ""))
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        watch = Watch(kind, namespace)
        self.open.add(watch)
        self.store.listeners.add(watch.wake)
        feed = _Feed(self.store, kind, version, namespace, name, test, query, as_table)
        try:
            await self._run(request, response, watch, feed)
        except ConnectionResetError:
            pass
        finally:
            self.store.listeners.discard(watch.wake)
            self.open.discard(watch)
        return response

    async def _run(self, request: web.Request, response: web.StreamResponse, watch: Watch, feed: "_Feed") -> None:
        ends = time.monotonic() + float(request.query.get("timeoutSeconds") or 1800)
        bookmarks = request.query.get("allowWatchBookmarks") in ("true", "1")
        next_bookmark = time.monotonic() + self.bookmark_every
        for event in feed.first():
            await response.write(_line(event))
        while time.monotonic() < ends:
            watch.woken.clear()
            for event in feed.news():
                await response.write(_line(event))
                if event["type"] == "ERROR":
                    return
            while watch.commands:
                what = watch.commands.pop(0)
                if what == "drop":
                    if request.transport is not None:
                        request.transport.abort()
                    return
                if what == "expire":
                    await response.write(_line(feed.gone()))
                if what in ("expire", "close"):
                    return
                if what == "bookmark" and bookmarks:
                    await response.write(_line(feed.bookmark()))
            if bookmarks and time.monotonic() >= next_bookmark:
                next_bookmark += self.bookmark_every
                await response.write(_line(feed.bookmark()))
            try:
                until = min(ends, next_bookmark) if bookmarks else ends
                await asyncio.wait_for(watch.woken.wait(), max(0.01, until - time.monotonic()))
            except TimeoutError:
                continue


def _line(event: Body) -> bytes:
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


class _Feed:
    """The events of one watch."""

    def __init__(
        self,
        store: Store,
        kind: Kind,
        version: str,
        namespace: str,
        name: str,
        test: Callable[[Body], bool],
        query: Query,
        as_table: bool,
    ):
        self.store, self.kind, self.api, self.namespace = store, kind, version, namespace
        self.test = lambda body: test(body) and name in ("", body["metadata"]["name"])
        self.initial = query.get("sendInitialEvents") == "true"
        given = query.get("resourceVersion") or "0"
        self.at = int(given) if given.isdecimal() and not self.initial else 0
        self.as_table = as_table

    def first(self) -> Iterator[Body]:
        """What is there already, where the watch does not begin at a version."""
        if self.at:
            return
        with self.store.lock:
            bodies = [body for body in self.store.of(self.kind, self.namespace) if self.test(body)]
            self.at = self.store.version
        for body in bodies:
            yield self._event("ADDED", body)
        if self.initial:
            yield self.bookmark({"k8s.io/initial-events-end": "true"})

    def news(self) -> list[Body]:
        """What has happened since."""
        with self.store.lock:
            if self.at < self.store.compacted:
                return [self.gone()]
            changes = self.store.since(self.at)
            self.at = self.store.version
        return [event for change in changes for event in self._told(change)]

    def _told(self, change: Change) -> Iterator[Body]:
        if change.kind is not self.kind:
            return
        some = change.new or change.old
        if some is None or (self.namespace and some["metadata"].get("namespace") != self.namespace):
            return
        before = change.old is not None and self.test(change.old)
        after = change.new is not None and self.test(change.new)
        if after:
            assert change.new is not None
            yield self._event("MODIFIED" if before else "ADDED", change.new)
        elif before:
            assert change.old is not None
            meta = {**change.old["metadata"], "resourceVersion": str(change.version)}
            yield self._event("DELETED", {**change.old, "metadata": meta})

    def _event(self, what: str, body: Body) -> Body:
        body = seen(self.kind, self.api, body)
        if self.as_table:
            body = tables.table(self.kind, self.api, [body], body["metadata"]["resourceVersion"])
        return {"type": what, "object": body}

    def bookmark(self, annotations: Body | None = None) -> Body:
        """The news up to here were told."""
        meta: Body = {"resourceVersion": str(self.at), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        body = {"kind": self.kind.name, "apiVersion": self.kind.api(self.api), "metadata": meta}
        if self.as_table:
            body = tables.table(self.kind, self.api, [], str(self.at))
            body["metadata"] = meta
        return {"type": "BOOKMARK", "object": body}

    def gone(self) -> Body:
        """What was asked for is forgotten: the client must list anew."""
        status = refusal.expired(f"too old resource version: {self.at} ({self.store.compacted})").status
        return {"type": "ERROR", "object": status}
