"""From token ids of documents to rows of one fixed length, without mixing documents.

A document longer than a row is cut into pieces of the row's length; pieces are put together by best fit in order of
falling length (Johnson 1973; for language models Ding et al. 2024, "Fewer Truncations Improve Language Modeling").
A piece never spans two rows, and position and segment numbers restart with every piece.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

IGNORED = -100
"""The label that the loss leaves out, as in Hugging Face's models."""

Array = np.ndarray[Any, np.dtype[Any]]
Batch = dict[str, Array]
"""Arrays of int64, each [micro, sequence_length]: `input_ids`; `labels` (not shifted; IGNORED where nothing is
learnt, as at the first token of every piece, so that no loss crosses a boundary); `position_ids` (from 0 in every
piece); `segment_ids` (the piece's number in its row from 1; 0 is padding)."""


def best_fit(lengths: Sequence[int], capacity: int) -> list[list[int]]:
    """Indices of `lengths` in bins of `capacity`, each into the fullest bin that still takes it, longest first.

    Equal lengths keep their order. O(n log n + n log capacity). Raises ValueError for a length above `capacity`.
    """
    if len(lengths) and max(lengths) > capacity:
        raise ValueError(f"a piece of {max(lengths)} tokens does not fit into a row of {capacity}")
    bins: list[list[int]] = []
    room: dict[int, list[int]] = {}
    rooms: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        length = lengths[index]
        position = bisect_left(rooms, length)
        if position == len(rooms):
            left, chosen = capacity, len(bins)
            bins.append([])
        else:
            left = rooms[position]
            chosen = room[left].pop()
            if not room[left]:
                rooms.pop(position)
                del room[left]
        bins[chosen].append(index)
        left -= length
        if left > 0:
            if left not in room:
                insort(rooms, left)
                room[left] = []
            room[left].append(chosen)
    return bins


@dataclass(frozen=True)
class Rows:
    """Packed rows, as they are stored: `n` rows of `length` tokens."""

    tokens: Array
    """[n, length], unsigned; padded at the end of each row."""
    segments: list[Array]
    """For each row, the lengths of its pieces."""
    bytes: Array
    """[n] int64: UTF-8 bytes of the text behind each row's targets."""
    answers: Array | None = None
    """[n, length] bool: what is learnt of a chat; None: everything."""

    def __len__(self) -> int:
        return len(self.tokens)

    def targets(self, index: int) -> int:
        """How many tokens of a row are learnt."""
        if self.answers is not None:
            return int(self.answers[index].sum())
        return int(self.segments[index].sum()) - len(self.segments[index])


def pack(
    documents: Sequence[Array],
    *,
    length: int,
    pad: int,
    token_bytes: Array,
    together: bool = True,
    answers: Sequence[Array] | None = None,
) -> Rows:
    """Rows of `length` tokens from documents of any length; `together=False` gives every piece its own row.

    `token_bytes` is [vocabulary]: the bytes of text behind each token. `answers` marks, for each document, the
    tokens that are learnt.
    """
    kind = token_kind(len(token_bytes))
    pieces: list[tuple[int, int, int]] = []
    for number, document in enumerate(documents):
        pieces += [(number, at, min(at + length, len(document))) for at in range(0, len(document), length)]
    sizes = [stop - start for _, start, stop in pieces]
    bins = best_fit(sizes, length) if together else [[index] for index in range(len(pieces))]
    tokens = np.full((len(bins), length), pad, dtype=kind)
    learnt = np.zeros((len(bins), length), dtype=bool)
    segments = []
    for row, members in enumerate(bins):
        at = 0
        for index in members:
            number, start, stop = pieces[index]
            end = at + stop - start
            tokens[row, at:end] = documents[number][start:stop]
            learnt[row, at:end] = True if answers is None else answers[number][start:stop]
            learnt[row, at] = False
            at = end
        segments.append(np.array([sizes[index] for index in members], dtype=np.int32))
    counts = np.where(learnt, token_bytes[tokens], 0).sum(axis=1)
    return Rows(tokens, segments, counts, None if answers is None else learnt)


def token_kind(vocabulary: int) -> Any:
    """The smallest unsigned type that holds every token id."""
    return np.uint16 if vocabulary <= 2**16 else np.uint32


def batch(rows: Sequence[tuple[Rows, int] | None], *, length: int, pad: int) -> Batch:
    """The batch of these rows, each as (rows, index); None is an empty row, of which nothing is learnt."""
    shape = (len(rows), length)
    input_ids = np.full(shape, pad, dtype=np.int64)
    labels = np.full(shape, IGNORED, dtype=np.int64)
    position_ids = np.tile(np.arange(length, dtype=np.int64), (len(rows), 1))
    segment_ids = np.zeros(shape, dtype=np.int64)
    for line, entry in enumerate(rows):
        if entry is None:
            continue
        packed, index = entry
        sizes = packed.segments[index].astype(np.int64)
        filled = int(sizes.sum())
        starts = np.concatenate([[0], np.cumsum(sizes)])
        input_ids[line] = packed.tokens[index]
        segment_ids[line, :filled] = np.repeat(np.arange(1, len(sizes) + 1), sizes)
        position_ids[line, :filled] -= np.repeat(starts[:-1], sizes)
        position_ids[line, filled:] -= filled
        learnt = segment_ids[line] > 0
        learnt[starts[:-1]] = False
        if packed.answers is not None:
            learnt &= packed.answers[index]
        labels[line, learnt] = input_ids[line, learnt]
    return {"input_ids": input_ids, "labels": labels, "position_ids": position_ids, "segment_ids": segment_ids}


def to_table(rows: Rows) -> pa.Table:
    """Rows as an Arrow table: `tokens`, `segments`, `bytes` and, for chats, `answers`."""
    length = rows.tokens.shape[1] if rows.tokens.ndim == 2 else 0
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows.segments])]).astype(np.int32)
    flat = np.concatenate(rows.segments) if rows.segments else np.zeros(0, np.int32)
    columns = {
        "tokens": pa.FixedSizeListArray.from_arrays(pa.array(rows.tokens.reshape(-1)), length),
        "segments": pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat, type=pa.int32())),
        "bytes": pa.array(rows.bytes.astype(np.int64)),
    }
    if rows.answers is not None:
        columns["answers"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.answers.reshape(-1)), length)
    return pa.table(columns)


def from_table(table: pa.Table) -> Rows:
    """The rows of a table that `to_table` made."""
    tokens, answers = _matrix(table["tokens"]), None
    if "answers" in table.column_names:
        answers = _matrix(table["answers"])
    lists = _single(table["segments"])
    offsets = lists.offsets.to_numpy(zero_copy_only=False)
    flat = lists.values.to_numpy(zero_copy_only=False)
    segments = [flat[offsets[row] : offsets[row + 1]] for row in range(len(offsets) - 1)]
    return Rows(tokens, segments, table["bytes"].to_numpy(), answers)


def _single(column: pa.ChunkedArray) -> Any:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _matrix(column: pa.ChunkedArray) -> Array:
    values = _single(column)
    flat = values.flatten().to_numpy(zero_copy_only=False)
    return np.asarray(flat).reshape(len(values), values.type.list_size)
