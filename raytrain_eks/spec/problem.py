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
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        subject = self.path if self.value is None else f"{self.path} = {self.value}"
        head = "  ".join(part for part in (place, subject) if part)
        return "\n".join([head, f"  {self.rule}"] + ([f"  {self.fix}"] if self.fix else []))


class SpecError(ValueError):
    """A file or a value that cannot be used; carries every problem found in it."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(problems)
        count = len(self.problems)
        super().__init__("\n".join([*map(str, self.problems), f"{count} problem{'s' if count != 1 else ''}"]))


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that `word` was probably meant to be; None when none is near."""
    from difflib import get_close_matches

    by_folded = {candidate.replace("-", "_").lower(): candidate for candidate in sorted(candidates)}
    found = get_close_matches(word.replace("-", "_").lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[found[0]] if found else None
