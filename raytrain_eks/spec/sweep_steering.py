"""How a sweep chooses parameters, and how it decides which trials go on: one model per way, told apart by `kind`."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PositiveFloat

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job_data import Text
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Count, Duration, Whole

Clock = Literal["step", "tokens"]


class Objective(Model):
    """What makes one trial better than another."""

    metric: Literal["eval_loss", "bits_per_byte", "train_loss"] = "eval_loss"
    """`eval_loss`: held-out loss in nats per token. `bits_per_byte`: the same, comparable between tokenizers.
    `train_loss`: the mean training loss of the last 20 steps."""

    mode: Literal["min", "max"] = "min"
    """Whether less or more of it is better."""


class RandomSearch(Model):
    """Each trial's parameters are drawn by themselves."""

    kind: Literal["random"] = "random"
    """Each trial's parameters are drawn by themselves, from the seed and the trial's number."""


class GridSearch(Model):
    """Every combination of values, once."""

    kind: Literal["grid"] = "grid"
    """Every combination of values, once, in the order of the file, the last parameter fastest."""


class Optuna(Model):
    """Optuna's tree-structured Parzen estimator (Bergstra et al. 2011)."""

    kind: Literal["optuna"] = "optuna"
    """Optuna's TPE: draws near the parameters of trials that did well."""

    startup: Whole = 5
    """So many first trials are drawn at random."""


Search = Annotated[RandomSearch | GridSearch | Optuna, Discriminator("kind")]


class Everyone(Model):
    """Every trial runs to its end."""

    kind: Literal["none"] = "none"
    """Every trial runs to its end."""


class Asha(Model):
    """Asynchronous successive halving (Li et al. 2020), by stopping: Ray Tune's rule."""

    kind: Literal["asha"] = "asha"
    """At each rung a trial goes on only if it is among the best of those that have come there."""

    clock: Clock = "step"
    """What rungs are counted in: optimizer steps, or tokens of the global batches."""

    reduction: Annotated[float, Field(gt=1)] = 3.0
    """One in so many goes on at a rung, and a rung lies so many times further than the one before it."""

    first: Count | None = None
    """The first rung. None: two rungs before the end of the job, at its length / reduction^2 and / reduction."""

    rungs: Annotated[list[Whole], Field(min_length=1)] | None = None
    """All rungs, instead of `first`."""

    @rule
    def _ascending(self) -> Iterator[Problem]:
        if self.rungs is not None and sorted(set(self.rungs)) != self.rungs:
            yield Problem(path="rungs", rule="must ascend, each once", fix=f"write {sorted(set(self.rungs))}")
        if self.rungs is not None and self.first is not None:
            yield Problem(path="first", rule="`rungs` already says where they are", fix="leave one of the two out")


class Median(Model):
    """The median stopping rule (Golovin et al. 2017, section 3.2.2)."""

    kind: Literal["median"] = "median"
    """A trial is stopped when its best value is worse than the median of the others' running means."""

    clock: Clock = "step"
    """What `every` and `first` are counted in: optimizer steps, or tokens of the global batches."""

    every: Count | None = None
    """The distance of two looks. None: a tenth of the job."""

    first: Count | None = None
    """No trial is stopped before this. None: a quarter of the job."""

    trials: Whole = 3
    """So many other trials must have come as far."""


class Pbt(Model):
    """Population based training (Jaderberg et al. 2017): `trials` is the size of the population."""

    kind: Literal["pbt"] = "pbt"
    """The worst trials go on from a checkpoint of one of the best, with its parameters changed."""

    clock: Clock = "step"
    """What `every` is counted in: optimizer steps, or tokens of the global batches."""

    every: Count | None = None
    """The distance of two exchanges. None: a tenth of the job."""

    quantile: Annotated[float, Field(gt=0, le=0.5)] = 0.25
    """The part of the population that copies, and the part that is copied."""

    resample: Annotated[float, Field(ge=0, le=1)] = 0.25
    """How likely a parameter is drawn anew instead of changed."""

    factors: Annotated[list[PositiveFloat], Field(min_length=1)] = [0.8, 1.2]
    """A number is multiplied by one of these, within its range; a choice moves to a neighbour in its list."""

    mutate: list[Text] | None = None
    """The parameters that change in flight. None: all of the space that belong to `optimizer`, `schedule` or
    `guard`; the others are taken over from the donor."""


Scheduler = Annotated[Everyone | Asha | Median | Pbt, Discriminator("kind")]


class Budget(Model):
    """What the whole sweep may cost; a limit that is reached lets no new trial begin and ends running ones, their state
    saved, so that a sweep with a higher limit goes on."""

    time: Duration | None = Aside(None)
    """Wall-clock time of all attempts together, such as 2h."""

    accelerator_hours: PositiveFloat | None = Aside(None)
    """Worker processes times hours: one per accelerator, or per worker on a CPU."""

    trials: Whole | None = Aside(None)
    """Trials at most, also when `trials` says more."""


def in_steps(amount: int | str, clock: Clock, tokens_per_step: int) -> int:
    """A count of a scheduler's clock in optimizer steps, rounded up: a rung is never before its tokens."""
    number = quantity.count(amount)
    return number if clock == "step" else -(-number // tokens_per_step)
