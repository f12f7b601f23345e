"""One kind of error for everything that a person can get wrong: where, what, the rule, the fix.

A check returns or collects `Problem`s; only the edge that cannot go on without a valid file raises `SpecError`, with
all of them. Nothing here prints.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True)
class Problem:
    """One thing that is wrong in a file or a value."""

    path: str
    """Where in the tree, in dots, a list entry by its name where it has one: `workers.a100.memory`."""
    rule: str
    """Why it is wrong, as a sentence without a full stop."""
    value: str | None = None
    """The value as the person wrote it; None when the key itself is the problem."""
    fix: str | None = None
    """What to write instead, or where to look."""
    file: str | None = None
    line: int | None = None
    """1-based."""
    column: int | None = None
    """1-based."""

    def at(self, file: str, line: int | None, column: int | None) -> "Problem":
        """The same problem with its place in a file."""
        return replace(self, file=file, line=line, column=column)

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file or None, self.line, self.column) if part is not None)
        path = shown(self.path, most=200)
        subject = path if self.value is None else f"{path} = {shown(self.value)}"
        head = "  ".join(part for part in (place, subject) if part)
        said = [line for text in (self.rule, self.fix or "") for line in text.split("\n") if line]
        return "\n".join([head, *(f"  {shown(line, most=len(line) * 10)}" for line in said)])


class SpecError(ValueError):
    """A file or a value that cannot be used; carries every problem found in it."""

    def __init__(self, problems: Iterable[Problem], *, consequence: str = ""):
        self.problems = tuple(problems)
        self.consequence = consequence
        """What did not happen because of it: `nothing rendered`."""
        super().__init__(self.problems)

    def __str__(self) -> str:
        last = counted(len(self.problems), "problem") + (f", {self.consequence}" if self.consequence else "")
        return "\n".join([*map(str, self.problems), last])

    def so(self, consequence: str) -> "SpecError":
        """The same error that also tells what did not happen: `raise error.so("nothing started")`."""
        return SpecError(self.problems, consequence=consequence)


def counted(number: int, noun: str) -> str:
    """A number and its noun: `1 problem`, `2 problems`."""
    return f"{number} {noun}{'s' if number != 1 else ''}"


def shown(value: str, most: int = 80) -> str:
    """A value for a message: on one line, no control characters, not longer than `most`."""
    line = "".join(character if character.isprintable() else repr(character)[1:-1] for character in value)
    return line if len(line) <= most else line[: most - 3] + "..."


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was probably meant to be; None when none is near."""
    from difflib import get_close_matches

    by_folded = {candidate.replace("-", "_").lower(): candidate for candidate in sorted(candidates)}
    found = get_close_matches(word[:100].replace("-", "_").lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None
