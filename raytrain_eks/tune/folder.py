"""A sweep's folder: what it is, who drives it, and its journal.

    sweep.yaml run.json attempts/    as for a run; the highest attempt drives the sweep
    trials.jsonl                     the journal: all that was decided and seen, in order, only ever longer
    trials/t0001/ ...                an ordinary run folder each
    sweep.json report.html           what came of it

Imports neither ray nor torch.
"""

import json
import math
import time
from typing import Any

from raytrain_eks.checkpoint.run import Attempt, Fenced, RunFolder
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.tune.history import FILE, RUNS, SUMMARY, TRIALS
from raytrain_eks.tune.record import Record

SOON = 2.0
"""Seconds that progress may wait on storage that cannot append; a decision never waits."""


class SweepFolder(RunFolder):
    """The folder of one sweep. Making one touches nothing."""

    written_as = FILE

    @property
    def trials(self) -> Storage:
        """The storage that holds the trials' run folders."""
        return self.storage.child(RUNS)

    def trial(self, name: str) -> RunFolder:
        """A trial's run folder."""
        return RunFolder(self.trials, name)

    def summary(self) -> dict[str, Any] | None:
        """`sweep.json`; None while there is none."""
        return self._json(SUMMARY)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace `sweep.json`."""
        self.storage.write(SUMMARY, (json.dumps(summary, indent=1) + "\n").encode())

    def record(self) -> Record:
        """What the journal tells."""
        return Record(self.lines(TRIALS))


class Journal:
    """The journal, as the driver of one attempt writes it. What was decided is on storage before it is acted upon."""

    def __init__(self, folder: SweepFolder, attempt: Attempt, *, clock: Any = time.time):
        self.folder, self.attempt, self._clock = folder, attempt, clock
        self.record = folder.record()
        self._whole: bytearray | None = None
        self._appender = None
        self._written = clock()
        if folder.storage.folder is not None:
            self._appender = folder.storage.appender(TRIALS)
        else:
            self._whole = bytearray(folder.storage.read(TRIALS)) if folder.storage.exists(TRIALS) else bytearray()
            cut = self._whole.rfind(b"\n") + 1
            del self._whole[cut:]

    def add(self, event: str, trial: str | None = None, **fields: Any) -> None:
        """One event, in the record and on storage. Raises OSError, and Fenced when another driver has the sweep."""
        line = {"event": event, **({"trial": trial} if trial is not None else {})}
        line |= {key: _word(value) for key, value in fields.items()}
        line |= {"time": round(self._clock(), 3), "attempt": self.attempt.number}
        if event != "progress":
            self.check()
        text = (json.dumps(line) + "\n").encode()
        if self._appender is not None:
            self._appender.write(text)
        elif self._whole is not None:
            self._whole += text
            if event != "progress" or self._clock() - self._written > SOON:
                self.flush()
        self.record.add(line)

    def check(self) -> None:
        """Raises Fenced when a newer attempt drives the sweep."""
        if not self.folder.owned_by(self.attempt):
            raise Fenced(f"another driver has taken the sweep {self.folder.name} over")

    def flush(self) -> None:
        """All of it is on storage when this returns."""
        if self._whole is not None:
            self.folder.storage.write(TRIALS, bytes(self._whole))
            self._written = self._clock()

    def close(self) -> None:
        """Write the rest."""
        self.flush()
        if self._appender is not None:
            self._appender.close()


def _word(value: Any) -> Any:
    """JSON has no NaN and no infinity."""
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
