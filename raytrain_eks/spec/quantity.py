"""Kubernetes quantities, counts, shares and intervals, parsed exactly and compared as decimals.

Grammar of a quantity: number, then one of n u m (none) k M G T P E, or Ki Mi Gi Ti Pi Ei, or an exponent
(k8s.io/apimachinery/pkg/api/resource/quantity.go). Every function raises ValueError with a rule a person can act on.

Each type carries what its value means (`Canonical`), so that `4M` and `4000000` are the same run, and what an editor
may let through (the type's JSON Schema).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_SUFFIX = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1)}
_SUFFIX |= {letter: Decimal(1000) ** power for power, letter in enumerate("kMGTPE", start=1)}
_SUFFIX |= {f"{letter}i": Decimal(1024) ** power for power, letter in enumerate("KMGTPE", start=1)}
_QUANTITY = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:([eE][+-]?[0-9]{1,3})|([a-zA-Z]*))\Z")
_COUNT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([kMGT]?)\Z")
_INTERVAL = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)\Z")
_CPU = re.compile(r"([0-9]+(\.[0-9]*)?|\.[0-9]+)m?")
_NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)"
_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_LONGEST = 40
"""Characters of a number with its unit; Kubernetes' largest, 2^63 - 1, has 19 digits."""
_EXACT = Context(prec=200)
MOST = 2**63 - 1
"""The largest count and the largest quantity of Kubernetes."""


@dataclass(frozen=True)
class Canonical:
    """In a type's metadata: how a written value becomes the plain value that it stands for."""

    of: Callable[[Any], Any]


def parse(text: str | int | float) -> Decimal:
    """The exact value of a Kubernetes quantity: `parse("1.5Gi") == 1610612736`."""
    shown = str(text).strip()
    match = _QUANTITY.match(shown) if len(shown) <= _LONGEST else None
    if not match or (match.group(3) or "") not in _SUFFIX:
        raise ValueError(f"{text!r:.60} is not a Kubernetes quantity, such as 500m, 4, 1.5Gi or 200G")
    number, exponent, suffix = match.groups()
    return Decimal(number + exponent) if exponent else _EXACT.multiply(Decimal(number), _SUFFIX[suffix or ""])


def gibibytes(value: Decimal) -> str:
    """A memory quantity for people and for manifests, rounded down to what is written: `1057.3Gi`, `512Mi`."""
    for suffix in ("Ti", "Gi", "Mi", "Ki"):
        if value >= _SUFFIX[suffix] and value % _SUFFIX[suffix] == 0:
            return f"{value // _SUFFIX[suffix]}{suffix}"
    tenths = value * 10 // _SUFFIX["Gi"]
    return f"{tenths / 10:f}Gi" if tenths else f"{value // _SUFFIX['Mi']}Mi"


