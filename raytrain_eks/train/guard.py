"""The guard: which steps are not applied, and when the run goes back.

A loss or a gradient that is not finite, or a loss far above what the last steps had, says that the batch or the state
is bad; an update by it would spoil what was learnt. Deviations are robust (median, and median distance from it), so
that the spike itself does not move the bar. Pure: the loop asks, and does what the verdict says.
"""

import math
from collections import deque
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from raytrain_eks.spec.job_watch import Guard

GAUSSIAN = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""
FLOOR = 0.01
"""The least deviation, in nats: losses that hardly move must not make a spike of everything."""


@dataclass
class Sentry:
    """Judges the steps of one process; every rank judges the same numbers and so comes to the same verdict."""

    rule: Guard
    losses: deque[float] = field(default_factory=deque)
    """Losses of the last applied steps."""
    bad_in_a_row: int = 0
    rewound: int = 0
    """How often the run has gone back."""

    def verdict(self, loss: float) -> str | None:
        """Why a step with this loss must not be applied; None when it may."""
        if not math.isfinite(loss):
            return f"its loss is {loss}"
        if self.rule.spike is None or len(self.losses) < self.rule.window:
            return None
        middle = median(self.losses)
        deviation = max(GAUSSIAN * median(abs(each - middle) for each in self.losses), FLOOR)
        if loss > middle + self.rule.spike * deviation:
            above = (loss - middle) / deviation
            return f"its loss {loss:.4f} is {above:.0f} deviations above the median {middle:.4f} of the last steps"
        return None

    def applied(self, loss: float) -> None:
        """A step was applied."""
        self.bad_in_a_row = 0
        self.losses.append(loss)
        if len(self.losses) > self.rule.window:
            self.losses.popleft()

    def stopped(self) -> bool:
        """A step was not applied; whether the run has to go back now."""
        self.bad_in_a_row += 1
        if self.bad_in_a_row < self.rule.in_a_row:
            return False
        self.bad_in_a_row = 0
        self.rewound += 1
        self.losses.clear()
        return True

    def saved(self) -> dict[str, Any]:
        """As plain data for a checkpoint, so that a resumed run judges as the one before it."""
        return {"losses": list(self.losses), "bad_in_a_row": self.bad_in_a_row, "rewound": self.rewound}

    def take(self, saved: dict[str, Any]) -> None:
        """Go on with what `saved` gave."""
        self.losses = deque(saved["losses"])
        self.bad_in_a_row, self.rewound = int(saved["bad_in_a_row"]), int(saved["rewound"])

    @property
    def spent(self) -> bool:
        """Whether the run has gone back more often than it may."""
        return self.rewound > self.rule.rewinds
