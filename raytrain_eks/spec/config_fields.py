"""Misspelt fields of a model's config, which transformers takes without a word and ignores; values of another type.

A config may hold any further field, so only a name is told that is one slip away from a field of its family: a letter
too many, too few or another one, two that changed places, or another way to write the same words. The table is built
from transformers by `build_config_fields`; of a family that is not in it nothing is said.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

_WORDS = {"bool": "true or false", "str": "text", "float": "a number", "int": "a whole number"}
SHORTEST = 5
"""Letters of a field below which one slip is no evidence."""


def misspelt(config: Mapping[str, Any], sizes: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Each field that was probably meant to be another one, with that one.

    A field of another family is left alone unless it is taken for one of `sizes`: `n_heads` in a GPT-2's config.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        return
    if not (own := _table().get(family)):
        return
    fields = {*own, *_table()[""]}
    elsewhere = {name for names in _table().values() for name in names}
    for key in config:
        if key in fields or key.startswith("_") or key == "model_type" or len(key) < SHORTEST:
            continue
        near = [name for name in sorted(fields) if name not in config and one_slip(key, name)]
        wanted = [name for name in near if name in sizes] if key in elsewhere else near
        if len(wanted) == 1:
            yield key, wanted[0]


def mistyped(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Each field whose value is not of the only type that it may have, with that type as people call it.

    An empty value is the family's default, and a whole number is a number.
    """
    family = config.get("model_type")
    if not isinstance(family, str):
        return
    types = _table().get(family, {})
    for key, value in config.items():
        kind = types.get(key, "")
        if value is None or not kind:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        right = {"bool": isinstance(value, bool), "str": isinstance(value, str), "float": number, "int": number}[kind]
        if not right or (kind == "int" and isinstance(value, float)):
            yield key, _WORDS[kind]


def family_meant(family: str) -> str | None:
    """The family that a `model_type` which nobody has was meant to be; None for one that may be new.

    The next family may be one letter away from this one (`qwen4`, `olmoe`), so only two letters that changed places, a
    letter written once or twice too often, and another way to write the same words are told.
    """
    if family in _table() or len(family) < SHORTEST - 1:
        return None
    written = _letters(family)
    near = [
        name
        for name, fields in _table().items()
        if fields and (_letters(name) == written or (sorted(family) == sorted(name) and one_slip(family, name)))
    ]
    return near[0] if len(near) == 1 else None


def one_slip(written: str, name: str) -> bool:
    """Whether one edit, or one exchange of neighbours, makes `name` of `written`, or both are the same words."""
    left, right = written.lower().replace("-", "_"), name.lower()
    if left.replace("_", "") == right.replace("_", ""):
        return True
    if abs(len(left) - len(right)) > 1 or not name:
        return False
    start = next((at for at, (one, other) in enumerate(zip(left, right)) if one != other), min(len(left), len(right)))  # noqa: B905
    before, after = left[start:], right[start:]
    exchanged = len(before) > 1 and before[1::-1] + before[2:] == after
    return exchanged or before[1:] == after[1:] or before[1:] == after or before == after[1:]


def _letters(text: str) -> str:
    """A name without dashes and underscores, each run of a letter written once."""
    return re.sub(r"(.)\1+", r"\1", text.lower().replace("-", "").replace("_", ""))


@cache
def _table() -> dict[str, dict[str, str]]:
    """Family -> field of its config -> `int`, `float`, `bool` or `str`, nothing where it may have several types; an
    empty family for the fields of all."""
    with (Path(__file__).parent / "config_fields.csv").open(newline="", encoding="utf-8") as file:
        rows = [(row["family"], row["fields"].split()) for row in csv.DictReader(file)]
    return {family: {name: kind for name, _, kind in (word.partition(":") for word in words)} for family, words in rows}
