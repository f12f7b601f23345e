"""The watch over a hang: a rank that makes no progress is named, all stacks are written down, the group is torn down.

Every rank notes where it is (step, phase) without any cost. A thread looks at the note; when it has not changed for the
job's `failures.hang`, the rank writes the stacks of all its threads and its note to the run folder. All ranks stall
when one does, since they wait for it in a collective, so all of them write. The rank that is behind the others is the
one that hangs; each then ends its own process, which Ray Train sees within a second and starts the group again.
"""

import contextlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from raytrain_eks.checkpoint.storage import Storage

UNWATCHED = ("start", "finish", "word")
"""Phases whose length says nothing: a large model is read, or exported, or a sweep decides about the run."""
FIRST_STEP = 6
"""The first step of a process may take so many times the limit: it compiles, and fills caches."""
COMPILES = 7200.0
"""Seconds that the first step of a compiling engine (XLA) may take at least."""
GRACE = 5.0
"""Seconds that the ranks have, after the first has noticed, to write their notes."""
EXIT = 75
"""Exit code of a process that ended itself because of a hang (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True)
class Note:
    """Where a rank is."""

    rank: int
    step: int
    phase: str
    ticks: int
    """Notes so far: the rank with the fewest is behind the others."""
    seconds: float
    """Since when nothing has changed."""
    waits: bool
    """Whether its main thread stands in a collective, as far as its Python stack shows."""


class Watch:
    """One rank's note, and the thread that looks at it."""

    def __init__(
        self,
        storage: Storage,
        *,
        attempt: int,
        rank: int,
        world: int,
        limit: float,
        say: Callable[[str], None],
        compiles: bool = False,
    ):
        """`limit` in seconds; `compiles`: the first step may take hours. `say` gets the sentence that names the rank,
        before the process ends."""
        self.storage, self.limit, self.say = storage, limit, say
        self._first_limit = max(limit * FIRST_STEP, COMPILES if compiles else 0.0)
        self.folder = f"stacks/attempt-{attempt:04d}"
        self._every = min(limit / 4, 5.0)
        self.rank, self.world = rank, world
        self.step, self.phase, self.ticks = 0, "start", 0
        self._first: int | None = None
        self._since = time.monotonic()
        self._main = threading.main_thread().ident
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._look, name="hang-watch", daemon=True)

    def start(self) -> None:
        """Begin to look; called by the thread that trains."""
        self._main = threading.get_ident()
        self.at("start", self.step)
        self._thread.start()

    def at(self, phase: str, step: int) -> None:
        """Note where this rank is now."""
        self.phase, self.step, self.ticks, self._since = phase, step, self.ticks + 1, time.monotonic()
        if self._first is None and phase not in UNWATCHED:
            self._first = step

    def close(self) -> None:
        """Stop looking."""
        self._closing.set()

    def _look(self) -> None:
        while not self._closing.wait(self._every):
            limit = self._first_limit if self.step == self._first else self.limit
            if self.phase not in UNWATCHED and time.monotonic() - self._since > limit:
                self._hung()
                return

    def _hung(self) -> None:
        note = Note(self.rank, self.step, self.phase, self.ticks, time.monotonic() - self._since, self._waits())
        with contextlib.suppress(OSError):
            self.storage.write(f"{self.folder}/rank-{self.rank:05d}.txt", stacks().encode())
            self.storage.write(f"{self.folder}/rank-{self.rank:05d}.json", json.dumps(vars(note)).encode())
        # Rank 0 writes the event, and notices up to one look later: no other rank's end may tear it down before.
        time.sleep(GRACE if self.rank == 0 else GRACE + 2 * self._every)
        if self._closing.is_set():
            return
        self.say(self._sentence())
        sys.stderr.flush()
        os._exit(EXIT)

    def _waits(self) -> bool:
        frame = sys._current_frames().get(self._main or 0)
        return any("torch/distributed" in each.filename for each in traceback.extract_stack(frame)) if frame else False

    def _sentence(self) -> str:
        notes = self._notes()
        missing = sorted(set(range(self.world)) - {note.rank for note in notes})
        where = f"stacks of all ranks: {self.storage.url}/{self.folder}"
        if missing:
            named = ", ".join(map(str, missing))
            return f"hang: rank {named} gave no sign, not even a stack, for {self.limit:.0f} s; {where}"
        behind = min(notes, key=lambda note: (note.ticks, note.waits, note.rank))
        place = f"in `{behind.phase}` of step {behind.step + 1}"
        others = "the others wait for it" if self.world > 1 else "it is the only rank"
        return f"hang: rank {behind.rank} stands {place} since {behind.seconds:.0f} s, {others}; {where}"

    def _notes(self) -> list[Note]:
        found = []
        for rank in range(self.world):
            with contextlib.suppress(OSError, ValueError, TypeError):
                content: dict[str, Any] = json.loads(self.storage.read(f"{self.folder}/rank-{rank:05d}.json"))
                found.append(Note(**content))
        return found


def stacks() -> str:
    """The Python stacks of all threads of this process, as text."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    ]
    return "\n".join(parts)
