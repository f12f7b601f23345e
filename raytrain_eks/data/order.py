"""The order of samples: a function of seed, epoch and data alone, seekable in constant time.

In every epoch the units of a source are permuted anew; `WINDOW` consecutive ones of that permutation form a window,
and the rows of a window are permuted together. So a position is (epoch, window, offset), whatever came before it, and
needs no more than the row counts of one window. The random bits are those of Philox4x64 (Salmon et al. 2011), whose
stream is fixed, sorted by a stable sort: no library's shuffle can change the order.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

import numpy as np

from raytrain_eks.data.packing import Array

WINDOW = 16
"""Units whose rows are shuffled together."""

ROWS = 2**24
"""A sample's id is its unit's number times this, plus its row in the unit."""


def permutation(count: int, *key: int) -> Array:
    """[count] int64: the numbers below `count` in an order that depends on `count` and `key` alone."""
    text = ",".join(map(str, key)).encode()
    word = int.from_bytes(hashlib.blake2b(text, digest_size=16).digest(), "big")
    bits = np.random.Philox(key=word).random_raw(count)
    return np.argsort(bits, kind="stable")


@dataclass(frozen=True)
class Position:
    """Where a source's stream stands: rows of earlier epochs, earlier windows and before `offset` are behind it."""

    epoch: int = 0
    window: int = 0
    offset: int = 0


class Cursor:
    """Walks through one source for ever, epoch after epoch."""

    def __init__(
        self,
        *,
        seed: int,
        source: int,
        first: int,
        units: int,
        rows: Callable[[int], int],
        position: Position = Position(),
    ):
        """`first` and `units` name the source's units; `rows` tells how many rows a unit has, and may block."""
        self._seed, self._source, self._first, self._units, self._rows = seed, source, first, units, rows
        self._windows = -(-units // WINDOW)
        self._permuted: dict[int, Array] = {}
        self.position = position
        self._ids: Array | None = None

    def units(self, ahead: int = 0) -> list[int]:
        """The units of the window that the cursor stands in, or `ahead` windows later, in the order of need."""
        epoch, window = divmod(self.position.epoch * self._windows + self.position.window + ahead, self._windows)
        if epoch not in self._permuted:
            self._permuted = {key: value for key, value in self._permuted.items() if key >= self.position.epoch}
            self._permuted[epoch] = permutation(self._units, self._seed, self._source, epoch)
        chosen = self._permuted[epoch][window * WINDOW : (window + 1) * WINDOW]
        return [self._first + int(unit) for unit in chosen]

    def take(self, count: int) -> Array:
        """[count] int64: the ids of the next samples. Raises ValueError for a source without a single row."""
        parts: list[Array] = []
        barren = 0
        while count > 0:
            ids = self._window()
            part = ids[self.position.offset : self.position.offset + count]
            parts.append(part)
            count -= len(part)
            position = self.position
            self.position = Position(position.epoch, position.window, position.offset + len(part))
            if count > 0:
                barren = 0 if len(ids) else barren + 1
                if barren > self._windows:
                    raise ValueError(f"source {self._source} holds no sample")
                self._advance()
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _advance(self) -> None:
        number = self.position.epoch * self._windows + self.position.window + 1
        self.position = Position(*divmod(number, self._windows))
        self._ids = None

    def _window(self) -> Array:
        if self._ids is None:
            ids = [unit * ROWS + np.arange(self._rows(unit), dtype=np.int64) for unit in self.units()]
            flat = np.concatenate(ids)
            key = (self._seed, self._source, self.position.epoch, self.position.window)
            self._ids = flat[permutation(len(flat), *key)]
        return self._ids


class Mixture:
    """Draws from several cursors in fixed proportions: the next sample comes from the source that is most behind."""

    def __init__(self, cursors: Sequence[Cursor], weights: Sequence[float], drawn: Sequence[int] | None = None):
        """`drawn` is how many samples came from each source so far."""
        if len(cursors) != len(weights):
            raise ValueError(f"{len(weights)} weights for {len(cursors)} sources")
        self.cursors = tuple(cursors)
        exact = [Fraction(weight).limit_denominator(10**6) for weight in weights]
        scale = lcm(*(weight.denominator for weight in exact))
        self._weights = [int(weight * scale) for weight in exact]
        self.drawn = list(drawn) if drawn is not None else [0] * len(cursors)

    def take(self, count: int) -> Array:
        """[count] int64: the ids of the next samples."""
        plan = self._plan(count)
        ids = np.empty(count, dtype=np.int64)
        for number, cursor in enumerate(self.cursors):
            chosen = plan == number
            ids[chosen] = cursor.take(int(chosen.sum()))
        return ids

    def _plan(self, count: int) -> Array:
        """[count]: the source of each of the next samples; at every point each has its part, to within one sample."""
        if len(self.cursors) == 1:
            self.drawn[0] += count
            return np.zeros(count, dtype=np.int64)
        whole, done = sum(self._weights), sum(self.drawn)
        plan = np.empty(count, dtype=np.int64)
        for index in range(count):
            done += 1
            behind = [weight * done - whole * drawn for weight, drawn in zip(self._weights, self.drawn, strict=True)]
            plan[index] = chosen = behind.index(max(behind))
            self.drawn[chosen] += 1
        return plan
