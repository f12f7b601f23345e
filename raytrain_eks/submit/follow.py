"""Following a job: its log, every line once, and how it ended.

A thread reads the log while the caller's own thread looks after the job: so a quiet log never hides the end of a job,
and a slow reader never lets memory grow. After a connection dropped, what was seen is skipped by counting bytes; after
the end of the job, the rest is fetched in one piece.
"""

import contextlib
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from raytrain_eks.submit.errors import Lost, NotFound, TargetError, Unreachable
from raytrain_eks.submit.target import JobState, Phase, Say, Stream

POLL_S = 0.5
AWAY_S = 120.0
"""How long a cluster may be unreachable before following ends; the job may go on."""
LONGEST_LINE = 1 << 20
"""Bytes after which a line without an end is passed on."""
PENDING_S = 10.0
"""A job that has not begun after this time is spoken about."""


@dataclass
class _Position:
    """How far a log was read."""

    seen: int = 0
    """Bytes."""
    open: bytes = b""
    """The beginning of a line whose end has not come."""

    def lines(self, chunk: bytes) -> list[str]:
        """The lines that `chunk` completes."""
        self.seen += len(chunk)
        *whole, self.open = (self.open + chunk).split(b"\n")
        if len(self.open) > LONGEST_LINE:
            whole, self.open = [*whole, self.open], b""
        return [line.decode("utf-8", "replace") for line in whole]

    def rest(self) -> list[str]:
        """What is left at the end of the log."""
        left, self.open = self.open, b""
        return [left.decode("utf-8", "replace")] if left else []


class Followed(Protocol):
    """What is needed of a target, or of one rank on it."""

    @property
    def name(self) -> str: ...

    @property
    def lost(self) -> Callable[[], str | None]: ...

    def job(self, id: str) -> JobState | None: ...

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream: ...


