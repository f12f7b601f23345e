"""The one writer of Kubernetes objects as text: YAML that reads back the same under YAML 1.1, YAML 1.2 and JSON.

kubectl reads the plain scalar `2e-5` as a number and `0o17` as 15, PyYAML reads `on` as true and `12:30` as 750. So a
string stays plain only when no reader can take it for anything else, and is written in double quotes otherwise.
No time, no machine, no random order enters the text: the same objects give the same bytes.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from typing import Any

FIRST = {"": ("apiVersion", "kind", "metadata", "spec"), "metadata": ("name", "namespace", "labels", "annotations")}
"""Path of a mapping -> the keys that lead it; all other keys keep the order in which they were put in."""
LONGEST_KEY = 1000
"""YAML looks for the colon of a simple key within 1024 characters."""

_WORD = r"[A-Za-z0-9_./@=+,;%()^$~<>-]+(?::[A-Za-z0-9_./@=+,;%()^$~<>-]+)*"
_PLAIN = re.compile(rf"(?=[A-Za-z/]){_WORD}(?: (?![-~<=]){_WORD})*\Z")
_AMOUNT = re.compile(r"[1-9][0-9]*(?:m|Ki|Mi|Gi|Ti|Pi)\Z")
_NOT_STRINGS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf", "infinity"}
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def yaml(objects: Iterable[Mapping[str, Any]]) -> str:
    """Objects as a YAML stream, one document each. Raises ValueError for what no manifest can hold."""
    return "---\n".join("".join(f"{line}\n" for line in _mapping(ordered(each), 0)) for each in objects)


def json_text(objects: Iterable[Mapping[str, Any]]) -> str:
    """Objects as one JSON List, as `kubectl get -o json` writes it. Raises ValueError for what no manifest can hold."""
    items = [ordered(each) for each in objects]
    for each in items:
        _refuse(each)
    whole = {"apiVersion": "v1", "kind": "List", "items": items}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def ordered(value: Mapping[str, Any]) -> dict[str, Any]:
    """An object with apiVersion, kind, metadata and spec first, and name and namespace first in its metadata."""
    found = _leading(value, FIRST[""])
    if isinstance(found.get("metadata"), Mapping):
        found["metadata"] = _leading(found["metadata"], FIRST["metadata"])
    return found


def _leading(value: Mapping[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {key: value[key] for key in keys if key in value} | dict(value)


def scalar(value: Any) -> str:
    """One value on one line. Raises ValueError for infinite numbers, lone surrogates and types that YAML has not."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if not isinstance(value, str):
        raise ValueError(f"{type(value).__name__} is no type of a manifest")
    if (_PLAIN.match(value) and value.lower() not in _NOT_STRINGS) or _AMOUNT.match(value):
        return value
    return '"' + "".join(map(_character, value)) + '"'


def _number(value: float) -> str:
    if not isfinite(value):
        raise ValueError(f"{value} is no number of a manifest")
    mantissa, mark, exponent = repr(value).partition("e")
    # YAML 1.1 wants a dot in the mantissa and a sign in the exponent.
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    return mantissa + (f"e{exponent if exponent[0] in '+-' else '+' + exponent}" if mark else "")


def _character(letter: str) -> str:
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    code = ord(letter)
    if 0xD800 <= code <= 0xDFFF:
        raise ValueError(f"a lone surrogate (U+{code:04X}) is no character of a manifest")
    if letter.isprintable():
        return letter
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _mapping(value: Mapping[str, Any], indent: int) -> Iterator[str]:
    if not value:
        yield " " * indent + "{}"
    for key, item in value.items():
        if not isinstance(key, str) or len(key) > LONGEST_KEY:
            raise ValueError(f"{str(key)[:40]!r} is no key of a manifest")
        yield from _entry(f"{' ' * indent}{scalar(key)}:", item, indent)


def _entry(start: str, value: Any, indent: int) -> Iterator[str]:
    """A key with its value: lists stand under their key, mappings two columns further."""
    if isinstance(value, Mapping) and value:
        yield start
        yield from _mapping(value, indent + 2)
    elif isinstance(value, list | tuple) and value:
        yield start
        for item in value:
            yield from _item(item, indent)
    else:
        yield from _leaf(start, value, indent)


def _item(value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        lines = _mapping(value, indent + 2)
        yield f"{' ' * indent}- {next(lines)[indent + 2 :]}"
        yield from lines
    elif isinstance(value, list | tuple) and value:
        nested = (line for item in value for line in _item(item, indent + 2))
        yield f"{' ' * indent}- {next(nested)[indent + 2 :]}"
        yield from nested
    else:
        yield from _leaf(f"{' ' * indent}-", value, indent)


def _leaf(start: str, value: Any, indent: int) -> Iterator[str]:
    if isinstance(value, Mapping | list | tuple):
        yield f"{start} {'{}' if isinstance(value, Mapping) else '[]'}"
    elif isinstance(value, str) and _readable(value):
        yield f"{start} {'|' if value.endswith(chr(10)) else '|-'}"
        for line in value.removesuffix("\n").split("\n"):
            yield f"{' ' * (indent + 2)}{line}" if line else ""
    else:
        yield f"{start} {scalar(value)}"


def _readable(text: str) -> bool:
    """Whether a text with several lines can stand as a block: no reader may see its spaces or ends differently."""
    lines = text.removesuffix("\n").split("\n")
    return (
        len(lines) > 1
        and all(line.isprintable() and line == line.rstrip() for line in lines)
        and bool(lines[0])
        and bool(lines[-1])
        and not lines[0].startswith(" ")
    )


def _refuse(value: Any) -> None:
    """Raise ValueError for what `scalar` refuses, anywhere inside."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise ValueError(f"{key!r:.40} is no key of a manifest")
            scalar(key)
            _refuse(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse(item)
    else:
        scalar(value)
