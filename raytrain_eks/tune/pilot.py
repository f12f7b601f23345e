"""The line between a training loop and the sweep that follows it, within the process of rank 0.

The loop leaves word as it goes and never waits for a reader, except at a rung, where it stands still until it is told.
"""

import queue
import threading
from collections import deque
from collections.abc import Callable, Collection
from statistics import fmean
from typing import Any

from raytrain_eks.train.loop import Progress

RECENT = 20
"""Steps whose mean training loss is `train_loss`."""
HEARTBEAT = 1.0
"""Seconds after which a step is told that nobody waits for."""


class Line:
    """A `train.loop.Pilot`: news go out, the word comes in."""

    def __init__(
        self,
        gates: Collection[int],
        metric: str,
        *,
        trained: int = 0,
        losses: Callable[[int], list[float]] = lambda step: [],
    ):
        """`gates`: steps after which the run waits. `trained`: steps that were done before. `losses` gives those of the
        last steps up to one, for a run that goes on."""
        self._gates, self._metric, self._losses = frozenset(gates), metric, losses
        self._news: queue.Queue[dict[str, Any]] = queue.Queue()
        self._word: queue.Queue[bool] = queue.Queue()
        self._recent: deque[float] = deque(maxlen=RECENT)
        self._lock = threading.Lock()
        self.trained = trained
        self._at: tuple[int, int] | None = None
        self._told: int | None = None

    # -- the loop's side ------------------------------------------------------------------------------------------

    def waits(self, step: int) -> bool:
        """Whether a rung is at this step."""
        return step in self._gates

    def stepped(self, progress: Progress, loss: float) -> None:
        """Count a step and its loss."""
        with self._lock:
            self._recent.append(loss)
            self.trained += 1
            self._at = (progress.step, progress.tokens)

    def evaluated(self, progress: Progress) -> None:
        """Tell the objective, unless a rung does so next."""
        if not self.waits(progress.step):
            self._news.put(self._about(progress))

    def goes_on(self, progress: Progress) -> bool:
        """Tell the objective at a rung and wait for the word."""
        self._news.put({**self._about(progress), "gate": progress.step})
        return self._word.get()

    def value(self, progress: Progress) -> float | None:
        """The objective where the run is; None where it was not measured."""
        if self._metric == "train_loss":
            recent = list(self._recent)
            if len(recent) < RECENT and progress.step:
                recent = self._losses(progress.step)[-RECENT:] or recent
            return fmean(recent) if recent else None
        return progress.bits_per_byte if self._metric == "bits_per_byte" else progress.held_last

    def _about(self, progress: Progress) -> dict[str, Any]:
        self._told = progress.step
        fields = {"step": progress.step, "tokens": progress.tokens, "trained": self.trained}
        return {**fields, "value": self.value(progress)}

    # -- the other side -------------------------------------------------------------------------------------------

    def news(self, seconds: float = HEARTBEAT) -> list[dict[str, Any]]:
        """What has come; waits so long for the first of it. Without any, where the run is, if it has moved."""
        found = []
        try:
            found.append(self._news.get(timeout=seconds))
            while True:
                found.append(self._news.get_nowait())
        except queue.Empty:
            pass
        with self._lock:
            if not found and self._at is not None and self._at[0] != self._told:
                self._told = self._at[0]
                about = {"step": self._at[0], "tokens": self._at[1], "trained": self.trained}
                found.append({**about, "value": None})
        return found

    def word(self, goes_on: bool) -> None:
        """The word that the run waits for."""
        self._word.put(goes_on)
