"""A sweep and its job together: the job that is meant, a trial's job out of parameters, and what does not fit.

Reads the job file that a sweep names and nothing else. Every value that can be counted, and the ends of every range,
are tried in the job before anything starts.
"""

import copy
import itertools
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.fields import field_names, field_of, models_in, tag_of
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.model import Model
from raytrain_eks.spec.problem import Problem, SpecError, counted, nearest
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.spec.sweep_space import Int, LogUniform, Parameter, Uniform, conditions, holds, ordered
from raytrain_eks.spec.sweep_steering import Asha, Median, Pbt, in_steps

FIXED = ("kind", "name", "storage", "cluster", "workers", "environment", "sample", "loggers")
"""Fields of a job that say where a run is and what it is called; a sweep sets them, or they are alike in all trials."""
FEW = 30
"""Combinations of the others beside which a refused value is tried again."""
LONGEST = 200
"""Values of one parameter that are tried, and combinations of a small space."""


def job_file(sweep: Sweep, folder: Path) -> Path | None:
    """The job file that a sweep names, when relative paths start at `folder`; None when the job stands in the sweep."""
    return folder / Path(os.path.expanduser(sweep.job)) if isinstance(sweep.job, str) else None


def resolved(sweep: Sweep, folder: Path) -> Sweep:
    """The sweep with its job in place, so that it needs no other file. Raises SpecError."""
    place = job_file(sweep, folder)
    if place is None:
        return sweep
    if found := list(_unreadable(sweep, place)):
        raise SpecError(found)
    return sweep.model_copy(update={"job": load(place, expect="Job")})


def problems(sweep: Sweep, folder: Path) -> Iterator[Problem]:
    """What does not fit between a valid sweep and its job, with paths in the sweep's tree."""
    place = job_file(sweep, folder)
    if place is not None and (found := list(_unreadable(sweep, place))):
        yield from found
        return
    job = load(place, expect="Job") if place is not None else sweep.job
    assert isinstance(job, Job)
    yield from _space(sweep, job)
    yield from _rungs(sweep, job)


def check_with_job(sweep: Sweep, folder: Path) -> None:
    """Raises SpecError with what does not fit between a sweep and its job."""
    if found := list(problems(sweep, folder)):
        raise SpecError(found)


def _unreadable(sweep: Sweep, place: Path) -> Iterator[Problem]:
    try:
        load(place, expect="Job")
    except FileNotFoundError:
        fix = f"a relative path starts at {place.parent if str(sweep.job).count('/') == 0 else 'the working directory'}"
        yield Problem(path="job", value=str(sweep.job), rule=f"there is no such file ({place})", fix=fix)
    except OSError as error:
        yield Problem(path="job", value=str(sweep.job), rule=f"cannot be read: {error.strerror}")
    except SpecError as error:
        rule = f"that file has {counted(len(error.problems), 'problem')} itself: {error.problems[0].path}"
        fix = f"see them with `raytrain-eks validate {sweep.job}`"
        yield Problem(path="job", value=str(sweep.job), rule=rule, fix=fix)


# -- a trial's job --------------------------------------------------------------------------------------------------


