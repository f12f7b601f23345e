"""One unit, tokenised and packed: the same function for prepared data and for data packed while training runs."""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from raytrain_eks.data import tokenizer
from raytrain_eks.data.corpus import Unit
from raytrain_eks.data.packing import Array, Rows, pack
from raytrain_eks.data.readers import Bad

NAMED = 20
"""So many bad files and rows of a unit are named; all are counted."""


@dataclass(frozen=True)
class Counts:
    """What became of a unit's documents."""

    documents: int = 0
    empty: int = 0
    """Documents without any text; they are left out."""
    bad: int = 0
    """Unreadable files and rows; they are left out."""
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


COUNTED = ("documents", "empty", "bad", "rows", "tokens", "targets", "bytes")


@dataclass(frozen=True)
class Recipe:
    """All that packing depends on beside the unit itself; small, and sent to every task."""

    tokenizer: str
    """URL of the saved folder."""
    format: str
    length: int
    together: bool
    """Several documents in one row."""

    @property
    def pad(self) -> int:
        return tokenizer.special(self.tokenizer)[1]

    def rows(self, unit: Unit) -> tuple[Rows, Counts]:
        """Read, tokenise and pack one unit. Raises nothing for bad input: it is counted and named."""
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        documents = empty = 0
        problems: list[str] = []
        texts: list[str] = []
        for document in unit.documents(self.format):
            if isinstance(document, Bad):
                problems.append(str(document))
                continue
            documents += 1
            if document.content.strip():
                texts.append(document.content)
            else:
                empty += 1
        ids = self._encode(texts)
        sizes = tokenizer.token_bytes(self.tokenizer)
        rows = pack(ids, length=self.length, pad=self.pad, token_bytes=sizes, together=self.together)
        counts = Counts(
            documents=documents,
            empty=empty,
            bad=len(problems),
            rows=len(rows),
            tokens=sum(len(document) for document in ids),
            targets=sum(int(row.sum()) - len(row) for row in rows.segments),
            bytes=int(rows.bytes.sum()),
            problems=tuple(problems[:NAMED]),
        )
        return rows, counts

    def _encode(self, texts: list[str]) -> list[Array]:
        end = tokenizer.special(self.tokenizer)[0]
        encoded: list[Any] = tokenizer.load(self.tokenizer).encode_batch_fast(texts)
        ids = [np.array(entry.ids, dtype=np.int64) for entry in encoded]
        return [one if len(one) and one[-1] == end else np.append(one, end) for one in ids]
