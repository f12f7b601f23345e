"""What watches over a run and what it reports: guards on loss and gradients, loggers, the profiler."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import NonNegativeInt, PositiveFloat
from pydantic.functional_validators import BeforeValidator

from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Whole


class Guard(Model):
    """When a step is not applied. The weights then stay as they are, the batch is named in the events, and the run
    goes on with the next one."""

    spike: PositiveFloat | None = 12.0
    """A loss this many robust deviations (1.4826 times the median distance from the median) above the median of the
    window is a spike. null: only losses and gradients that are not finite are stopped."""

    window: Whole = 64
    """Applied steps that the median is taken over; before that many there is no spike."""

    in_a_row: Whole = 5
    """So many stopped steps in a row, and the run goes back to the last checkpoint from before them. The data of the
    stopped steps is not read again."""

    rewinds: NonNegativeInt = 2
    """How often a run may go back before it fails."""


def _two(value: object) -> object:
    if isinstance(value, list) and len(value) == 2:
        return tuple(value)
    return value


class Profile(Model):
    """A trace of a few steps by torch's profiler, written to the run folder for Perfetto or TensorBoard."""

    steps: Annotated[tuple[Whole, Whole], BeforeValidator(_two)] = Aside()
    """The first and the last step that is traced, such as [10, 12]; every rank writes its own trace."""

    @rule
    def _in_order(self) -> Iterator[Problem]:
        if self.steps[0] > self.steps[1]:
            yield Problem(path="steps", rule="the first must not be after the last", fix="for example [10, 12]")


Logger = Literal["tensorboard", "mlflow", "wandb"]
"""Who is told the metrics beside `metrics.jsonl`."""
