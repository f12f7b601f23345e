"""How often to save: the interval that loses the least to saving and to training again what a failure undid.

Young 1974, "A first order approximation to the optimum checkpoint interval" (CACM 17): sqrt(2 C M). Daly 2006, "A
higher order estimate of the optimum checkpoint interval for restart dumps" (FGCS 22), equation 37, which also holds
where C is not small against M: sqrt(2 C M) (1 + 1/3 sqrt(C / 2M) + 1/9 C / 2M) - C for C < 2M, else M. C is the time
for which a save stalls training, M the mean time between failures of the whole job.
"""

from dataclasses import dataclass
from math import sqrt

ACCELERATOR_HOURS = 50_675.0
"""Mean hours between failures of one accelerator with its part of node and network: 419 unexpected interruptions in 54
days of 16,384 H100 ("The Llama 3 Herd of Models", 2024, section 3.3.4)."""


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A suggestion, with what it costs."""

    seconds: float
    """From one save to the next."""
    stall: float
    """C: seconds for which a save stalls training."""
    between_failures: float
    """M: mean seconds between failures of the job."""
    durable: float
    """Seconds until a save is complete; saves cannot follow each other faster."""
    restart: float
    """Seconds from a failure to the first step after it."""

    @property
    def lost(self) -> float:
        """The part of the time that is lost: to stalls, to training again (on average half an interval, and what was
        not yet complete), and to restarts."""
        again = self.seconds / 2 + self.durable + self.restart
        return self.stall / self.seconds + again / self.between_failures

    @property
    def is_bounded_by_writing(self) -> bool:
        """Whether it is the time of writing, and not the formula, that sets the interval."""
        return self.seconds == self.durable

    def __str__(self) -> str:
        values = f"C = {self.stall:.3g} s, M = {self.between_failures:.4g} s"
        text = f"every {duration(self.seconds)}: sqrt(2 C M) corrected as by Daly 2006, with {values}"
        if self.is_bounded_by_writing:
            text = f"every {duration(self.seconds)}: writing one takes that long; the formula ({values}) would say less"
        return f"{text}; {self.lost:.2%} of the time is lost to saves and failures"


def young(stall: float, between_failures: float) -> float:
    """Seconds, first order."""
    return sqrt(2 * stall * between_failures)


def daly(stall: float, between_failures: float) -> float:
    """Seconds, higher order."""
    if stall >= 2 * between_failures:
        return between_failures
    ratio = stall / (2 * between_failures)
    return young(stall, between_failures) * (1 + sqrt(ratio) / 3 + ratio / 9) - stall


def suggest(
    *,
    stall: float,
    durable: float,
    accelerators: int,
    accelerator_hours: float = ACCELERATOR_HOURS,
    restart: float = 120.0,
) -> Interval:
    """The interval for a job on so many accelerators, each of which fails once in `accelerator_hours`.

    Raises ValueError unless all are positive (restart and durable may be 0).
    """
    if min(stall, accelerators, accelerator_hours) <= 0 or min(durable, restart) < 0:
        raise ValueError("stall, accelerators and hours between failures must be positive, the rest not negative")
    between = accelerator_hours * 3600 / accelerators
    seconds = max(daly(stall, between), durable)
    return Interval(seconds=seconds, stall=stall, between_failures=between, durable=durable, restart=restart)


def duration(seconds: float) -> str:
    """For people, as a job file takes it: `45s`, `15m`, `2h`."""
    if seconds < 90:
        return f"{max(round(seconds), 1)}s"
    if seconds < 5400:
        return f"{round(seconds / 60)}m"
    return f"{round(seconds / 3600)}h"
