"""Reason codes of Kubernetes and of the operators on it, as sentences with a remedy. The table is `reasons.yaml`.

    explain("FailedScheduling", "0/6 nodes are available: 6 Insufficient nvidia.com/gpu.", "Pod")

Pure: it reads the table and nothing else.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

ANY = "*"
NODES = re.compile(r"(?P<good>\d+)/(?P<all>\d+) nodes are available")
LONGEST = 300
"""Characters of a message that a sentence takes over."""


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    codes: tuple[str, ...]
    kinds: tuple[str, ...]
    """Empty: any."""
    pattern: re.Pattern[str] | None
    part: bool
    severity: str
    """`error`: does not get better by itself. `wait`: may. `info`: all is well."""
    says: str
    fix: str
    source: str


@dataclass(frozen=True)
class Sentence:
    """What a reason means."""

    reason: str
    text: str
    """A sentence without a full stop."""
    fix: str = ""
    """What to do; empty when there is nothing to do."""
    severity: str = "wait"
    source: str = ""
    known: bool = True
    """Whether the table has the reason; otherwise `text` is only what the message says."""

    def __str__(self) -> str:
        return self.text


@cache
def rows() -> tuple[Row, ...]:
    """The table, in its order."""
    from ruamel.yaml import YAML

    text = resources.files(__package__).joinpath("reasons.yaml").read_text(encoding="utf-8")
    return tuple(_row(each) for each in YAML(typ="safe", pure=True).load(text))


def explain(reason: str, message: str = "", kind: str | None = None) -> Sentence:
    """What a reason code says, with the message that came with it; `kind` is what it was found on.

    Never fails: an unknown code gives the message itself, with `known` false.
    """
    said = _short(message)
    # Who preempted whom is a second list of the same causes.
    causes = message.partition(" preemption: ")[0]
    fitting = [row for row in rows() if _fits(row, reason, kind)]
    parts = [(row, found) for row in fitting if row.part for found in _all(row, causes)]
    for row in fitting:
        if row.part:
            if parts:
                return _together(reason, parts, causes)
            continue
        if row.pattern is None:
            return _sentence(reason, row, {"message": said, "kind": kind or "object"})
        if match := row.pattern.search(causes):
            return _sentence(reason, row, {"message": said, "kind": kind or "object"} | _groups(match))
    return Sentence(reason, f"{reason}: {said}" if said else reason, known=False)


def about(code: str) -> list[Row]:
    """The rows of a code, whatever the case of its letters; none for an unknown one."""
    return [row for row in rows() if code.lower() in {each.lower() for each in row.codes}]


def codes() -> list[str]:
    """Every code of the table, sorted."""
    return sorted({code for row in rows() for code in row.codes} - {ANY})


def _row(data: Mapping[str, Any]) -> Row:
    code = data["code"]
    return Row(
        codes=tuple(code) if isinstance(code, list) else (code,),
        kinds=tuple(data.get("on") or ()),
        pattern=re.compile(data["match"], re.DOTALL) if "match" in data else None,
        part=bool(data.get("part")),
        severity=data["severity"],
        says=data["says"],
        fix=data["fix"],
        source=data["source"],
    )


def _fits(row: Row, reason: str, kind: str | None) -> bool:
    return (reason in row.codes or ANY in row.codes) and (kind is None or not row.kinds or kind in row.kinds)


def _all(row: Row, message: str) -> Iterable[re.Match[str]]:
    return row.pattern.finditer(message) if row.pattern is not None else ()


def _together(reason: str, parts: list[tuple[Row, re.Match[str]]], message: str) -> Sentence:
    """One sentence of all causes that a scheduler counts."""
    nodes = NODES.search(message)
    head = f"no node of {nodes['all']} takes it" if nodes else "no node takes it"
    causes = [row.says.format_map(_groups(found)) for row, found in parts]
    fixes = list(dict.fromkeys(row.fix for row, _ in parts if row.fix))
    severity = "error" if all(row.severity == "error" for row, _ in parts) else "wait"
    sources = list(dict.fromkeys(row.source for row, _ in parts))
    return Sentence(reason, f"{head}: " + "; ".join(causes), "; ".join(fixes), severity, "; ".join(sources))


def _sentence(reason: str, row: Row, values: Mapping[str, str]) -> Sentence:
    text = row.says.format_map(values).rstrip().rstrip(":")
    return Sentence(reason, text, row.fix.format_map(values), row.severity, row.source)


def _groups(match: re.Match[str]) -> dict[str, str]:
    found = {name: _short(value or "").strip(" :") for name, value in match.groupdict().items()}
    if "taint" in found and match["taint"] is None:
        # Not every scheduler names it.
        found["taint"] = "(not named)"
    return found


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
