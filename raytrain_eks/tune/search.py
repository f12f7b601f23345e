"""Where the next trial's parameters come from. What is known lies in the record; a searcher holds nothing else.

So a sweep that goes on after a kill searches as if it had never stopped: Optuna's study is told all earlier trials, in
the order in which they were made, and its sampler is seeded by the trial's number.
"""

import itertools
import math
import warnings
from typing import Any

from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.spec.sweep_space import Choice, Int, LogUniform, Parameter, Uniform, holds, ordered
from raytrain_eks.spec.sweep_steering import GridSearch, Optuna
from raytrain_eks.tune.draw import Parameters, at_random, generator, grid, in_order
from raytrain_eks.tune.record import Record, Trial


def suggest(sweep: Sweep, record: Record, number: int) -> Parameters | None:
    """The parameters of trial `number` (from 1); None when a grid has no more."""
    if isinstance(sweep.search, GridSearch):
        return next(itertools.islice(grid(sweep.space), number - 1, None), None)
    if isinstance(sweep.search, Optuna) and number > sweep.search.startup:
        return by_optuna(sweep, record, number)
    return at_random(sweep.space, sweep.seed, number)


def by_optuna(sweep: Sweep, record: Record, number: int) -> Parameters:
    """What Optuna's TPE draws, told all earlier trials: completed ones by their objective, stopped ones as pruned,
    running ones as running (so that no two look at the same place), diverged ones by the worst objective that there
    was. Failed ones tell nothing."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    seed = generator(sweep.seed, "optuna", number).randrange(2**32)
    # `group` splits a conditional space into parts that are drawn together; Optuna still calls it experimental.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        options = {"n_startup_trials": 0, "multivariate": True, "group": True, "constant_liar": True}
        sampler = optuna.samplers.TPESampler(seed=seed, **options)
    direction = "minimize" if sweep.objective.mode == "min" else "maximize"
    study = optuna.create_study(sampler=sampler, direction=direction)
    worst = _worst(sweep, record)
    for trial in record.trials.values():
        if trial.number < number:
            try:
                study.add_trial(_told(sweep, trial, worst))
            except ValueError:
                # The space was changed since, and this trial lies outside: it tells nothing.
                continue
    asked, drawn = study.ask(), {}
    for path in ordered(sweep.space):
        if holds(sweep.space[path], drawn):
            drawn[path] = _asked(asked, path, sweep.space[path])
    return in_order(sweep.space, drawn)


def _worst(sweep: Sweep, record: Record) -> float:
    values = [each for trial in record.trials.values() for each in trial.values.values() if math.isfinite(each)]
    return (max if sweep.objective.mode == "min" else min)(values, default=0.0)


def _told(sweep: Sweep, trial: Trial, worst: float) -> Any:
    """A trial of the record as one of a study."""
    import optuna
    from optuna.trial import TrialState

    # PBT changes parameters in flight; what was drawn first says little of what came of it, but it is all there is.
    given = {path: value for path, value in trial.parameters.items() if path in sweep.space}
    spaces = {path: _distribution(sweep.space[path]) for path in given}
    inner = {path: _inner(sweep.space[path], value) for path, value in given.items()}
    about: dict[str, Any] = {"params": inner, "distributions": spaces}
    values = {step: value for step, value in trial.values.items() if math.isfinite(value)}
    if trial.state == "diverged":
        return optuna.create_trial(state=TrialState.COMPLETE, value=worst, **about)
    if trial.state == "completed" and trial.value is not None and math.isfinite(trial.value):
        return optuna.create_trial(state=TrialState.COMPLETE, value=trial.value, intermediate_values=values, **about)
    if trial.state == "stopped":
        return optuna.create_trial(state=TrialState.PRUNED, intermediate_values=values, **about)
    if not trial.over:
        return optuna.create_trial(state=TrialState.RUNNING, intermediate_values=values, **about)
    return optuna.create_trial(state=TrialState.FAIL, **about)


def _distribution(parameter: Parameter) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(parameter, LogUniform):
        return FloatDistribution(parameter.low, parameter.high, log=True)
    if isinstance(parameter, Uniform):
        return FloatDistribution(parameter.low, (parameter.all() or [parameter.high])[-1], step=parameter.step)
    if isinstance(parameter, Int):
        return IntDistribution(parameter.low, (parameter.all() or [])[-1], step=parameter.step, log=parameter.log)
    return CategoricalDistribution(range(len(parameter.values)))


def _inner(parameter: Parameter, value: Any) -> Any:
    """Optuna's own value: of a choice its place in the list, since a value may be a list itself."""
    return parameter.values.index(value) if isinstance(parameter, Choice) else value


def _asked(asked: Any, path: str, parameter: Parameter) -> Any:
    if isinstance(parameter, Choice):
        return parameter.values[asked.suggest_categorical(path, range(len(parameter.values)))]
    if isinstance(parameter, Int):
        high = (parameter.all() or [])[-1]
        return asked.suggest_int(path, parameter.low, high, step=parameter.step, log=parameter.log)
    about = _distribution(parameter)
    found = asked.suggest_float(path, about.low, about.high, step=about.step, log=about.log)
    return min(max(float(f"{found:.6g}"), about.low), about.high)
