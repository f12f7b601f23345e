"""Parts of a logical tensor, and where two of them meet: the arithmetic of resharding.

A region is an N-D box or a 1-D range of the row-major flattened tensor; its own elements lie row-major without gaps.
Either kind is a list of runs: elements that follow each other in the flattened tensor and in the region alike. Two
regions of the same tensor meet where their runs overlap, whatever their kinds.
"""

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Region:
    """A part of a tensor of shape `whole`."""

    whole: tuple[int, ...]
    offsets: tuple[int, ...] | None
    """First index of the box in each dimension; None for a flat range."""
    shape: tuple[int, ...]
    """Of the box; `(length,)` of a flat range."""
    flat_start: int | None = None
    """First element of the flat range; None for a box."""

    @classmethod
    def all(cls, whole: tuple[int, ...]) -> "Region":
        """The whole tensor."""
        return cls(whole, (0,) * len(whole), whole)

    @classmethod
    def box(cls, whole: tuple[int, ...], offsets: tuple[int, ...], shape: tuple[int, ...]) -> "Region":
        """A box. Raises ValueError when it is not inside the tensor."""
        fits = len(whole) == len(offsets) == len(shape)
        if not fits or any(o < 0 or s < 0 or o + s > w for o, s, w in zip(offsets, shape, whole, strict=True)):
            raise ValueError(f"the box at {offsets} of shape {shape} is not inside a tensor of shape {whole}")
        return cls(whole, offsets, shape)

    @classmethod
    def flat(cls, whole: tuple[int, ...], start: int, length: int) -> "Region":
        """A flat range. Raises ValueError when it is not inside the tensor."""
        if start < 0 or length < 0 or start + length > prod(whole):
            raise ValueError(f"the range {start}+{length} is not inside a tensor of {prod(whole)} elements")
        return cls(whole, None, (length,), start)

    @property
    def numel(self) -> int:
        """Elements."""
        return prod(self.shape)

    @property
    def bounds(self) -> tuple[int, int]:
        """First element and one past the last in the flattened tensor; (0, 0) when empty."""
        if self.numel == 0:
            return 0, 0
        if self.flat_start is not None:
            return self.flat_start, self.flat_start + self.shape[0]
        first = last = 0
        for offset, size, dimension in zip(self.offsets or (), self.shape, self.whole, strict=True):
            first = first * dimension + offset
            last = last * dimension + offset + size - 1
        return first, last + 1

    def runs(self) -> tuple[Indices, int]:
        """Start of each run in the flattened tensor, ascending, and the length of all of them. Run i begins at element
        i * length of the region."""
        if self.numel == 0:
            return np.empty(0, np.int64), 0
        if self.flat_start is not None:
            return np.array([self.flat_start], np.int64), self.shape[0]
        offsets = self.offsets or ()
        # Trailing dimensions that the box covers wholly, and the one before them, make up a run.
        inner = len(self.whole)
        while inner > 0 and self.shape[inner - 1] == self.whole[inner - 1]:
            inner -= 1
        inner = max(inner - 1, 0)
        starts = np.zeros(1, np.int64)
        for axis in range(inner):
            steps = np.arange(self.shape[axis], dtype=np.int64) + offsets[axis]
            starts = (starts[:, None] * self.whole[axis] + steps[None, :]).reshape(-1)
        first = offsets[inner] if self.whole else 0
        starts = starts * prod(self.whole[inner:]) + first * prod(self.whole[inner + 1 :])
        return starts, prod(self.shape[inner:])


@dataclass(frozen=True)
class Strided:
    """`count` runs of `length` elements, evenly spaced on both sides: one 2-D copy."""

    source: int
    """First element in the source region."""
    source_step: int
    target: int
    target_step: int
    length: int
    count: int


def meet(source: Region, target: Region) -> list[Strided]:
    """Which elements of `target` come from where in `source`; empty when they do not meet."""
    low, high = source.bounds
    target_low, target_high = target.bounds
    if low >= target_high or target_low >= high:
        return []
    if high - low == source.numel and target_high - target_low == target.numel:
        # Both are one run, which is most of what there is, and numpy would take longer to get going.
        start, stop = max(low, target_low), min(high, target_high)
        return [Strided(start - low, 0, start - target_low, 0, stop - start, 1)]
    first, length = source.runs()
    other, other_length = target.runs()
    # For each run of the target the range of runs of the source that overlap it; both are sorted and disjoint.
    begin = np.searchsorted(first + length, other, side="right")
    end = np.searchsorted(first, other + other_length, side="left")
    count = np.maximum(end - begin, 0)
    if not count.any():
        return []
    of_target = np.repeat(np.arange(len(other)), count)
    of_source = np.arange(len(of_target)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(begin, count)
    start = np.maximum(first[of_source], other[of_target])
    stop = np.minimum(first[of_source] + length, other[of_target] + other_length)
    from_source = of_source * length + start - first[of_source]
    from_target = of_target * other_length + start - other[of_target]
    return _strided(from_source, from_target, stop - start)


def _strided(source: Indices, target: Indices, length: Indices) -> list[Strided]:
    # Neighbours on both sides are one run.
    joined = (source[1:] == source[:-1] + length[:-1]) & (target[1:] == target[:-1] + length[:-1])
    heads = np.flatnonzero(np.concatenate([[True], ~joined]))
    length = np.add.reduceat(length, heads)
    source, target = source[heads], target[heads]
    # Runs of one length and even spacing are one 2-D copy.
    found, at, total = [], 0, len(heads)
    step_source, step_target = np.diff(source), np.diff(target)
    # Place i breaks a series when run i + 1 does not continue it as run i did.
    breaks = (length[1:] != length[:-1]) if total > 1 else np.empty(0, bool)
    uneven = (
        np.concatenate([[False], (np.diff(step_source) != 0) | (np.diff(step_target) != 0)]) if total > 1 else breaks
    )
    places = np.flatnonzero(breaks | uneven)
    while at < total:
        if at + 1 < total and not breaks[at]:
            # The series holds at least `at` and `at + 1`, whatever came before; it ends at the next break after that.
            following = places[np.searchsorted(places, at, side="right") :]
            last = int(following[0]) if len(following) else total - 1
        else:
            last = at
        steps = (int(step_source[at]), int(step_target[at])) if last > at else (0, 0)
        found.append(Strided(int(source[at]), steps[0], int(target[at]), steps[1], int(length[at]), last - at + 1))
        at = last + 1
    return found


def covers(parts: list[Strided], numel: int) -> bool:
    """Whether copies to one target, which may overlap, fill all of its `numel` elements."""
    if numel == 0:
        return True
    if not parts:
        return False
    if len(parts) == 1 and parts[0].count == 1:
        return parts[0].length == numel
    starts = np.concatenate([part.target + part.target_step * np.arange(part.count) for part in parts])
    ends = starts + np.repeat([part.length for part in parts], [part.count for part in parts])
    order = np.argsort(starts, kind="stable")
    starts, reach = starts[order], np.maximum.accumulate(ends[order])
    return bool(starts[0] == 0 and reach[-1] >= numel and (starts[1:] <= reach[:-1]).all())
