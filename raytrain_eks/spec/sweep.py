"""A sweep, as a researcher writes it: one job, the fields of it that are searched, and what makes a trial good."""

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt

from raytrain_eks.spec.job import Job, RunName
from raytrain_eks.spec.job_data import Location, Text
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem, nearest
from raytrain_eks.spec.quantity import Whole
from raytrain_eks.spec.sweep_space import LISTED, Grid, Parameter, among, conditions, ordered
from raytrain_eks.spec.sweep_steering import Budget, Everyone, GridSearch, Objective, Optuna, Pbt, RandomSearch
from raytrain_eks.spec.sweep_steering import Scheduler as SchedulerOf
from raytrain_eks.spec.sweep_steering import Search as SearchOf

IN_FLIGHT = ("optimizer", "schedule", "guard")
"""Sections of a job that can change between two steps of a run."""


class Sweep(Model):
    """Many runs of one job with different parameters, the best of them kept."""

    kind: Literal["Sweep"] = "Sweep"
    """The kind of file this is."""

    name: RunName = Aside()
    """The sweep's name; with `storage` it says which sweep this is: the same name goes on where it stopped."""

    job: Text | Job
    """The job: a file, relative to the working directory, or all of it in place. Its name, storage and samples are not
    used; checkpoints and evaluations that it does not ask for are made as the sweep needs them."""

    space: Annotated[dict[str, Parameter], Field(min_length=1)]
    """Path of a field of the job -> its values, such as
    `optimizer.learning_rate: {kind: loguniform, low: 1.0e-4, high: 1.0e-2}`. The kinds are `uniform`, `loguniform`,
    `int`, `choice` and `grid`."""

    objective: Objective = Objective.model_construct()
    """What makes one trial better than another."""

    search: SearchOf = RandomSearch.model_construct()
    """How parameters are chosen: `{kind: random}`, `{kind: grid}`, `{kind: optuna}`."""

    scheduler: SchedulerOf = Everyone.model_construct()
    """Which trials go on: `{kind: none}`, `{kind: asha}`, `{kind: median}`, `{kind: pbt}`."""

    trials: Whole | None = Aside(None)
    """How many trials. None: all combinations of a grid. Raising it extends a finished sweep."""

    concurrency: Whole | None = Aside(None)
    """Trials at the same time, at most. None: as many as the cluster has room for."""

    budget: Budget = Aside(Budget.model_construct())
    """What the whole sweep may cost."""

    keep: Whole = Aside(3)
    """The best trials keep their checkpoints and exported models; of the others metrics and parameters stay."""

    max_failures: NonNegativeInt | None = Aside(None)
    """So many failed trials are borne; one more ends the sweep. None: half of the trials. When the first three all fail
    alike it ends at once. A trial that diverges has not failed."""

    storage: Location | None = Aside(None)
    """The folder or `s3://bucket/prefix` that holds sweeps and runs. None: as for a job."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds the search. Trials have the seed of the job unless `seed` is in the space."""

    @property
    def number(self) -> int | None:
        """Trials in all; None: neither the file nor a grid says."""
        wanted = self.trials if self.trials is not None else self.grid_size
        limits = [count for count in (wanted, self.budget.trials) if count is not None]
        return min(limits, default=None)

    @property
    def grid_size(self) -> int | None:
        """Combinations of a grid search, conditions left aside; None for another search."""
        if not isinstance(self.search, GridSearch):
            return None
        return math.prod(len(parameter.all() or ()) for parameter in self.space.values())

    def mutated(self) -> list[str]:
        """The parameters that PBT changes in flight."""
        if not isinstance(self.scheduler, Pbt):
            return []
        if self.scheduler.mutate is not None:
            return list(self.scheduler.mutate)
        return [path for path in self.space if path.split(".")[0] in IN_FLIGHT]

    @rule
    def _conditions(self) -> Iterator[Problem]:
        for path, parameter in self.space.items():
            for other, values in conditions(parameter).items():
                where = f"space.{path}.when"
                if other not in self.space:
                    guess = nearest(other, self.space)
                    fix = f"did you mean `{guess}`?" if guess else f"there are {', '.join(self.space)}"
                    yield Problem(path=where, value=other, rule="is no parameter of this space", fix=fix)
                    continue
                possible = self.space[other].all()
                for value in values:
                    if possible is not None and not among(value, possible):
                        rule = f"`{other}` is never {value!r}: its values are {_named(possible)}"
                        yield Problem(path=where, rule=rule, fix="write one of them")

    @rule
    def _no_circles(self) -> Iterator[Problem]:
        try:
            ordered(self.space)
        except KeyError as error:
            path = error.args[0]
            why = "depends on itself, by way of its `when`"
            yield Problem(path=f"space.{path}.when", rule=why, fix="let one of the parameters exist in every trial")

    @rule
    def _grid_is_finite(self) -> Iterator[Problem]:
        for path, parameter in self.space.items() if isinstance(self.search, GridSearch) else ():
            if parameter.all() is None:
                rule = f"a grid needs values that can be counted, and {parameter.kind} has any number of them"
                fix = "write `kind: grid` with `values`" + (", or a `step`" if parameter.kind == "uniform" else "")
                yield Problem(path=f"space.{path}.kind", rule=rule, fix=fix)
            elif len(parameter.all() or ()) > LISTED:
                rule = f"a grid tries all values, and these are {len(parameter.all() or ()):,}"
                yield Problem(path=f"space.{path}", rule=rule, fix="write a wider `step`, or `search: {kind: random}`")

    @rule
    def _grid_values_take_turns(self) -> Iterator[Problem]:
        for path, parameter in self.space.items() if isinstance(self.search, Optuna) else ():
            if isinstance(parameter, Grid):
                rule = "optuna chooses where to look, so no value has its turn"
                yield Problem(path=f"space.{path}.kind", rule=rule, fix="write `kind: choice`")

    @rule
    def _some_trials(self) -> Iterator[Problem]:
        if self.number is None:
            yield Problem(path="trials", rule="how many trials?", fix="for example `trials: 16`")
        size = self.grid_size
        if size and self.trials is not None and self.trials > size:
            yield Problem(path="trials", rule=f"the grid has only {size} combinations", fix=f"write at most {size}")

    @rule
    def _population(self) -> Iterator[Problem]:
        if not isinstance(self.scheduler, Pbt):
            return
        if self.number is not None and self.number < 2:
            yield Problem(path="trials", rule="a population needs at least 2 trials", fix="write 4 or more")
        for index, path in enumerate(self.scheduler.mutate or []):
            yield from self._may_mutate(index, path)
        if not self.mutated():
            rule = f"nothing of the space can change in flight: only fields of {', '.join(IN_FLIGHT)} can"
            yield Problem(path="scheduler", rule=rule, fix="add for example `optimizer.learning_rate` to the space")

    def _may_mutate(self, index: int, path: str) -> Iterator[Problem]:
        where = f"scheduler.mutate.{index}"
        if path not in self.space:
            guess = nearest(path, self.space)
            fix = f"did you mean `{guess}`?" if guess else f"there are {', '.join(self.space)}"
            yield Problem(path=where, rule="is no parameter of this space", fix=fix)
        elif path.split(".")[0] not in IN_FLIGHT:
            rule = "cannot change in flight, since the weights or the data would be others"
            yield Problem(path=where, rule=rule, fix=f"only fields of {', '.join(IN_FLIGHT)} can")

    @rule
    def _budget_is_possible(self) -> Iterator[Problem]:
        limit, wanted = self.budget.trials, self.trials
        if limit is not None and wanted is not None and limit < wanted and isinstance(self.scheduler, Pbt):
            rule = f"a population of {wanted} trials cannot be had with {limit}"
            yield Problem(path="budget.trials", rule=rule, fix="leave it out, or lower `trials`")

    def job_data(self) -> dict[str, Any]:
        """The job in place, as written. Raises ValueError while it is still a file's name."""
        if isinstance(self.job, str):
            raise ValueError(f"the job is still the file {self.job}")
        return self.job.written()


def _named(values: Sequence[Any], most: int = 20) -> str:
    """Values for a message; of many, the first and the last."""
    if len(values) <= most:
        return ", ".join(map(str, values))
    return f"{values[0]}, {values[1]}, ... {values[-1]}"
