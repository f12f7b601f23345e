"""Reading plain data of any shape: what is missing and what has the wrong type are the same, nothing raises.

Rules look at somebody's mistakes, so they must not fall over them.
"""

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

_LARGEST = 40
"""Power of ten above which a quantity is taken for a mistake."""


def mapping(value: Any) -> Mapping[str, Any]:
    """The value when it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: Any) -> list[Any]:
    """The value when it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def get(value: Any, *path: str | int, default: Any = None) -> Any:
    """The part of plain data at a path; `default` where the data has another shape."""
    for step in path:
        listed = isinstance(step, int) and isinstance(value, list) and -len(value) <= step < len(value)
        if not listed and not (isinstance(step, str) and isinstance(value, Mapping) and step in value):
            return default
        value = value[step]
    return value


def text(value: Any) -> str:
    """The value as text; empty for None and for trees."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""


def placeholder(value: Any) -> bool:
    """Whether a text is to be filled in before it is applied (envsubst, Helm, Jinja): nothing can be said about it."""
    return isinstance(value, str) and ("$" in value or "{{" in value or "PLACEHOLDER" in value)


def amount(value: Any) -> Decimal | None:
    """The exact value of a Kubernetes quantity; None for what is none."""
    from raytrain_eks.spec import quantity

    try:
        found = None if value is None or isinstance(value, bool) else quantity.parse(text(value))
    except (ValueError, ArithmeticError):
        return None
    # 1e999999999 is a quantity by its grammar, and no amount of anything: as an integer it would fill the memory.
    return None if found is None or found.adjusted() > _LARGEST else found