def _memory(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("must be a memory quantity, such as 64Gi")
    text = str(value).strip()
    if re.fullmatch(rf"{_NUMBER}([eE][+-]?[0-9]+)?", text) and re.search("[1-9]", text):
        meant = _with_unit(text, "Gi", "Mi") or "64Gi or 64Mi"
        raise ValueError(f"memory needs a unit, a bare number would be bytes: write {meant}")
    if re.fullmatch(rf"[+-]?{_NUMBER}m", text):
        raise ValueError(f"`m` is one thousandth of a byte here: write {_with_unit(text[:-1], 'Mi') or '512Mi'}")
    amount = _parsed(text, "must be a memory quantity, such as 64Gi, 512Mi or 200G")
    if not 0 < amount <= MOST or amount != int(amount):
        raise ValueError("must be a positive whole number of bytes, such as 64Gi")
    return text


def _with_unit(number: str, *units: str) -> str | None:
    """What a number without a unit may have meant, of the amounts that a memory can have; None where none is."""
    bare = number.rstrip("0").rstrip(".") if "." in number else number
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", bare):
        return None
    amounts = {f"{bare}{unit}": _EXACT.multiply(Decimal(bare), _SUFFIX[unit]) for unit in units}
    legal = [text for text, amount in amounts.items() if 0 < amount <= MOST and amount == int(amount)]
    return " or ".join(legal) or None


def sized(near: Callable[[Decimal], str]) -> Any:
    """A validator in front of a `Memory` that does not take every amount: to a number without a unit, and to zero,
    `near` tells the legal amount for so many GiB."""

    def check(value: object) -> object:
        text = str(value).strip()
        bare = isinstance(value, str | int | float) and not isinstance(value, bool) and text[-1:] in "0123456789.m"
        try:
            amount = parse(text.removesuffix("m")) if text else None
        except ValueError:
            amount = None
        if amount is not None and (bare or amount == 0):
            what = "memory needs a unit, a bare number would be bytes" if amount else "must be more than nothing"
            what = "`m` is one thousandth of a byte here" if amount and text.endswith("m") else what
            raise ValueError(f"{what}: write {near(min(max(amount, Decimal(0)), Decimal(10**9)))}")
        return value

    return BeforeValidator(check, json_schema_input_type=_MEMORY)


def _parsed(value: str | int | float, rule: str) -> Decimal:
    try:
        return parse(value)
    except ValueError:
        raise ValueError(rule) from None


def _cpu(value: object) -> str:
    rule = "must be a CPU quantity, such as 4, 1.5 or 500m"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(rule)
    text = str(value).strip()
    if not _CPU.fullmatch(text):
        raise ValueError(rule)
    amount = _parsed(text, rule)
    if not 0 < amount <= MOST or amount * 1000 != int(amount * 1000):
        raise ValueError("must be positive and no finer than one thousandth of a CPU (1m)")
    return text


def count(value: object) -> int:
    """A whole number that may carry a decimal suffix: `4M` is 4,000,000, `512k` is 512,000."""
    rule = "must be a positive whole number, such as 4096, 512k or 4M"
    text = str(value).strip()
    match = _COUNT.match(text) if len(text) <= _LONGEST and not isinstance(value, bool) else None
    number = _EXACT.multiply(Decimal(match.group(1)), _SUFFIX[match.group(2)]) if match else Decimal(0)
    if number != int(number) or not 1 <= number <= MOST:
        bare = text.replace("_", "").replace(",", "")
        legal = bare != text and _COUNT.match(bare) and re.search("[1-9]", bare) and len(bare) < 19
        raise ValueError(f"{rule}: write {bare}" if legal and "." not in bare else rule)
    return int(number)


def share(value: object) -> Decimal:
    """A percentage as a fraction: `share("3%") == Decimal("0.03")`."""
    text = str(value).strip()
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*%", text) if len(text) <= _LONGEST else None
    fraction = Decimal(match.group(1)) / 100 if match else None
    if fraction is None or fraction > 1:
        number = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
        written = f": write {Decimal(text) * 100:f}%" if number and len(text) < 9 and "e" not in text else ""
        raise ValueError(f"must be a share between 0% and 100%, such as 3%{written}")
    return fraction


def seconds(value: object) -> float:
    """A duration in seconds: `seconds("15m") == 900`."""
    text = str(value).strip()
    match = _INTERVAL.match(text) if len(text) <= _LONGEST else None
    amount = float(match.group(1)) * _SECONDS[match.group(2)] if match else 0.0
    if not 0 < amount <= 100 * 365 * 86400:
        raise ValueError("must be a duration, such as 30s, 15m, 2h or 1d")
    return amount


def _interval(value: object) -> int | str:
    """Steps (an integer) or time (a duration): the text stays as the person wrote it."""
    text = str(value).strip()
    try:
        if (isinstance(value, int) and not isinstance(value, bool)) or re.fullmatch("[0-9]+", text):
            return count(value)
        seconds(value)
    except ValueError:
        raise ValueError("must be a number of steps, such as 500, or a duration, such as 15m") from None
    return text


def _steps_or_share(value: object) -> int | str:
    if isinstance(value, str) and value.strip().endswith("%"):
        share(value)
        return value.strip()
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST:
        return value
    raise ValueError("must be a number of steps, such as 100, or a share of the run, such as 3%")


def _share_text(value: object) -> str:
    share(value)
    return str(value).strip()


def _duration_text(value: object) -> str:
    seconds(value)
    return str(value).strip()


def _count_text(value: object) -> int | str:
    number = count(value)
    return str(value).strip() if isinstance(value, str) else number


def _percent(value: object) -> str:
    """The canonical text of a share: `3.0%` is `3%`."""
    return f"{(share(value) * 100).normalize():f}%"


def _canonical_interval(value: Any) -> int | str:
    return value if isinstance(value, int) else f"{seconds(value):g}s"


def _number_text(value: Any) -> str:
    return f"{parse(value).normalize():f}"


def _text(pattern: str, *examples: str) -> Any:
    return Annotated[str, Field(pattern=pattern, examples=list(examples))]


_SHARE = _text(rf"^{_NUMBER}\s*%$", "3%", "0.5%")
_DURATION = _text(r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$", "30s", "15m", "2h", "1d")
_STEPS_OR_DURATION = _text(r"^[0-9]+((\.[0-9]+)?(ms|s|m|h|d))?$", "500", "15m")
_MEMORY = _text(rf"^{_NUMBER}(k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)$", "64Gi", "512Mi")
_COUNTED = _text(r"^[0-9]+(\.[0-9]+)?\s*[kMGT]?$", "512k", "4M")
Whole = Annotated[int, Field(ge=1, le=MOST)]
"""A whole number from 1 on."""

Memory = Annotated[str, BeforeValidator(_memory, json_schema_input_type=_MEMORY), Canonical(_number_text)]
"""Bytes with a unit: `64Gi`."""
_CPUS = Annotated[float, Field(gt=0)] | _text(f"^{_CPU.pattern}$", "500m")
Cpu = Annotated[str, BeforeValidator(_cpu, json_schema_input_type=_CPUS), Canonical(_number_text)]
"""CPUs: `4`, `1.5`, `500m`."""
Count = Annotated[int | str, BeforeValidator(_count_text, json_schema_input_type=Whole | _COUNTED), Canonical(count)]
"""A positive whole number: `4096`, `512k`, `4M`."""
Share = Annotated[str, BeforeValidator(_share_text, json_schema_input_type=_SHARE), Canonical(_percent)]
"""A part of the whole: `3%`."""
Duration = Annotated[
    str, BeforeValidator(_duration_text, json_schema_input_type=_DURATION), Canonical(_canonical_interval)
]
"""Time with a unit: `15m`."""
Interval = Annotated[
    int | str,
    BeforeValidator(_interval, json_schema_input_type=Whole | _STEPS_OR_DURATION),
    Canonical(_canonical_interval),
]
"""Steps (`500`) or time (`15m`)."""
_STEPS = Annotated[int, Field(ge=0, le=MOST)] | _SHARE
StepsOrShare = Annotated[
    int | str,
    BeforeValidator(_steps_or_share, json_schema_input_type=_STEPS),
    Canonical(lambda value: value if isinstance(value, int) else _percent(value)),
]
"""Steps (`100`) or a part of the run (`3%`)."""
