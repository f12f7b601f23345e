"""Values out of a search space. Pure: the same seed and trial number draw the same values, whatever came before.

So a sweep that is killed and goes on draws what it would have drawn.
"""

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any

from raytrain_eks.spec.sweep_space import (
    Choice,
    Grid,
    Int,
    LogUniform,
    Parameter,
    Space,
    Uniform,
    among,
    holds,
    ordered,
)

Parameters = dict[str, Any]
"""Path of a field of the job -> its value in a trial; conditional ones only where they exist."""


def generator(seed: int, *words: object) -> random.Random:
    """A generator of its own for everything that is drawn: `generator(seed, "trial", 7)`."""
    return random.Random(":".join(map(str, (seed, *words))))


def value(parameter: Parameter, source: random.Random) -> Any:
    """One value of a parameter, by its own distribution. Floats have 6 significant digits: they are read by people."""
    if isinstance(parameter, Uniform | Choice | Grid) and (listed := parameter.all()) is not None:
        return listed[source.randrange(len(listed))]
    if isinstance(parameter, Int) and not parameter.log:
        return source.randrange(parameter.low, parameter.high + 1, parameter.step)
    if isinstance(parameter, Int):
        low, high = math.log(parameter.low - 0.5), math.log(parameter.high + 0.5)
        return min(max(round(math.exp(source.uniform(low, high))), parameter.low), parameter.high)
    if isinstance(parameter, LogUniform):
        drawn = math.exp(source.uniform(math.log(parameter.low), math.log(parameter.high)))
    else:
        assert isinstance(parameter, Uniform)
        drawn = source.uniform(parameter.low, parameter.high)
    return min(max(float(f"{drawn:.6g}"), parameter.low), parameter.high)


def at_random(space: Space, seed: int, number: int) -> Parameters:
    """The parameters of trial `number` (from 1). Values of `grid` parameters take turns, in the order of the file, the
    last one fastest; all others are drawn."""
    turns = {path: parameter.values for path, parameter in space.items() if isinstance(parameter, Grid)}
    place, given = number - 1, {}
    for path in reversed(turns):
        place, index = divmod(place, len(turns[path]))
        given[path] = turns[path][index]
    source, drawn = generator(seed, "trial", number), {}
    for path in ordered(space):
        # Drawn also where it does not exist, so that one parameter's condition does not move the others.
        one = given[path] if path in given else value(space[path], source)
        if holds(space[path], drawn):
            drawn[path] = one
    return in_order(space, drawn)


def grid(space: Space) -> Iterator[Parameters]:
    """Every combination, once: two that differ only in parameters that do not exist are one."""
    names = ordered(space)
    seen: list[Parameters] = []
    for chosen in itertools.product(*(space[path].all() or [] for path in names)):
        drawn: Parameters = {}
        for path, one in zip(names, chosen, strict=True):
            if holds(space[path], drawn):
                drawn[path] = one
        if drawn not in seen:
            seen.append(drawn)
            yield in_order(space, drawn)


def in_order(space: Space, drawn: Parameters) -> Parameters:
    """The parameters in the order of the file."""
    return {path: drawn[path] for path in space if path in drawn}


def changed(parameter: Parameter, old: Any, source: random.Random, *, resample: float, factors: list[float]) -> Any:
    """A value near `old`, as population based training changes one (Jaderberg et al. 2017): drawn anew with the
    probability `resample`; else a number times one of `factors`, within its range; else a neighbour in its list."""
    listed = parameter.all()
    if source.random() < resample or (listed is not None and not among(old, listed)):
        return value(parameter, source)
    if isinstance(parameter, Choice | Grid):
        assert listed is not None
        place = listed.index(old) + source.choice((-1, 1))
        return listed[min(max(place, 0), len(listed) - 1)]
    moved = old * source.choice(factors)
    if isinstance(listed, range):
        place = int((moved - listed.start) // listed.step)
        listed = [listed[min(max(each, 0), len(listed) - 1)] for each in (place, place + 1)]
    if listed is not None:
        return min(listed, key=lambda each: (abs(each - moved), each))
    return min(max(float(f"{moved:.6g}"), float(parameter.low)), float(parameter.high))
