"""Which files stay out of a package: gitignore patterns (gitignore(5)), in `.gitignore` and `.rayignore` alike.

The last pattern that matches decides; a pattern of a deeper folder comes after those above it; what lies in an
excluded folder cannot be taken in again. Checked against `git check-ignore` in the tests.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True)
class Pattern:
    """One line of an ignore file."""

    regex: re.Pattern[str]
    """Matches a path relative to the folder of the ignore file."""
    negated: bool
    folders_only: bool


def patterns(lines: Iterable[str]) -> list[Pattern]:
    """The patterns of an ignore file; comments, blank lines and lines that match nothing are left out."""
    return [found for line in lines if (found := _pattern(line.rstrip("\r\n"))) is not None]


def verdict(rules: Iterable[Pattern], path: str, *, folder: bool) -> bool | None:
    """True: ignored, False: taken in again, None: no pattern of these says anything."""
    decided = None
    for rule in rules:
        if (folder or not rule.folders_only) and rule.regex.fullmatch(path):
            decided = not rule.negated
    return decided


def _pattern(line: str) -> Pattern | None:
    # Trailing blanks do not count, unless the last one is quoted with a backslash.
    text = line.rstrip(" ")
    if len(text) < len(line) and (len(text) - len(text.rstrip("\\"))) % 2:
        text += " "
    if not text or text.startswith("#"):
        return None
    negated = text.startswith("!")
    text = text[1:] if negated else text
    folders_only = text.endswith("/")
    text = text[:-1] if folders_only else text
    anchored = "/" in text
    text = text.removeprefix("/")
    if not text:
        return None
    expression = _expression(text)
    if expression is None:
        return None
    prefix = "" if anchored else "(?:.*/)?"
    return Pattern(re.compile(prefix + expression, re.DOTALL), negated, folders_only)


@cache
def _expression(glob: str) -> str | None:
    """The regular expression of a glob; None for one that git never matches (a lone backslash at its end)."""
    out, index = [], 0
    while index < len(glob):
        rest = glob[index:]
        if rest.startswith("**/") and (index == 0 or glob[index - 1] == "/"):
            out.append("(?:.*/)?")
            index += 3
        elif rest == "**" and (index == 0 or glob[index - 1] == "/"):
            out.append(".+")
            index += 2
        elif rest[0] == "*":
            out.append("[^/]*")
            index += len(rest) - len(rest.lstrip("*"))
        elif rest[0] == "?":
            out.append("[^/]")
            index += 1
        elif rest[0] == "[":
            found = _character_class(rest)
            if found is None:
                return None
            expression, length = found
            out.append(expression)
            index += length
        elif rest[0] == "\\":
            if len(rest) == 1:
                return None
            out.append(re.escape(rest[1]))
            index += 2
        else:
            out.append(re.escape(rest[0]))
            index += 1
    return "".join(out)


_POSIX = {
    "alnum": "a-zA-Z0-9", "alpha": "a-zA-Z", "blank": " \\t", "cntrl": "\\x00-\\x1f\\x7f", "digit": "0-9",
    "graph": "!-~", "lower": "a-z", "print": " -~", "punct": "!-/:-@\\[-`{-~", "space": "\\s", "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}  # fmt: skip


def _character_class(text: str) -> tuple[str, int] | None:
    """The regular expression of a bracket expression at the start of `text`, and its length; None when unclosed."""
    index = 1
    negated = text[index : index + 1] in ("!", "^")
    index += negated
    members: list[str] = []
    first = True
    while index < len(text) and (first or text[index] != "]"):
        first = False
        if text.startswith("[:", index) and (end := text.find(":]", index + 2)) > 0:
            name = text[index + 2 : end]
            if name not in _POSIX:
                return None
            members.append(_POSIX[name])
            index = end + 2
            continue
        low, index = _member(text, index)
        if low is None:
            return None
        if text[index : index + 1] == "-" and text[index + 1 : index + 2] not in ("", "]"):
            high, index = _member(text, index + 1)
            if high is None:
                return None
            if low <= high:
                members.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            members.append(re.escape(low))
    if index >= len(text):
        return None
    inner = "".join(members)
    if negated:
        return (f"(?!/)[^{inner}]" if inner else "[^/]"), index + 1
    return (f"(?!/)[{inner}]" if inner else "(?!)"), index + 1


def _member(text: str, index: int) -> tuple[str | None, int]:
    if text[index] == "\\":
        return (text[index + 1] if index + 1 < len(text) else None), index + 2
    return text[index], index + 1
