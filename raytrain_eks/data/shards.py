"""Units in memory while they are needed: the windows that the cursors stand in, and the ones after those.

Memory is bounded by two windows of each source, whatever the size of the data. Units are loaded by a few threads, so
that a window is there when the stream enters it.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor

from raytrain_eks.data.packing import Rows

THREADS = 4


class Shards:
    """Loads, holds and drops the rows of units. Not for use by more than one thread."""

    def __init__(self, read: Callable[[int], Rows]):
        self._read = read
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="shards")
        self._units: dict[int, Future[Rows]] = {}

    def rows(self, unit: int) -> Rows:
        """The rows of a unit; waits for them. Raises what reading raised."""
        return self._future(unit).result()

    def hold(self, units: Iterable[int]) -> None:
        """Begin to load these, in this order, and drop all others."""
        wanted = list(units)
        kept = set(wanted)
        for unit in [unit for unit in self._units if unit not in kept]:
            self._units.pop(unit).cancel()
        for unit in wanted:
            self._future(unit)

    def _future(self, unit: int) -> "Future[Rows]":
        if unit not in self._units:
            self._units[unit] = self._pool.submit(self._read, unit)
        return self._units[unit]

    def close(self) -> None:
        """Let everything go; returns when no thread reads any more."""
        self._units.clear()
        self._pool.shutdown(wait=True, cancel_futures=True)
