"""Which parameters a sweep's objective hung on: Optuna's importance where it serves, and rank correlations.

Trials that a scheduler stopped early cannot be held against those that ran to the end by their last values. So all are
compared at one step: the last one that enough of them reached.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.tune.history import History, Trial, number

MINIMUM = 10
"""Trials with an objective that an importance needs at least; with fewer it is mostly chance."""
EVALUATOR = "PED-ANOVA"
"""Watanabe et al. 2023, "PED-ANOVA: Efficiently Quantifying Hyperparameter Importance in Arbitrary Subspaces", as
Optuna has it. It needs nothing beyond Optuna, and no seed."""
DECADES = 100
"""A positive parameter whose values span this factor is taken on a logarithmic scale."""


@dataclass(frozen=True, kw_only=True)
class Importance:
    """What a sweep tells about its parameters."""

    shares: dict[str, float] = field(default_factory=dict)
    """Parameter -> share of the importance, together 1, largest first; empty with a reason in `why_not`."""
    correlations: dict[str, float] = field(default_factory=dict)
    """Numeric parameter -> Spearman's rank correlation with the objective, -1 to 1."""
    step: int | None = None
    """Where the trials were compared."""
    trials: int = 0
    """How many were."""
    left_out: list[str] = field(default_factory=list)
    """Parameters that are the same in all trials, or that some trials do not have."""
    why_not: str | None = None


def comparable(history: History) -> tuple[int | None, list[tuple[Trial, float]]]:
    """The step at which trials are compared, and the trials with their objective there.

    It is the last step that enough of them reached: MINIMUM, or at least half of those that have an objective.
    """
    reached = sorted((max(trial.points) for trial in history.trials if trial.points), reverse=True)
    if not reached:
        return None, []
    step = reached[min(max(MINIMUM, math.ceil(len(reached) / 2)), len(reached)) - 1]
    found = [(trial, trial.value_by(step)) for trial in history.trials]
    return step, [(trial, value) for trial, value in found if value is not None]


def importance(history: History) -> Importance:
    """Importance of the parameters; where Optuna is not installed or there are too few trials, it says so."""
    step, pairs = comparable(history)
    # A trial whose parameters changed in flight does not tell what one of them did.
    pairs = [(trial, value) for trial, value in pairs if not trial.clones]
    rows, values = [trial.parameters for trial, _ in pairs], [value for _, value in pairs]
    names = history.parameters()
    varied = [name for name in names if all(name in row for row in rows) and len({_key(row[name]) for row in rows}) > 1]
    told: dict[str, Any] = {
        "step": step,
        "trials": len(rows),
        "left_out": [name for name in names if name not in varied],
    }
    told["correlations"] = {
        name: round(spearman([float(row[name]) for row in rows], values), 4)
        for name in varied
        if len(rows) >= 4 and all(number(row[name]) is not None for row in rows)
    }
    why_not = _why_not(len(rows), varied, values)
    if why_not is None:
        try:
            return Importance(
                shares=_optuna({name: [row[name] for row in rows] for name in varied}, values, history.mode), **told
            )
        except ImportError:
            why_not = "Optuna is not installed here; `pip install optuna` adds it"
    return Importance(why_not=why_not, **told)


def _why_not(trials: int, varied: Sequence[str], values: Sequence[float]) -> str | None:
    if trials < MINIMUM:
        return f"{trials} trials with an objective that can be compared; fewer than {MINIMUM} tell mostly chance"
    if not varied:
        return "no parameter differs between the trials that can be compared"
    return "all trials have the same objective" if len(set(values)) == 1 else None


def _optuna(columns: Mapping[str, Sequence[Any]], values: Sequence[float], mode: str) -> dict[str, float]:
    """Optuna's evaluator over finished trials. Raises ImportError without it."""
    import warnings

    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            study = optuna.create_study(direction="maximize" if mode == "max" else "minimize")
            distributions, as_told = {}, {}
            for name, column in columns.items():
                distributions[name], as_told[name] = _distribution(column)
            for index, value in enumerate(values):
                params = {name: as_told[name][index] for name in columns}
                study.add_trial(optuna.trial.create_trial(params=params, distributions=distributions, value=value))
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            found = optuna.importance.get_param_importances(study, evaluator=evaluator)
    finally:
        optuna.logging.set_verbosity(before)
    total = sum(found.values())
    shares = {name: float(share) / total if total else 0.0 for name, share in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _distribution(column: Sequence[Any]) -> tuple[Any, list[Any]]:
    """The distribution that a column of values may have been drawn from, and the values as it takes them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if all(isinstance(value, int) and not isinstance(value, bool) for value in column):
        low, high = min(column), max(column)
        return IntDistribution(low, high, log=low > 0 and high >= low * DECADES), list(column)
    if all(number(value) is not None for value in column):
        low, high = float(min(column)), float(max(column))
        return FloatDistribution(low, high, log=low > 0 and high >= low * DECADES), [float(value) for value in column]
    words = [_key(value) for value in column]
    return CategoricalDistribution(sorted(set(words))), words


def _key(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def spearman(xs: Sequence[float], ys: Sequence[float]) -> float:
    """Spearman's rank correlation, ties at their mean rank; 0 where one side does not vary."""
    a, b = _ranks(xs), _ranks(ys)
    mean = (len(a) + 1) / 2
    over = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    under = math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))
    return over / under if under else 0.0


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda index: values[index])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and values[order[end + 1]] == values[order[start]]:
            end += 1
        for position in range(start, end + 1):
            ranks[order[position]] = (start + end) / 2 + 1
        start = end + 1
    return ranks
