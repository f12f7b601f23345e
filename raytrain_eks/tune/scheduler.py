"""Which trials go on. Each rule is a pure function of the record: replayed, it decides the same.

Rungs and exchanges are places in a trial at which it waits for the word. ASHA and the median rule are Ray Tune's, to
the same decision (`ray.tune.schedulers.ASHAScheduler`, `MedianStoppingRule`); population based training is its
synchronous form, so that who copies whom does not depend on who was faster.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from raytrain_eks.spec import quantity
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.spec.sweep_space import holds, ordered
from raytrain_eks.spec.sweep_steering import Asha, Clock, Median, Pbt, in_steps
from raytrain_eks.tune.draw import Parameters, changed, generator, in_order
from raytrain_eks.tune.record import Record, Trial


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The word at a rung."""

    kept: bool
    cutoff: float | None = None
    """What the objective was compared with; None: with nothing, too few had come there."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A trial that is to go on as a changed copy of another."""

    trial: str
    donor: str
    parameters: Parameters


def levels(sweep: Sweep, steps: int, tokens_per_step: int) -> list[int]:
    """Where trials wait for the word, in units of the scheduler's clock, ascending; `steps` is the job's length."""
    scheduler = sweep.scheduler
    whole = steps if getattr(scheduler, "clock", "step") == "step" else steps * tokens_per_step
    if isinstance(scheduler, Asha):
        return _rungs(scheduler, whole)
    if isinstance(scheduler, Median | Pbt):
        every = quantity.count(scheduler.every) if scheduler.every is not None else max(whole // 10, 1)
        return list(range(every, whole, every))
    return []


def _rungs(scheduler: Asha, whole: int) -> list[int]:
    if scheduler.rungs is not None:
        return [rung for rung in scheduler.rungs if rung < whole]
    if scheduler.first is None:
        found = {math.ceil(whole / scheduler.reduction**power) for power in (2, 1)}
    else:
        first, found = quantity.count(scheduler.first), set()
        for power in range(64):
            if (rung := round(first * scheduler.reduction**power)) >= whole:
                break
            found.add(rung)
    return sorted(rung for rung in found if 0 < rung < whole)


def gates(places: Sequence[int], clock: Clock, *, steps: int, tokens_per_step: int) -> dict[int, int]:
    """Step at which a trial waits -> number of the rung, for a trial of so many steps."""
    found = {in_steps(place, clock, tokens_per_step): index for index, place in enumerate(places)}
    return {step: index for step, index in found.items() if step < steps}


# -- ASHA and the median rule -----------------------------------------------------------------------------------------


def decide(sweep: Sweep, record: Record, trial: Trial, rung: int, value: float, places: Sequence[int]) -> Decision:
    """Whether a trial goes on that has come to a rung with this objective; it is not yet in the record."""
    scheduler, mode = sweep.scheduler, sweep.objective.mode
    if isinstance(scheduler, Asha):
        return asha(list(record.rungs.get(rung, {}).values()), value, mode=mode, reduction=scheduler.reduction)
    if isinstance(scheduler, Median):
        return median_rule(scheduler, record, trial, rung, value, places, mode=mode)
    return Decision(kept=True)


def asha(before: Sequence[float], value: float, *, mode: str, reduction: float) -> Decision:
    """Among the best 1/reduction of those that were here before, by the linear quantile; the first one goes on."""
    if not math.isfinite(value):
        return Decision(kept=False)
    finite = [each for each in before if math.isfinite(each)]
    if not finite:
        return Decision(kept=True)
    sign = -1.0 if mode == "min" else 1.0
    cutoff = quantile([sign * each for each in finite], 1 - 1 / reduction)
    return Decision(kept=sign * value >= cutoff, cutoff=sign * cutoff)


def median_rule(
    rule: Median, record: Record, trial: Trial, rung: int, value: float, places: Sequence[int], *, mode: str
) -> Decision:
    """Its best objective so far is not worse than the median of the others' means up to here."""
    if not math.isfinite(value):
        return Decision(kept=False)
    first = quantity.count(rule.first) if rule.first is not None else places[-1] // 4
    if places[rung] < first:
        return Decision(kept=True)
    means = []
    for other in record.trials.values():
        if other is trial or max(other.gates, default=-1) < rung:
            continue
        seen = [each for index, each in other.gates.items() if index <= rung and places[index] >= first]
        if seen and math.isfinite(mean := fmean(seen)):
            means.append(mean)
    if len(means) < rule.trials:
        return Decision(kept=True)
    middle, sign = median(means), 1.0 if mode == "min" else -1.0
    best = min([*trial.gates.values(), value], key=lambda each: sign * each)
    return Decision(kept=sign * best <= sign * middle, cutoff=middle)


def quantile(values: Sequence[float], share: float) -> float:
    """The linear quantile (numpy's default)."""
    ordered_values = sorted(values)
    place = share * (len(ordered_values) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered_values) - 1)
    return ordered_values[below] + (ordered_values[above] - ordered_values[below]) * (place - below)


# -- population based training ----------------------------------------------------------------------------------------


def exchanges(sweep: Sweep, record: Record, gate: int) -> list[Exchange]:
    """Who copies whom once all living trials have come to an exchange."""
    rule = sweep.scheduler
    assert isinstance(rule, Pbt)
    sign = 1.0 if sweep.objective.mode == "min" else -1.0
    here = [trial for trial in record.trials.values() if gate in trial.gates and not trial.over]
    here.sort(
        key=lambda trial: (sign * trial.gates[gate] if math.isfinite(trial.gates[gate]) else math.inf, trial.number)
    )
    size = math.ceil(len(here) * rule.quantile)
    size = len(here) // 2 if size > len(here) / 2 else size
    best, worst = here[:size], here[len(here) - size :]
    found = []
    for trial in sorted(worst, key=lambda trial: trial.number):
        source = generator(sweep.seed, "exchange", gate, trial.name)
        donor = source.choice(best)
        drawn = dict(donor.parameters)
        for path in [each for each in ordered(sweep.space) if each in sweep.mutated()]:
            parameter = sweep.space[path]
            if path in drawn:
                options = {"resample": rule.resample, "factors": rule.factors}
                drawn[path] = changed(parameter, drawn[path], source, **options)  # type: ignore[arg-type]
        # A parameter whose condition no longer holds goes with it.
        kept: Parameters = {}
        for path in ordered(sweep.space):
            if path in drawn and holds(sweep.space[path], kept):
                kept[path] = drawn[path]
        found.append(Exchange(trial=trial.name, donor=donor.name, parameters=in_order(sweep.space, kept)))
    return found
