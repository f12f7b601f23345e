"""A driver's log out of the pods that submit it: every line once, bounded memory, however often connections break.

The pod that submits shows the driver's log as its own, and keeps it when the job's cluster is gone. When that pod is
lost, another one follows it, which shows the driver's log once more from its beginning: what was told already is left
out by counting the lines after the one with which Ray begins every driver's log. When the head was lost as well, the
new one submits the job again (KubeRay, BuildJobSubmitCommand): that is another driver, which is told in full.
"""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.jobserver import CHUNK

BEGINS = re.compile(r"Running entrypoint for job ")
"""Ray's first line of a driver's log (job_manager.py)."""
SUBMITTED = re.compile(r".*\bJob '.*' submitted successfully")
"""What `ray job submit` says, and `ray job logs` does not."""
KEPT = 80 * CHUNK
"""Bytes that stay after they were read: a follower that connects again may have lost what waited in its queue, 64
chunks at most."""
AHEAD = 4 * 2**20
"""Bytes that are read ahead of a slow reader."""
PAUSE_S = 1.0

Lines = Callable[[str], Iterator[str]]
"""The lines of a pod's container, followed until it has ended."""


class Feed:
    """The log of one job while it is followed: a thread reads it, any number of readers one after the other take it
    from where they are."""

    def __init__(self, pods: Callable[[], list[str]], lines: Lines):
        self._pods, self._lines = pods, lines
        self._changed = threading.Condition()
        self._kept: deque[bytearray] = deque()
        self._start = self._end = self._taken = 0
        """Bytes of the log: of the first one that is kept, after the last one, and how far readers have come."""
        self._driver = 0
        """Lines of the driver's own log so far."""
        self._done: set[str] = set()
        """Pods that were read to their end."""
        self._thread: threading.Thread | None = None
        self._error: TargetError | None = None

    def reader(self, skip: int) -> "Reader":
        """What comes after the first `skip` bytes."""
        return Reader(self, skip)

    def wake(self) -> None:
        """Let waiting readers look again."""
        with self._changed:
            self._changed.notify_all()

    def take(self, at: int, closed: threading.Event) -> bytes:
        """The bytes from `at` on, at most a chunk, as soon as there are any; empty at the end. Raises TargetError."""
        with self._changed:
            self._taken = max(self._taken, at)
            self._changed.notify_all()
            self._begin()
            while self._end <= at and self._thread is not None and not closed.is_set():
                self._changed.wait()
            if self._end <= at and self._error is not None:
                error, self._error = self._error, None
                raise error
            return self._part(at)

    def _begin(self) -> None:
        """Read on, when nobody does and there may be more."""
        if self._thread is None and self._error is None:
            self._thread = threading.Thread(target=self._read, name="pod log", daemon=True)
            self._thread.start()

    def _part(self, at: int) -> bytes:
        place = self._start
        for block in self._kept:
            if place + len(block) > at:
                return bytes(block[max(at - place, 0) :])
            place += len(block)
        return b""

    def _read(self) -> None:
        error, pods = None, 0
        try:
            for pod in self._pods():
                if pod not in self._done:
                    pods += 1
                    self._of_pod(pod)
                    self._done.add(pod)
        except TargetError as raised:
            error = raised
        finally:
            with self._changed:
                if not pods:
                    # There is none yet, or the operator has not seen its end: whoever asks again need not at once.
                    self._changed.wait(PAUSE_S)
                self._thread, self._error = None, error
                self._changed.notify_all()

    def _of_pod(self, pod: str) -> None:
        first, number = not self._end, 0
        for line in self._lines(pod):
            if number or BEGINS.match(line):
                number += 1
                if number <= self._driver:
                    continue
                self._driver = number
            elif not first:
                self._driver = 0 if SUBMITTED.match(line) else self._driver
                continue
            self._put(line.encode("utf-8", "surrogateescape") + b"\n")

    def _put(self, line: bytes) -> None:
        with self._changed:
            while self._end - self._taken > AHEAD:
                self._changed.wait()
            if not self._kept or len(self._kept[-1]) >= CHUNK:
                self._kept.append(bytearray())
            self._kept[-1] += line
            self._end += len(line)
            while self._taken - self._start - len(self._kept[0]) > KEPT:
                self._start += len(self._kept.popleft())
            self._changed.notify_all()


class Reader:
    """Follows the protocol `Stream`."""

    def __init__(self, feed: Feed, at: int):
        self._feed, self._at, self._closed = feed, at, threading.Event()

    def __iter__(self) -> Iterator[bytes]:
        while not self._closed.is_set() and (part := self._feed.take(self._at, self._closed)):
            self._at += len(part)
            yield part

    def close(self) -> None:
        """Let go of the one that waits."""
        self._closed.set()
        self._feed.wake()


class Whole:
    """A log that is read once, without following. Follows the protocol `Stream`."""

    def __init__(self, lines: Iterator[str]):
        self._lines = lines

    def __iter__(self) -> Iterator[bytes]:
        waiting: list[bytes] = []
        size = 0
        for line in self._lines:
            waiting.append(line.encode("utf-8", "surrogateescape") + b"\n")
            size += len(waiting[-1])
            if size >= CHUNK:
                yield b"".join(waiting)
                waiting, size = [], 0
        if waiting:
            yield b"".join(waiting)

    def close(self) -> None:
        """Read no further."""
        self._lines = iter(())


def container_lines(client: Any, namespace: str, pod: str, container: str, **options: Any) -> Iterator[str]:
    """Lines of a pod's container. Raises TargetError; a pod that is gone has none."""
    from raytrain_eks.kube.errors import NotFound
    from raytrain_eks.submit.eks_errors import told

    with told():
        try:
            yield from client.logs(pod, namespace, container=container, **options)
        except NotFound:
            return