class Follower:
    """Lines of a job's log as they come, until the job is over; then `state` says how it ended."""

    def __init__(self, target: Followed, id: str, *, say: Say):
        self.target, self.id, self.say = target, id, say
        self.state: JobState | None = None
        self._position = _Position()
        self._away_since: float | None = None

    def lines(self) -> Iterator[str]:
        """Every line once. Raises NotFound when the job is not known, Unreachable when its cluster stays away, and
        Lost when it is gone for good."""
        try:
            yield from self._lines()
        except Lost:
            if self.state is not None:
                with contextlib.suppress(TargetError):
                    for chunk in self.target.log(self.state, skip=self._position.seen):
                        yield from self._position.lines(chunk)
                yield from self._position.rest()
            raise

    def end(self, *, timeout: float | None = None) -> JobState | None:
        """The job once it is over, its log unread; None when it is not after `timeout` seconds. Raises as `lines`."""
        stop = None if timeout is None else time.monotonic() + timeout
        while (state := self._look()) is None or not state.phase.over:
            if stop is not None and time.monotonic() >= stop:
                return None
            time.sleep(POLL_S)
        return state

    def _lines(self) -> Iterator[str]:
        began, told = time.monotonic(), ""
        while (state := self._look()) is None or state.phase is Phase.PENDING:
            if state is not None and state.message != told and time.monotonic() - began > PENDING_S:
                self.say(f"not running yet: {state.message.strip()}")
                told = state.message
            time.sleep(POLL_S / 2)
        while not state.phase.over:
            yield from self._stream(state)
            state = self.state or state
        yield from self._drain(state)

    def _look(self) -> JobState | None:
        """The job's state; None while its cluster does not answer, but not for ever."""
        try:
            found = self.target.job(self.id)
        except Unreachable as error:
            self._stay(error)
            return None
        if found is None:
            raise self._gone()
        if self._away_since is not None:
            self.say(f"{self.target.name} answers again")
            self._away_since = None
        self.state = found
        return found

    def _stay(self, error: TargetError) -> None:
        if why := self.target.lost():
            raise Lost(f"{why}; the job went with it") from None
        now = time.monotonic()
        if self._away_since is None:
            self._away_since = now
            self.say(f"{str(error).splitlines()[0]}; waiting for it to come back")
        if now - self._away_since > AWAY_S:
            raise Unreachable(f"{error}\n  waited {AWAY_S:.0f} s; the job may go on without us") from None

    def _gone(self) -> TargetError:
        why = self.target.lost()
        if why is not None or self.state is not None:
            return Lost(f"{why or f'{self.target.name} was started anew'}; the job went with it")
        return NotFound(f"{self.target.name} knows no job {self.id}")

    def _stream(self, state: JobState) -> Iterator[str]:
        """Lines while one connection holds and the job is not over."""
        try:
            stream = self.target.log(state, skip=self._position.seen, follow=True)
        except (Unreachable, NotFound):
            # A log that is not there yet, or a cluster that is away.
            self._look()
            time.sleep(POLL_S)
            return
        chunks: queue.Queue[bytes | None] = queue.Queue(maxsize=64)
        stopped = threading.Event()
        reader = threading.Thread(target=_read, args=(stream, chunks, stopped), daemon=True)
        reader.start()
        looked = time.monotonic()
        try:
            while True:
                chunk: bytes | None = b""
                with contextlib.suppress(queue.Empty):
                    chunk = chunks.get(timeout=POLL_S)
                if chunk:
                    yield from self._position.lines(chunk)
                if chunk is None or time.monotonic() - looked >= POLL_S:
                    looked = time.monotonic()
                    now = self._look()
                    if chunk is None or now is None or now.phase.over:
                        return
        finally:
            stopped.set()
            stream.close()
            reader.join(timeout=5)

    def _drain(self, state: JobState) -> Iterator[str]:
        """What the log holds beyond what was seen; the job is over, so that is all there will be."""
        while True:
            try:
                for chunk in self.target.log(state, skip=self._position.seen):
                    yield from self._position.lines(chunk)
                break
            except Unreachable as error:
                self._stay(error)
                time.sleep(POLL_S)
            except NotFound:
                break
        yield from self._position.rest()


def _read(stream: Stream, chunks: "queue.Queue[bytes | None]", stopped: threading.Event) -> None:
    """Chunks of a log into the queue, None after the last one."""
    try:
        for chunk in stream:
            if not _put(chunks, chunk, stopped):
                return
    except TargetError:
        # The connection dropped; whoever looks after the job connects again.
        pass
    _put(chunks, None, stopped)


def _put(chunks: "queue.Queue[bytes | None]", chunk: bytes | None, stopped: threading.Event) -> bool:
    """Whether the chunk was taken; False when nobody wants it any more."""
    while not stopped.is_set():
        with contextlib.suppress(queue.Full):
            chunks.put(chunk, timeout=POLL_S)
            return True
    return False


def exit_code(state: JobState) -> int:
    """The exit code for a job that is over: the driver's own where the house gives it a meaning, else 1."""
    if state.phase is Phase.SUCCEEDED:
        return 0
    return state.exit_code if state.exit_code in (1, 2, 3, 4, 5) else 1


def ending(state: JobState) -> str:
    """How a job ended, as a sentence."""
    if state.phase is Phase.SUCCEEDED:
        return "done"
    if state.phase is Phase.STOPPED:
        return "stopped, as it was asked to"
    if state.exit_code is not None and state.exit_code < 0:
        return f"failed: its driver was killed by signal {-state.exit_code}"
    if state.exit_code == 3:
        return "refused: see above"
    if state.exit_code is not None:
        return f"failed: its driver ended with exit code {state.exit_code}"
    lines = [line for line in state.message.strip().splitlines() if line.strip()]
    begun = "failed" if state.ran else "failed before its driver ran"
    return f"{begun}: {lines[-1][:500] if lines else 'no reason was given'}"
