"""The search space of a sweep: for each field of the job that is searched, where its values come from.

Every parameter is named by the dotted path of the field, as it would be written in a job file. A parameter with `when`
exists only in trials in which another one has a certain value; elsewhere the job's own value stays.
"""

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, PositiveFloat

from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Whole

Value = str | bool | int | float | None
"""What a choice may hold: one word or number."""
When = Annotated[dict[str, list[Any] | Value], Field(min_length=1)] | None
Values = Annotated[list[Value | list[Any] | dict[str, Any]], Field(min_length=1)]

Integer = Annotated[int, Field(ge=-(2**53), le=2**53)]
"""Whole numbers that a float holds exactly as well: searchers calculate with floats."""
LISTED = 100_000
"""Values of a parameter that are ever listed; a range of more is drawn from, not counted through."""


def _empty(low: float, high: float) -> Iterator[Problem]:
    if low >= high:
        rule = f"the range is empty: low is {low:g} and high is {high:g}"
        fix = "swap the two" if low > high else "write a higher `high`, or leave the parameter out"
        yield Problem(path="high", rule=rule, fix=fix)


class Uniform(Model):
    """Numbers that are all as likely."""

    kind: Literal["uniform"] = "uniform"
    """All values of the range are as likely."""

    low: float
    """The smallest value."""

    high: float
    """The largest value."""

    step: PositiveFloat | None = None
    """Only `low`, `low + step`, ... up to `high`. None: any number between them."""

    when: When = None
    """Only where another parameter has this value, or one of these: `{schedule.kind: wsd}`. None: in every trial."""

    @rule
    def _range(self) -> Iterator[Problem]:
        yield from _empty(self.low, self.high)

    @rule
    def _countable(self) -> Iterator[Problem]:
        if self.step is not None and self._steps >= LISTED:
            rule = f"leads to more than {LISTED:,} values"
            yield Problem(path="step", rule=rule, fix="write a wider step, or leave it out: any number of the range")

    def all(self) -> Sequence[Any] | None:
        """Every value, where they can be counted."""
        if self.step is None or self._steps >= LISTED:
            return None
        # A decimal step must not leave 0.30000000000000004 in a file.
        return [float(f"{self.low + index * self.step:.12g}") for index in range(int(self._steps) + 1)]

    @property
    def _steps(self) -> float:
        assert self.step is not None
        return (self.high - self.low) / self.step + 1e-9


class LogUniform(Model):
    """Positive numbers whose order of magnitude is what is searched: learning rates, weight decay."""

    kind: Literal["loguniform"] = "loguniform"
    """All values of the logarithm are as likely: 1e-4 to 1e-3 as much as 1e-3 to 1e-2."""

    low: PositiveFloat
    """The smallest value."""

    high: PositiveFloat
    """The largest value."""

    when: When = None
    """Only where another parameter has this value, or one of these. None: in every trial."""

    @rule
    def _range(self) -> Iterator[Problem]:
        yield from _empty(self.low, self.high)

    def all(self) -> Sequence[Any] | None:
        """They cannot be counted."""
        return None


class Int(Model):
    """Whole numbers: widths, ranks, steps."""

    kind: Literal["int"] = "int"
    """Whole numbers of a range."""

    low: Integer
    """The smallest value."""

    high: Integer
    """The largest value; it is one of them where a whole number of steps leads there."""

    step: Whole = 1
    """The distance of two neighbours."""

    log: bool = False
    """Smaller numbers are more likely, as with `loguniform`; only with `step` 1."""

    when: When = None
    """Only where another parameter has this value, or one of these. None: in every trial."""

    @rule
    def _range(self) -> Iterator[Problem]:
        yield from _empty(self.low, self.high)

    @rule
    def _logarithm(self) -> Iterator[Problem]:
        if self.log and self.low < 1:
            yield Problem(path="low", rule="a logarithm needs numbers from 1 on", fix="write 1, or leave `log` out")
        if self.log and self.step > 1:
            yield Problem(path="step", rule="with `log` the numbers have no fixed distance", fix="leave it out")

    def all(self) -> Sequence[Any] | None:
        """Every value."""
        return range(self.low, self.high + 1, self.step)


class Choice(Model):
    """One of a few values."""

    kind: Literal["choice"] = "choice"
    """One of a few values, all as likely."""

    values: Values
    """The values, each as it would be written in the job."""

    when: When = None
    """Only where another parameter has this value, or one of these. None: in every trial."""

    @rule
    def _once(self) -> Iterator[Problem]:
        yield from _twice(self.values)

    def all(self) -> Sequence[Any] | None:
        """Every value."""
        return list(self.values)


class Grid(Model):
    """Values of which each is used as often as every other one, also when the rest is drawn at random."""

    kind: Literal["grid"] = "grid"
    """Each value in its turn."""

    values: Values
    """The values, each as it would be written in the job."""

    when: When = None
    """Only where another parameter has this value, or one of these. None: in every trial."""

    @rule
    def _once(self) -> Iterator[Problem]:
        yield from _twice(self.values)

    def all(self) -> Sequence[Any] | None:
        """Every value."""
        return list(self.values)


def _twice(values: list[Any]) -> Iterator[Problem]:
    seen: list[tuple[type, Any]] = []
    for index, value in enumerate(values):
        if (type(value), value) in seen:
            rule = "this value stands twice in the list"
            yield Problem(path=f"values.{index}", rule=rule, fix="leave one of them out")
        seen.append((type(value), value))


Parameter = Annotated[Uniform | LogUniform | Int | Choice | Grid, Discriminator("kind")]
Space = dict[str, Parameter]


def conditions(parameter: Parameter) -> dict[str, list[Any]]:
    """Path of another parameter -> the values of it under which this one exists."""
    when = parameter.when or {}
    return {path: value if isinstance(value, list) else [value] for path, value in when.items()}


def among(value: Any, values: Sequence[Any]) -> bool:
    """Whether a value is one of them; a long range is not walked through."""
    if isinstance(values, range) and not isinstance(value, int):
        return isinstance(value, float) and value.is_integer() and int(value) in values
    return value in values


def ordered(space: Space) -> list[str]:
    """The paths so that each comes after those that it depends on, else as written. Raises KeyError with the path of a
    parameter that depends on itself, by whatever way."""
    done: dict[str, None] = {}
    left = list(space)
    while left:
        ready = [path for path in left if all(other in done or other not in space for other in conditions(space[path]))]
        if not ready:
            raise KeyError(left[0])
        done |= {ready[0]: None}
        left.remove(ready[0])
    return list(done)


def holds(parameter: Parameter, drawn: dict[str, Any]) -> bool:
    """Whether a parameter exists where the others have the values `drawn`."""
    return all(path in drawn and drawn[path] in values for path, values in conditions(parameter).items())
