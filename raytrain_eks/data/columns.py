"""Which columns of a row are read, and what must be in them.

Text is one column. A chat is a column of messages (a list of `{role, content}`), or the two columns `prompt` and
`completion`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError, nearest

MESSAGES = "messages"
COMPLETION = ("prompt", "completion")
ROLES = ("system", "developer", "user", "assistant", "tool")

WORDS = {str: "text", bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "a mapping"}


@dataclass(frozen=True)
class Columns:
    """What a job reads of each row."""

    column: str
    chat: bool

    @classmethod
    def of(cls, job: Job) -> "Columns":
        return cls(job.data.column, job.task == "sft")

    def choose(self, present: Mapping[str, str], file: str) -> tuple[str, ...]:
        """The columns to read where `present` maps each column there to its type in words.

        Raises SpecError that names what is there.
        """
        names = self.found(present)
        if names is not None:
            self._check_types(names, present, file)
            return names
        there = ", ".join(f"{name} ({kind})" for name, kind in present.items()) or "nothing"
        rule = f"{file} has no such column; there is: {there}"
        if self.chat:
            rule = f"{file} has neither this column nor `{MESSAGES}` nor `prompt` and `completion`; there is: {there}"
        guess = nearest(self.column, present)
        fix = f"did you mean `{guess}`?" if guess else "write the name of one that is there"
        raise SpecError([Problem(path="data.column", value=self.column, rule=rule, fix=fix)])

    def found(self, present: Iterable[str]) -> tuple[str, ...] | None:
        """The columns to read of a row that has these; None where the needed ones are missing."""
        there = set(present)
        ways = [(self.column,), (MESSAGES,), COMPLETION] if self.chat else [(self.column,)]
        return next((names for names in ways if there.issuperset(names)), None)

    def _check_types(self, names: tuple[str, ...], present: Mapping[str, str], file: str) -> None:
        expected = "a list" if self.chat and names != COMPLETION else "text"
        for name in names:
            if present[name] not in (expected, "null"):
                rule = f"in {file} this column is {present[name]}, and {expected} is needed"
                if expected == "a list":
                    rule += " (of messages with `role` and `content`)"
                others = [other for other, kind in present.items() if kind == expected]
                fix = f"columns that fit: {', '.join(others)}" if others else "write a column of that type"
                raise SpecError([Problem(path="data.column", value=name, rule=rule, fix=fix)])

    def content(self, row: Mapping[str, Any], names: tuple[str, ...]) -> Any:
        """What a Document holds of this row: str, or a mapping for a chat. Raises ValueError with the reason."""
        null = next((name for name in names if row[name] is None), None)
        if null is not None:
            raise ValueError(f"{null} is null")
        if not self.chat:
            return _text(row[names[0]], names[0])
        if names == COMPLETION:
            return {name: _text(row[name], name) for name in names}
        return {MESSAGES: _messages(row[names[0]], names[0])}


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {describe(value)}, not text")
    return value


def _messages(value: object, name: str) -> list[dict[str, str]]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{name} is {describe(value) if value else 'empty'}, not a list of messages")
    for number, message in enumerate(value):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            raise ValueError(f"message {number} of {name} needs a role: {', '.join(ROLES)}")
        if not isinstance(message.get("content"), str):
            raise ValueError(f"message {number} of {name} needs a text as its content")
    return [{"role": message["role"], "content": message["content"]} for message in value]


def describe(value: object) -> str:
    """The type of a JSON value in words."""
    return WORDS.get(type(value), "null")
