"""Mirroring while training goes on: as a thread of the run, or over all runs of a storage in a sidecar.

A fault of the mirror never reaches training. It is told at once and again with each try, with how long it has lasted,
tries go on with growing pauses, and what was missed is caught up with when the mirror answers again.
"""

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from raytrain_eks.checkpoint.mirror import Copied, Mirror
from raytrain_eks.checkpoint.run import RUN, Fenced
from raytrain_eks.checkpoint.storage import Storage

Tell = Callable[[dict[str, Any]], None]
LONGEST = 60.0
"""Seconds between two tries of a mirror that fails, at most."""


class Watched:
    """One mirror that is synchronised over and over, and its trouble."""

    def __init__(self, mirror: Mirror, tell: Tell):
        self.mirror, self.tell = mirror, tell
        self.failing_since: float | None = None
        self.failures = 0
        self.is_fenced = False

    def sync(self) -> Copied | None:
        """One pass; None when it failed, which was told."""
        if self.is_fenced:
            return None
        began = time.monotonic()
        try:
            done = self.mirror.sync()
        except Fenced as error:
            self.is_fenced = True
            self.tell({"event": "mirror_stopped", "reason": str(error)})
            return None
        except Exception as error:
            # Also what nobody thought of: training must not hear of it other than as an event.
            self.failures += 1
            self.failing_since = self.failing_since or began
            lasting = round(time.monotonic() - self.failing_since, 1)
            self.tell({"event": "mirror_failed", "reason": str(error), "lasting": lasting, "tries": self.failures})
            return None
        if self.failing_since is not None:
            lasting = round(time.monotonic() - self.failing_since, 1)
            self.tell({"event": "mirror_caught_up", "lasting": lasting, "steps": done.checkpoints})
        elif done.checkpoints:
            took = round(time.monotonic() - began, 3)
            self.tell({"event": "mirrored", "steps": done.checkpoints, "sent": done.sent, "took": took})
        self.failing_since, self.failures = None, 0
        return done

    @property
    def pause(self) -> float:
        """Seconds until the next try while it fails: 1, 2, 4, ... up to LONGEST, each with jitter."""
        return min(2.0 ** max(self.failures - 1, 0), LONGEST) * random.uniform(0.5, 1.0)


class MirrorThread:
    """Mirrors a run beside its training: at each `wake()`, and each `every` seconds for metrics and events."""

    def __init__(self, mirror: Mirror, tell: Tell, *, every: float = 60.0):
        self.watched = Watched(mirror, tell)
        self.every = every
        self._wake, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="mirror", daemon=True)
        self._thread.start()

    def wake(self, manifest: object = None) -> None:
        """There is something new. Fits as `Saver(after_commit=...)`."""
        self._wake.set()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(self.watched.pause if self.watched.failures else self.every)
            self._wake.clear()
            if not self._closing.is_set():
                self.watched.sync()

    def close(self, patience: float = 300.0) -> bool:
        """Bring the mirror up to date and stop; False when `patience` seconds were not enough. A fault is told, never
        raised."""
        end = time.monotonic() + patience
        self._closing.set()
        self._wake.set()
        self._thread.join(patience)
        while not self._thread.is_alive():
            if self.watched.sync() is not None:
                return True
            if self.watched.is_fenced or time.monotonic() + self.watched.pause > end:
                return False
            time.sleep(self.watched.pause)
        return False


def watch(
    storage: Storage,
    make: Callable[[str], Mirror],
    *,
    every: float,
    resume: bool,
    latest: bool = True,
    stop: threading.Event,
    tell: Callable[[str, dict[str, Any]], None],
    names: Sequence[str] = (),
) -> None:
    """Mirror all runs of a storage (or those of `names`) until `stop` is set, and once more then.

    `make` gives the mirror of a run by its name; `tell` gets the run's name and an event. With `resume`, runs that the
    mirror has and the storage has not are brought back first, with `latest` each with its newest checkpoint.
    """
    watched: dict[str, Watched] = {}

    def of(name: str) -> Watched:
        if name not in watched:
            watched[name] = Watched(make(name), lambda event: tell(name, event))
        return watched[name]

    if resume:
        known = [entry.name for entry in make("any").copy.parent.entries() if entry.is_folder]
        bring_back(make, names or known, tell, latest=latest)
    while True:
        is_last = stop.is_set()
        present = [entry.name for entry in storage.entries() if entry.is_folder and not entry.name.startswith(".")]
        for name in names or present:
            if storage.exists(f"{name}/{RUN}"):
                of(name).sync()
        if is_last:
            return
        failing = [each.pause for each in watched.values() if each.failures]
        stop.wait(min([every, *failing]))


def bring_back(
    make: Callable[[str], Mirror],
    names: Sequence[str],
    tell: Callable[[str, dict[str, Any]], None],
    *,
    latest: bool = True,
) -> None:
    """Bring runs back that only the mirror has. Raises OSError when the mirror does not answer: to begin anew without
    what it holds would lose it."""
    from raytrain_eks.checkpoint.manifest import Damaged

    for name in names:
        mirror = make(name)
        if not mirror.bring_identity() or not latest:
            continue
        for step in reversed(mirror.missing()):
            try:
                mirror.bring(step)
                tell(name, {"event": "brought_back", "step": step})
                break
            except Damaged as error:
                tell(name, {"event": "mirror_damaged", "step": step, "reason": str(error)})
