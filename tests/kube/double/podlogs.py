"""Logs of pods: lines that a test writes, or a function whose lines are made while they are read."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from double import refusal
from double.kinds import Kind
from double.store import Body, Store

START = datetime(2026, 1, 1, tzinfo=UTC)
"""The time of the first line of a log given as a whole; each further one comes a microsecond later."""
Line = tuple[str, str]
"""Time (RFC 3339 with nanoseconds) and text."""


def stamp(time: datetime) -> str:
    """A time as the kubelet writes it before a line."""
    return time.strftime("%Y-%m-%dT%H:%M:%S.") + f"{time.microsecond:06d}000Z"


class Log:
    """The log of one container. Lines are kept, except those of a function, which each reader has made for himself:
    so a log may be longer than memory."""

    def __init__(self, lines: Iterable[str] | Callable[[], Iterable[str]] = (), *, ended: bool = False):
        self._lock = threading.Lock()
        self._lines: list[Line] = []
        self._make: Callable[[], Iterable[str]] = tuple
        self.ended = ended
        """Nothing more will come: who follows is at the end."""
        self.cut_after: int | None = None
        """The next reader's connection is cut after so many lines, once; then it is None again."""
        if callable(lines):
            self._make = lines
        else:
            for line in lines.splitlines() if isinstance(lines, str) else lines:
                self.write(line, START + timedelta(microseconds=len(self._lines)))

    def write(self, text: str, time: datetime | None = None) -> None:
        """Add one line (no newline at its end); by default it is written now."""
        with self._lock:
            self._lines.append((stamp(time or datetime.now(UTC)), text))

    def close(self) -> None:
        """The container has ended."""
        self.ended = True

    def lines(self, at: int) -> Iterator[Line]:
        """The lines from number `at` on."""
        kept = len(self._lines)
        yield from itertools.islice(self._lines, at, kept)
        made = enumerate(self._make())
        for number, text in itertools.islice(made, max(0, at - kept), None):
            yield stamp(START + timedelta(microseconds=number)), text


class Logs:
    """Logs by `pod`, `namespace/pod` or `namespace/pod/container`; `logs["head"] = ["a", "b"]`, a text, or a
    function without arguments that gives lines: `logs["head"] = lambda: map(str, range(10**6))`."""

    def __init__(self) -> None:
        self._logs: dict[str, Log] = {}
        self.previous: dict[str, Log] = {}
        """Of the containers before the last restart."""

    def __setitem__(self, key: str, lines: Iterable[str] | Callable[[], Iterable[str]] | Log) -> None:
        self._logs[key] = lines if isinstance(lines, Log) else Log(lines, ended=True)

    def __getitem__(self, key: str) -> Log:
        """The log; an empty one, still open, where nothing was written yet."""
        return self._logs.setdefault(key, Log())

    def clear(self) -> None:
        """Forget them all."""
        self._logs.clear()
        self.previous.clear()

    def find(self, namespace: str, pod: str, container: str, *, previous: bool = False) -> Log | None:
        logs = self.previous if previous else self._logs
        keys = (f"{namespace}/{pod}/{container}", f"{namespace}/{pod}", f"{pod}/{container}", pod)
        return next((logs[key] for key in keys if key in logs), None)


def _container(kind: Kind, pod: Body, query: Any) -> str:
    names = [one["name"] for one in pod["spec"].get("containers") or ()]
    names += [one["name"] for one in pod["spec"].get("initContainers") or ()]
    asked = str(query.get("container") or "")
    of = pod["metadata"]["name"]
    if asked and asked not in names:
        raise refusal.bad_request(f"container {asked} is not valid for pod {of}")
    if not asked and len(pod["spec"].get("containers") or ()) > 1:
        raise refusal.bad_request(
            f"a container name must be specified for pod {of}, choose one of: [{' '.join(names)}]"
        )
    return asked or names[0]


def _waiting(pod: Body, container: str) -> str:
    for status in pod.get("status", {}).get("containerStatuses") or ():
        if status["name"] == container and "waiting" in status.get("state", {}):
            return str(status["state"]["waiting"].get("reason") or "ContainerCreating")
    return "" if pod.get("status", {}).get("phase") not in (None, "Pending") else "ContainerCreating"


async def serve(request: web.Request, store: Store, kind: Kind, pod: Body, logs: Logs) -> web.StreamResponse:
    """Answer a request for a pod's log."""
    query = request.query
    container = _container(kind, pod, query)
    meta = pod["metadata"]
    log = logs.find(meta["namespace"], meta["name"], container, previous=query.get("previous") == "true")
    if log is None:
        if query.get("previous") == "true":
            text = f'previous terminated container "{container}" in pod "{meta["name"]}" not found'
            raise refusal.bad_request(text)
        reason = _waiting(pod, container)
        if reason:
            text = f'container "{container}" in pod "{meta["name"]}" is waiting to start: {reason}'
            raise refusal.bad_request(text)
        log = logs[f"{meta['namespace']}/{meta['name']}"]
    response = web.StreamResponse(headers={"Content-Type": "text/plain"})
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):
        await _send(request, response, store, kind, pod, log)
    return response


async def _send(
    request: web.Request, response: web.StreamResponse, store: Store, kind: Kind, pod: Body, log: Log
) -> None:
    query, meta = request.query, pod["metadata"]
    follow, stamps = query.get("follow") == "true", query.get("timestamps") == "true"
    after, at = _since(query), _tail(log, query)
    left = int(query.get("limitBytes") or 0) or None
    cut, log.cut_after = log.cut_after, None
    buffer, sent = bytearray(), 0
    while True:
        ended = log.ended or not follow or store.get(kind, meta["namespace"], meta["name"]) is None
        for time, text in log.lines(at):
            at += 1
            if after and time < after:
                continue
            buffer += f"{time} {text}\n".encode() if stamps else f"{text}\n".encode()
            sent += 1
            if left is not None and len(buffer) >= left:
                await response.write(bytes(buffer[:left]))
                return
            if cut is not None and sent >= cut:
                await response.write(bytes(buffer))
                await asyncio.sleep(0.05)
                if request.transport is not None:
                    request.transport.abort()
                return
            if len(buffer) > 1 << 16 and left is None:
                await response.write(bytes(buffer))
                buffer.clear()
        await response.write(bytes(buffer))
        buffer.clear()
        if ended:
            return
        await asyncio.sleep(0.02)


def _since(query: Any) -> str:
    if query.get("sinceTime"):
        return stamp(datetime.fromisoformat(query["sinceTime"]).astimezone(UTC))
    if query.get("sinceSeconds"):
        return stamp(datetime.now(UTC) - timedelta(seconds=int(query["sinceSeconds"])))
    return ""


def _tail(log: Log, query: Any) -> int:
    if query.get("tailLines") is None:
        return 0
    return max(0, sum(1 for _ in log.lines(0)) - int(query["tailLines"]))
