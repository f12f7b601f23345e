"""How a run ended, and lists that a notebook shows as tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from raytrain_eks.api import html
from raytrain_eks.submit.errors import TargetError

Row = TypeVar("Row")


class RunFailed(TargetError):
    """A run did not end well; `result` says how."""

    def __init__(self, message: str, result: "Result"):
        super().__init__(message)
        self.result, self.code = result, result.code


@dataclass(frozen=True, kw_only=True)
class Result:
    """How a run ended. It is true when the run is complete."""

    run: str
    state: str
    """complete, stopped, failed, interrupted."""
    code: int
    """The exit code of `raytrain-eks submit --follow`: 0 done, 1 failed, 3 bad input."""
    phase: str
    """A sentence, with what to do next where there is something to do."""

    def __bool__(self) -> bool:
        return self.code == 0

    def check(self) -> "Result":
        """Itself. Raises RunFailed when the run is not complete."""
        if not self:
            raise RunFailed(f"{self.run}: {self.phase}", self)
        return self


class Table(list[Row], Generic[Row]):
    """A list of rows that a notebook shows as a table."""

    def __init__(self, rows: Sequence[Row], cells: Sequence[dict[str, Any]]):
        super().__init__(rows)
        self._cells = list(cells)

    def _repr_html_(self) -> str:
        return html.table(self._cells)


class Lines(list[str]):
    """The lines of a log, shown as they are."""

    def __repr__(self) -> str:
        return "\n".join(self)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        return html.log(self)
