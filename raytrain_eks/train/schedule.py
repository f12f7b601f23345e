"""Learning rates as closed formulas over optimizer steps; there is no scheduler state to save or to lose.

A rate depends on the step and the length of the run alone, so a resumed run has the rates of the run that was never
stopped, and a run whose stop condition was raised follows the longer curve from there on.
"""

import math
from dataclasses import dataclass
from typing import Literal

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job


@dataclass(frozen=True, kw_only=True)
class LearningRate:
    """The learning rate of every step of a run."""

    kind: Literal["cosine", "linear", "constant", "wsd"]
    peak: float
    minimum: float
    """The rate of the last step, in absolute terms; unused by `constant`."""
    steps: int
    """Optimizer steps of the whole run."""
    warmup: int
    """Steps of the linear rise; the last of them has the peak."""
    decay: int = 0
    """Steps of the linear fall at the end, for `wsd`."""

    @classmethod
    def of(cls, job: Job, steps: int) -> "LearningRate":
        """The schedule of a job whose run has `steps` optimizer steps."""
        schedule, peak = job.schedule, job.optimizer.learning_rate
        return cls(
            kind=schedule.kind,
            peak=peak,
            minimum=peak * float(quantity.share(schedule.minimum)),
            steps=steps,
            warmup=min(whole_steps(schedule.warmup, steps), steps),
            decay=min(whole_steps(schedule.decay, steps), steps),
        )

    def __call__(self, step: int) -> float:
        """The rate of optimizer step `step`, counted from 0.

        With s = step + 1, warm-up w and N steps: peak s/w up to s = w, from there a function of p = (s-w)/(N-w), which
        is 0 at the peak and 1 at the last step: minimum + (peak-minimum) (1 + cos(pi p))/2 for `cosine` (Loshchilov and
        Hutter 2017), peak - (peak-minimum) p for `linear`. Steps beyond N keep the last rate.
        """
        done = min(step + 1, self.steps)
        if done <= self.warmup:
            return self.peak * done / self.warmup
        if self.kind == "constant":
            return self.peak
        start = max(self.steps - self.decay, self.warmup) if self.kind == "wsd" else self.warmup
        if done <= start:
            return self.peak
        progress = (done - start) / (self.steps - start)
        if self.kind == "cosine":
            return self.minimum + (self.peak - self.minimum) * 0.5 * (1 + math.cos(math.pi * progress))
        return self.peak - (self.peak - self.minimum) * progress


def whole_steps(amount: int | str, steps: int) -> int:
    """Steps of an amount given in steps or as a share of the run; a share is rounded up: 1% is never nothing."""
    return amount if isinstance(amount, int) else math.ceil(quantity.share(amount) * steps)
