"""Kubernetes quantities, counts, shares and intervals, parsed exactly and compared as decimals.

Grammar of a quantity: number, then one of n u m (none) k M G T P E, or Ki Mi Gi Ti Pi Ei, or an exponent
(k8s.io/apimachinery/pkg/api/resource/quantity.go). Every function raises ValueError with a rule a person can act on.
"""

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator

_SUFFIX = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_SUFFIX |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)}
_SUFFIX |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([a-zA-Z]*))\Z")
_COUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([kMGT]?)\Z")
_INTERVAL = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)\Z")
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse(text: str | int | float) -> Decimal:
    """The exact value of a Kubernetes quantity: `parse("1.5Gi") == 1610612736`."""
    match = _QUANTITY.match(str(text).strip())
    if not match or (match.group(3) or "") not in _SUFFIX:
        raise ValueError(f"{text!r} is not a Kubernetes quantity, such as 500m, 4, 1.5Gi or 200G")
    number, exponent, suffix = match.groups()
    return Decimal(number + exponent) if exponent else Decimal(number) * _SUFFIX[suffix or ""]


def gibibytes(value: Decimal) -> str:
    """A memory quantity for people and for manifests, rounded down to what is written: `1057.3Gi`, `512Mi`."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if value >= _SUFFIX[suffix] and value % _SUFFIX[suffix] == 0:
            return f"{value // _SUFFIX[suffix]}{suffix}"
    tenths = value * 10 // _SUFFIX["Gi"]
    return f"{tenths / 10:f}Gi" if tenths else f"{value // _SUFFIX['Mi']}Mi"


def _memory(value: object) -> str:
    text = str(value).strip()
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a memory quantity, such as 64Gi")
    if re.fullmatch(r"[\d.]+", text):
        raise ValueError(f"memory needs a unit: {text} alone would be bytes; write {text}Gi or {text}Mi")
    if parse(text) <= 0 or parse(text) != int(parse(text)):
        raise ValueError("must be a positive whole number of bytes, such as 64Gi")
    return text


def _cpu(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a CPU quantity, such as 4, 1.5 or 500m")
    amount = parse(value)
    if amount <= 0 or amount * 1000 != int(amount * 1000):
        raise ValueError("must be positive and no finer than one thousandth of a CPU (1m)")
    return str(value).strip()


def count(value: object) -> int:
    """A whole number that may carry a decimal suffix: `4M` is 4,000,000, `512k` is 512,000."""
    if isinstance(value, bool):
        raise ValueError("must be a whole number, such as 4096, 512k or 4M")
    match = _COUNT.match(str(value).strip())
    number = Decimal(match.group(1)) * _SUFFIX[match.group(2)] if match else Decimal(0)
    if not match or number != int(number) or number < 1:
        raise ValueError(f"{value!r} is not a positive whole number, such as 4096, 512k or 4M")
    return int(number)


def share(value: object) -> Decimal:
    """A percentage as a fraction: `share("3%") == Decimal("0.03")`."""
    text = str(value).strip()
    try:
        fraction = Decimal(text[:-1]) / 100 if text.endswith("%") else None
    except ArithmeticError:
        fraction = None
    if fraction is None or not 0 <= fraction <= 1:
        raise ValueError(f"{value!r} is not a share between 0% and 100%, such as 3%")
    return fraction


def seconds(value: object) -> float:
    """A duration in seconds: `seconds("15m") == 900`."""
    match = _INTERVAL.match(str(value).strip())
    if not match or float(match.group(1)) <= 0:
        raise ValueError(f"{value!r} is not a duration, such as 30s, 15m, 2h or 1d")
    return float(match.group(1)) * _SECONDS[match.group(2)]


def _interval(value: object) -> int | str:
    """Steps (an integer) or time (a duration): the text stays as the person wrote it."""
    if (isinstance(value, int) and not isinstance(value, bool)) or str(value).strip().isdigit():
        return count(value)
    try:
        seconds(value)
    except ValueError:
        raise ValueError(f"{value!r} is neither a number of steps, such as 500, nor a duration, such as 15m") from None
    return str(value).strip()


def _steps_or_share(value: object) -> int | str:
    if isinstance(value, str) and value.strip().endswith("%"):
        share(value)
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise ValueError(f"{value!r} is neither a number of steps, such as 100, nor a share, such as 3%")


def _share_text(value: object) -> str:
    share(value)
    return str(value).strip()


def _duration_text(value: object) -> str:
    seconds(value)
    return str(value).strip()


def _count_text(value: object) -> int | str:
    count(value)
    return value if isinstance(value, int) else str(value).strip()


Memory = Annotated[str, BeforeValidator(_memory)]
Cpu = Annotated[str, BeforeValidator(_cpu)]
Count = Annotated[int | str, BeforeValidator(_count_text)]
Share = Annotated[str, BeforeValidator(_share_text)]
Duration = Annotated[str, BeforeValidator(_duration_text)]
Interval = Annotated[int | str, BeforeValidator(_interval)]
StepsOrShare = Annotated[int | str, BeforeValidator(_steps_or_share)]
