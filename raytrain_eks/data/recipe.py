"""One unit, tokenised and packed: the same function for prepared data and for data packed while training runs."""

import os
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from raytrain_eks.data import chat, tokenizer
from raytrain_eks.data.columns import MESSAGES, Columns
from raytrain_eks.data.corpus import Unit
from raytrain_eks.data.packing import Array, Rows, pack
from raytrain_eks.data.readers import Bad
from raytrain_eks.spec.problem import Problem

NAMED = 20
"""So many bad files and rows of a unit are named; all are counted."""


@dataclass(frozen=True)
class Counts:
    """What became of a unit's documents."""

    documents: int = 0
    """Documents that were read, those below included."""
    empty: int = 0
    """Documents without any text; they are left out."""
    bad: int = 0
    """Unreadable files and rows; they are left out."""
    truncated: int = 0
    """Chats longer than a row; they are cut off at its end."""
    masked: int = 0
    """Chats without a single token to learn, perhaps since they were cut off before the answer; they are left out."""
    rows: int = 0
    tokens: int = 0
    targets: int = 0
    """Tokens that are learnt."""
    bytes: int = 0
    """UTF-8 bytes of the text behind the targets."""
    problems: tuple[str, ...] = field(default=())

    def __add__(self, other: "Counts") -> "Counts":
        summed = {name: getattr(self, name) + getattr(other, name) for name in COUNTED}
        return Counts(**summed, problems=(self.problems + other.problems)[:NAMED])


COUNTED = ("documents", "empty", "bad", "truncated", "masked", "rows", "tokens", "targets", "bytes")


def over_budget(counts: Counts, budget: Decimal) -> Problem | None:
    """The problem where more than this part of all documents had to be left out; None within the budget."""
    left_out, everything = counts.bad + counts.masked, counts.bad + counts.documents
    if left_out <= budget * everything:
        return None
    what = "cannot be read" if not counts.masked else f"cannot be used ({counts.masked} have no answer within the row)"
    named = "\n  ".join(counts.problems[:5])
    share = f"{(budget * 100).normalize():f}%"
    rule = f"{left_out} of {everything} files and rows {what}, data.bad_rows allows {share}:\n  {named}"
    first = "raise data.sequence_length" if counts.masked else "leave them out with data.files"
    return Problem(path="data.train", rule=rule, fix=f"mend them, {first}, or raise data.bad_rows")


@dataclass(frozen=True)
class Recipe:
    """All that packing depends on beside the unit itself; small, and sent to every task."""

    tokenizer: str
    """URL of the saved folder."""
    format: str
    columns: Columns
    length: int
    together: bool
    """Several documents in one row."""

    @property
    def pad(self) -> int:
        return tokenizer.special(self.tokenizer)[1]

    def rows(self, unit: Unit) -> tuple[Rows, Counts]:
        """Read, tokenise and pack one unit. Bad input is counted and named.

        Raises SpecError only where messages have no chat template to be written with.
        """
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        tally = {"documents": 0, "empty": 0, "bad": 0, "truncated": 0, "masked": 0}
        problems: list[str] = []
        contents: list[Any] = []
        for document in unit.documents(self.format, self.columns):
            if isinstance(document, Bad):
                tally["bad"] += 1
                problems.append(str(document))
                continue
            tally["documents"] += 1
            if any(text.strip() for text in tokenizer.texts(document.content)):
                contents.append((document.key, document.content))
            else:
                tally["empty"] += 1
        answers: list[Array] | None = None
        if self.columns.chat:
            ids, answers = self._chats(contents, tally, problems)
        else:
            ids = self._texts([content for _, content in contents])
        rows = pack(
            ids,
            length=self.length,
            pad=self.pad,
            token_bytes=tokenizer.token_bytes(self.tokenizer),
            together=self.together,
            answers=answers,
        )
        counts = Counts(
            **tally,
            rows=len(rows),
            tokens=sum(len(document) for document in ids),
            targets=sum(rows.targets(index) for index in range(len(rows))),
            bytes=int(rows.bytes.sum()),
            problems=tuple(problems[:NAMED]),
        )
        return rows, counts

    def _texts(self, texts: list[str]) -> list[Array]:
        end = tokenizer.special(self.tokenizer)[0]
        encode = tokenizer.load(self.tokenizer).encode_batch_fast
        # A few at a time: the tokenizer's own results take several times the memory of the ids.
        ids = [
            np.array(entry.ids, dtype=np.int64)
            for at in range(0, len(texts), 32)
            for entry in encode(texts[at : at + 32])
        ]
        return [one if len(one) and one[-1] == end else np.append(one, end) for one in ids]

    def _chats(
        self, contents: list[tuple[str, Any]], tally: dict[str, int], problems: list[str]
    ) -> tuple[list[Array], list[Array]]:
        kept: list[tuple[Array, Array]] = []
        if any(MESSAGES in content for _, content in contents):
            chat.check_template(self.tokenizer)
        for key, content in contents:
            try:
                ids, learnt = chat.encode(self.tokenizer, content)
            except ValueError as error:
                tally["bad"] += 1
                tally["documents"] -= 1
                problems.append(f"{key}: {error}")
                continue
            tally["truncated"] += len(ids) > self.length
            ids, learnt = ids[: self.length], learnt[: self.length]
            if learnt[1:].any():
                kept.append((ids, learnt))
            else:
                tally["masked"] += 1
                problems.append(f"{key}: nothing to learn" + (" within the row" if len(ids) == self.length else ""))
        return [ids for ids, _ in kept], [learnt for _, learnt in kept]
