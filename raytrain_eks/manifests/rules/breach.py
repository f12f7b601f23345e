"""One broken rule, and careful looks into objects of unknown make."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Breach:
    """A rule of the operator that an object breaks."""

    rule: str
    """Its id: `M1` and so on, as listed in the modules beside this one."""
    at: Path
    """Where in the object."""
    message: str
    """The rule, as a sentence without a full stop."""

    @property
    def path(self) -> str:
        """The place in dots."""
        return ".".join(map(str, self.at))


def part(value: Any, *steps: str | int) -> Any:
    """What stands at `steps` inside of `value`; None when there is nothing."""
    for step in steps:
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def section(value: Any, *steps: str | int) -> Mapping[str, Any]:
    """The mapping at `steps`; an empty one when there is none."""
    found = part(value, *steps)
    return found if isinstance(found, Mapping) else {}


def rows(value: Any, *steps: str | int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The mappings of the list at `steps`, each with its index."""
    found = part(value, *steps)
    for index, row in enumerate(found if isinstance(found, list) else ()):
        if isinstance(row, Mapping):
            yield index, row


def number(value: Any, *steps: str | int) -> int | float | None:
    """The number at `steps`; None when there is none."""
    found = part(value, *steps)
    return found if isinstance(found, int | float) and not isinstance(found, bool) else None


def text(value: Any, *steps: str | int) -> str:
    """The string at `steps`; an empty one when there is none."""
    found = part(value, *steps)
    return found if isinstance(found, str) else ""


def variables(template: Any) -> dict[str, tuple[int, str]]:
    """Name -> (index, literal value) of the variables of a pod template's Ray container, the first one."""
    return {text(row, "name"): (index, text(row, "value")) for index, row in rows(template, *RAY, "env")}


RAY: Path = ("spec", "containers", 0)
"""The Ray container is the first one."""
