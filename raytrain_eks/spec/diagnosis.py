"""What `doctor` finds: one checked fact each, in green, yellow or red, with its place and its fix.

It is what `Problem` is to a file, for machines and clusters. A check yields diagnoses and raises nothing for what it
looks for; it prints nothing. They cross processes (a worker's report comes back through a job's log), so they are
plain data both ways.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Self

from raytrain_eks.spec.problem import counted, shown

LONGEST = 1000
"""Letters of a sentence that are shown."""


class Level(StrEnum):
    """How bad it is."""

    GREEN = "green"
    """As it should be."""
    YELLOW = "yellow"
    """It works, but costs speed, work or a feature; or it could not be found out."""
    RED = "red"
    """A run would fail, or waste what it costs."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """One finding."""

    id: str
    """Stable, in dots: the system, then what was looked at: `machine.shm`, `karpenter.nodepool`."""
    level: Level
    what: str
    """What is so, as a sentence without a full stop, with the values concerned."""
    where: str
    """Which machine, pod or object."""
    fix: str | None = None
    """What to do; None where nothing is to be done."""

    def as_data(self) -> dict[str, Any]:
        """Plain data, in the order of the fields."""
        return asdict(self) | {"level": self.level.value}

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Self:
        """The diagnosis that `as_data` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        texts = {name: data[name] for name in ("id", "what", "where")}
        fix = data["fix"]
        if not all(isinstance(text, str) for text in texts.values()) or not (fix is None or isinstance(fix, str)):
            raise TypeError("a diagnosis is made of texts")
        return cls(level=Level(data["level"]), fix=fix, **texts)

    def __str__(self) -> str:
        # What a server or a program said may hold anything, a terminal's control sequences among it.
        lines = [shown(text, most=LONGEST) for text in (self.what, self.fix) if text]
        head = f"{self.level.value:<6}  {self.id}  {shown(self.where, most=120)}"
        return "\n".join([head, *(f"        {line}" for line in lines)])


def green(id: str, where: str, what: str) -> Diagnosis:
    """A finding that is as it should be."""
    return Diagnosis(id=id, level=Level.GREEN, where=where, what=what)


def yellow(id: str, where: str, what: str, fix: str) -> Diagnosis:
    """A finding that costs something."""
    return Diagnosis(id=id, level=Level.YELLOW, where=where, what=what, fix=fix)


def red(id: str, where: str, what: str, fix: str) -> Diagnosis:
    """A finding that stops a run."""
    return Diagnosis(id=id, level=Level.RED, where=where, what=what, fix=fix)


def summary(found: Iterable[Diagnosis]) -> str:
    """`9 checks: 6 green, 2 yellow, 1 red`."""
    levels = [each.level for each in found]
    return f"{counted(len(levels), 'check')}: " + ", ".join(f"{levels.count(level)} {level}" for level in Level)
