"""From a model to the YAML text that a person would write for it, comments aside.

What was given is written, in the order of the model; defaults are not. Short mappings stand on one line. Every reader
takes the text for the same data: a string is quoted when YAML 1.1 or 1.2 would read it as something else.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from raytrain_eks.spec.model import Model

WIDTH = 110
"""Columns of a line with a mapping or a list on it; a wider one is written as a block."""
_INDENT = "  "
_PLAIN = re.compile(r"[A-Za-z0-9_./~$(+-][^\x00-\x1f\x7f-\uffff]*\Z")
_BREAKS = re.compile(r": |:\Z| #|\s\Z|\A(---|\.\.\.)")
_FLOW = re.compile(r"[\[\]{},]|: ?\Z|:[^/ ]")
_WORD = re.compile(r"(?i:y|n|yes|no|on|off|true|false|null|~|nan|inf|[-+]?\.(inf|nan)|=|<<)?\Z")
_NUMBER = re.compile(r"[-+]?\.?[0-9][-+0-9_.:xobeEa-fA-FTZ ]*\Z")
"""All that looks like a number, a date or a time to some reader."""
_DASH = re.compile(r"-(\s|\Z)|\?(\s|\Z)")
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


def to_yaml(model: Model) -> str:
    """The file that reads back as `model`: `type(model).read(to_yaml(model), "") == model`."""
    return "".join(f"{line}\n" for line in _block(model.written(), 0, top=True))


def _block(data: Mapping[str, Any], depth: int, *, top: bool = False) -> list[str]:
    lines: list[str] = []
    for key, value in data.items():
        head = f"{_INDENT * depth}{text(key, flow=False)}:"
        on_line = flow(value, top=top)
        if on_line is not None and len(head) + 1 + len(on_line) <= WIDTH:
            lines.append(f"{head} {on_line}")
        elif isinstance(value, Mapping):
            lines += [head, *_block(value, depth + 1)]
        else:
            lines += [head, *_items(value, depth + 1)]
    return lines


def _items(items: list[Any], depth: int) -> list[str]:
    lines: list[str] = []
    for item in items:
        if isinstance(item, Mapping) and item:
            first, *rest = _block(item, depth + 1)
            lines += [f"{_INDENT * depth}- {first.lstrip(' ')}", *rest]
        else:
            lines.append(f"{_INDENT * depth}- {_always(item)}")
    return lines


def flow(value: Any, *, top: bool = False) -> str | None:
    """A value on one line; None for what reads better as a block: deep mappings, and lists of mappings."""
    if isinstance(value, Mapping):
        if _depth(value) > (2 if top else 3) or (len(value) > 6 and top):
            return None
        return _always(value)
    if isinstance(value, list):
        return None if any(isinstance(item, Mapping | list) for item in value) else _always(value)
    return scalar_text(value, flow=False)


def _always(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{text(key, flow=True)}: {_always(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_always, value)) + "]"
    return scalar_text(value, flow=True)


def _depth(value: Any) -> int:
    if isinstance(value, Mapping):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) and value else 0


def scalar_text(value: Any, *, flow: bool) -> str:
    """One scalar as YAML; `flow` inside brackets or braces, where commas and braces need quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return number(value)
    return str(value) if isinstance(value, int) else text(str(value), flow=flow)


def number(value: float) -> str:
    """A float that every reader takes for one: with a point, and a sign before the exponent (`3.0e-05`)."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    mantissa, _, exponent = repr(value).partition("e")
    mantissa += "" if "." in mantissa else ".0"
    sign = "" if not exponent or exponent[0] in "+-" else "+"
    return f"{mantissa}e{sign}{exponent}" if exponent else mantissa


def text(value: str, *, flow: bool) -> str:
    """A string as YAML: plain where every reader takes it for the same string, else in double quotes."""
    plain = _PLAIN.match(value) and not _BREAKS.search(value) and not (flow and _FLOW.search(value))
    if plain and not (_WORD.match(value) or _NUMBER.match(value) or _DASH.match(value)):
        return value
    quoted = json.dumps(value, ensure_ascii=False)
    return _ESCAPED.sub(lambda found: f"\\u{ord(found.group()):04x}", quoted)