def with_parameters(job: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A job as written, with other values at some dotted paths; sections that are not there are made."""
    found: dict[str, Any] = copy.deepcopy(dict(job))
    for path, value in parameters.items():
        *above, last = path.split(".")
        here: Any = found
        for word in above:
            below = here[int(word)] if isinstance(here, list) else here.get(word)
            if below is None:
                below = here[word] = {}
            here = below
        if isinstance(here, list):
            here[int(last)] = value
        else:
            here[last] = value
    return found


def trial_job(job: Mapping[str, Any], name: str, parameters: Mapping[str, Any]) -> Job:
    """The job of one trial. Raises SpecError when the parameters do not fit together."""
    tree = with_parameters(job, parameters)
    for field in ("storage", "sample"):
        tree.pop(field, None)
    return Job.parse({**tree, "name": name})


# -- the space ------------------------------------------------------------------------------------------------------


def _space(sweep: Sweep, job: Job) -> Iterator[Problem]:
    written, sound = job.written(), True
    for path, parameter in sweep.space.items():
        found = list(_path(path, job))
        found = found or list(_values(sweep, path, parameter, written))
        sound = sound and not found
        yield from found
    if sound:
        yield from _combinations(sweep, written)


def _path(path: str, job: Job) -> Iterator[Problem]:
    """The problem with a path that is none of the job's."""
    words = path.split(".")
    if words[0] in FIXED:
        rule = f"`{words[0]}` is the same for all trials, or the sweep's own"
        yield Problem(path=f"space.{path}", rule=rule, fix="take it out of the space; the job file sets it")
        return
    owners: list[Any] = [Job]
    value: Any = job
    for depth, word in enumerate(words):
        if isinstance(value, dict) or not owners:
            return  # below a free mapping (a model's config) or inside a list: trying the values will tell
        known = [name for owner in owners for name in field_names(owner)]
        having = [owner for owner in owners if field_of(owner, word)]
        if not having:
            here = ".".join(words[:depth])
            guess = nearest(word, known)
            meant = ".".join([*words[:depth], guess, *words[depth + 1 :]]) if guess else None
            fix = f"did you mean `{meant}`?" if meant else f"there are {', '.join(dict.fromkeys(known))}"
            rule = f"the job has no field `{word}`" + (f" in `{here}`" if here else "")
            yield Problem(path=f"space.{path}", rule=rule, fix=fix)
            return
        value = _child(value, word)
        owners = [below for owner in having for below in models_in(field_of(owner, word)[1].annotation)]  # type: ignore[index]
        if isinstance(value, Model) and tag_of(type(value)):
            owners = [type(value)]
    if owners:
        names = ", ".join(dict.fromkeys(name for owner in owners for name in field_names(owner)))
        yield Problem(path=f"space.{path}", rule="is a section, not a value", fix=f"search one of its fields: {names}")


def _child(value: Any, word: str) -> Any:
    found = field_of(type(value), word) if isinstance(value, Model) else None
    return getattr(value, found[0]) if found is not None else None


def _values(sweep: Sweep, path: str, parameter: Parameter, job: Mapping[str, Any]) -> Iterator[Problem]:
    """The values that the field itself refuses, each in its place."""
    context = _around(sweep, path)
    for where, value in _tried(parameter):
        refused = _refusal(job, context | {path: value}, about=path)
        if refused is not None and not _fits_elsewhere(sweep, path, value, job):
            yield Problem(path=f"space.{path}.{where}", rule=refused.rule, fix=refused.fix)


def _fits_elsewhere(sweep: Sweep, path: str, value: Any, job: Mapping[str, Any]) -> bool:
    """Whether a value that the job refuses fits beside other values of the space."""
    others = {each: parameter for each, parameter in sweep.space.items() if each != path}
    listed = [[(each, one) for _, one in _tried(parameter)] for each, parameter in others.items()]
    for chosen in itertools.islice(itertools.product(*listed), FEW if others else 0):
        if _refusal(job, dict(chosen) | {path: value}, about=path) is None:
            return True
    return False


def _around(sweep: Sweep, path: str) -> dict[str, Any]:
    """Values of the parameters on which one depends, so that it exists."""
    found: dict[str, Any] = {}
    for other, values in conditions(sweep.space[path]).items():
        if other in sweep.space:
            found |= _around(sweep, other)
        found[other] = values[0]
    return found


def _tried(parameter: Parameter) -> Iterator[tuple[str, Any]]:
    """Where a value stands, and the value: the ends of a range, all of a list."""
    if isinstance(parameter, Uniform | LogUniform | Int):
        yield "low", parameter.low
        values = parameter.all()
        yield "high", values[-1] if values else parameter.high
        return
    for index, value in enumerate(parameter.values[:LONGEST]):
        yield f"values.{index}", value


def _refusal(job: Mapping[str, Any], parameters: Mapping[str, Any], *, about: str) -> Problem | None:
    """Why the job refuses a field's value; None when it takes it, or when only the combination does not fit."""
    try:
        trial_job(job, "t0000", parameters)
    except SpecError as error:
        near = [each for each in error.problems if each.path == about or each.path.startswith(f"{about}.")]
        return near[0] if near else None
    except (KeyError, IndexError, ValueError, TypeError, AttributeError):
        return Problem(path=about, rule="leads to no field of this job")
    return None


def _combinations(sweep: Sweep, job: Mapping[str, Any]) -> Iterator[Problem]:
    """The first combination of ends and values that the job refuses as a whole."""
    listed = [[(path, value) for _, value in _tried(sweep.space[path])] for path in ordered(sweep.space)]
    for chosen in itertools.islice(itertools.product(*listed), LONGEST):
        drawn: dict[str, Any] = {}
        for path, value in chosen:
            if holds(sweep.space[path], drawn):
                drawn[path] = value
        try:
            trial_job(job, "t0000", drawn)
        except SpecError as error:
            first = error.problems[0]
            shown = ", ".join(f"{path}: {value}" for path, value in drawn.items())
            rule = f"does not fit together in the job: {first.path}: {first.rule}, for {shown}"
            yield Problem(path=f"space.{_blamed(first.path, drawn)}", rule=rule, fix=first.fix)
            return


def _blamed(path: str, drawn: Mapping[str, Any]) -> str:
    return path if path in drawn else next((each for each in drawn if each.startswith(path)), next(iter(drawn)))


# -- clocks ---------------------------------------------------------------------------------------------------------


def steps_of(job: Job) -> int | None:
    """Optimizer steps of a job as far as its file says; None where that depends on the data."""
    found = [job.stop.steps] if job.stop.steps is not None else []
    if job.stop.tokens is not None:
        found.append(-(-quantity.count(job.stop.tokens) // tokens_per_step(job)))
    return min(found) if found and job.stop.epochs is None else None


def tokens_per_step(job: Job) -> int:
    """Tokens of a global batch, padding included."""
    return job.global_sequences * job.data.sequence_length


def _rungs(sweep: Sweep, job: Job) -> Iterator[Problem]:
    """Rungs and exchanges that no trial comes to."""
    steps, scheduler = steps_of(job), sweep.scheduler
    asked: dict[str, int | str | None] = {}
    if isinstance(scheduler, Asha):
        asked = {"first": scheduler.first} | {
            f"rungs.{index}": rung for index, rung in enumerate(scheduler.rungs or [])
        }
    elif isinstance(scheduler, Median):
        asked = {"every": scheduler.every, "first": scheduler.first}
    elif isinstance(scheduler, Pbt):
        asked = {"every": scheduler.every}
    searched = {"stop.steps", "stop.tokens", "stop.epochs", "batch.tokens", "batch.sequences", "data.sequence_length"}
    if steps is None or searched & set(sweep.space):
        return
    for field, amount in asked.items():
        if amount is not None and in_steps(amount, scheduler.clock, tokens_per_step(job)) >= steps:  # type: ignore[union-attr]
            rule = f"no trial comes there before it ends: the job has {counted(steps, 'step')}"
            yield Problem(path=f"scheduler.{field}", rule=rule, fix=f"write less than {_said(steps, scheduler, job)}")


def _said(steps: int, scheduler: Any, job: Job) -> str:
    return f"{steps}" if scheduler.clock == "step" else f"{steps * tokens_per_step(job)}"
