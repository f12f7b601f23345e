"""Packing while training runs: the units that the stream will need next, by tasks on the cluster's CPUs.

The order of samples is that of prepared data, since both pack the same units. A position needs one window of units
and nothing before it; so a run resumes anywhere at once, which Ray Data, whose executions have no position, cannot do.
One actor of a run sees to it that a unit is packed once for all ranks, and lets it go when all have it. What is packed
ahead is bounded by what the streams ask for: the window they read and the next one.
"""

import asyncio
import logging
import sys
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from raytrain_eks.data.corpus import Unit
from raytrain_eks.data.packing import Rows, from_table, to_table, token_kind
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.data.recipe import Counts, Recipe, over_budget
from raytrain_eks.spec.problem import SpecError

STORE_SHARE = 0.25
"""Packed units that some rank has not fetched hold at most this part of the object store; older ones are packed again
when they are asked for."""
SPOKEN = 20
"""So many bad files and rows are named in the log; all are counted."""

JUDGED = 1000
"""Documents."""


@lru_cache(maxsize=4)
def _plan(url: str, roots: tuple[str, ...]) -> tuple[Recipe, tuple[Unit, ...]]:
    """Read once by every process that packs; `roots` tells when the sources have moved."""
    prepared = Prepared.load(url)
    return prepared.recipe(), prepared.plan()


def pack_unit(url: str, roots: tuple[str, ...], number: int) -> tuple[pa.Table, Counts]:
    """The packed rows of a unit of training data, as a table, and what became of its documents."""
    recipe, units = _plan(url, roots)
    rows, counts = recipe.rows(units[number])
    return to_table(rows), counts


class Tally:
    """What became of the documents of the units that were packed so far, each unit once."""

    def __init__(self, prepared: Prepared, budget: Decimal):
        self._budget, self._all = budget, int(prepared.index["units"])
        self._units: dict[int, Counts] = {}
        self._spoken = 0

    @property
    def total(self) -> Counts:
        return sum(self._units.values(), Counts())

    def add(self, unit: int, counts: Counts) -> None:
        """Count a unit and name what was left out of it. Raises SpecError where that is too much.

        Until all units have been seen, the budget is that of `JUDGED` documents at least: one bad of the first ten
        must not end a run that allows 1 %.
        """
        if unit in self._units:
            return
        self._units[unit] = counts
        for left_out in counts.problems[: max(SPOKEN - self._spoken, 0)]:
            print(f"data: left out: {left_out}", file=sys.stderr, flush=True)
            self._spoken += 1
        total = self.total
        problem = over_budget(total, self._budget)
        enough = len(self._units) == self._all or total.bad + total.masked > self._budget * JUDGED
        if problem is not None and enough:
            raise SpecError([problem])


class Packing:
    """The actor: one per run. It holds references to packed units, not the rows."""

    def __init__(self, url: str, world: int, bad_rows: Decimal):
        import ray

        prepared = Prepared.load(url)
        self._url, self._roots, self._world = url, tuple(prepared.index["roots"]), world
        self._row_bytes = prepared.sequence_length * np.dtype(token_kind(prepared.vocab_size)).itemsize
        self._tally = Tally(prepared, bad_rows)
        resources = ray.cluster_resources()
        free = ray.available_resources().get("CPU", 0.0)
        # Where training holds all CPUs, as on a laptop, a task that asks for one would wait for ever.
        cpus, at_a_time = (1, int(free)) if free >= 2 else (0, 2)
        task: Any = ray.remote(pack_unit)
        self._task = task.options(num_cpus=cpus, num_returns=2, scheduling_strategy="SPREAD")
        self._slots = asyncio.Semaphore(at_a_time)
        self._room = int(resources.get("object_store_memory", 2**30) * STORE_SHARE)
        self._packed: dict[int, asyncio.Task[tuple[Any, int]]] = {}
        self._fetched: dict[int, set[int]] = {}

    async def rows(self, unit: int, rank: int) -> list[Any]:
        """[reference to the table] of a unit, for one rank. Raises SpecError where too much cannot be read."""
        if unit not in self._packed:
            self._packed[unit] = asyncio.ensure_future(self._pack(unit))
            self._fetched[unit] = set()
        task = self._packed[unit]
        try:
            reference, _ = await task
        except BaseException:
            self._drop(unit)
            raise
        fetched = self._fetched.get(unit)
        if fetched is not None:
            fetched.add(rank)
            if len(fetched) >= self._world:
                self._drop(unit)
        self._make_room(unit)
        return [reference]

    async def counts(self) -> Counts:
        """What became of the documents of all units that were packed so far, each unit once."""
        return self._tally.total

    async def _pack(self, unit: int) -> tuple[Any, int]:
        async with self._slots:
            reference, counted = self._task.remote(self._url, self._roots, unit)
            counts: Counts = await counted
        self._tally.add(unit, counts)
        return reference, counts.rows

    def _make_room(self, latest: int) -> None:
        done = [unit for unit, task in self._packed.items() if task.done() and not task.exception() and unit != latest]
        sizes = {unit: self._packed[unit].result()[1] * self._row_bytes for unit in done}
        held = sum(sizes.values())
        for unit in done:
            if held > self._room:
                held -= sizes[unit]
                self._drop(unit)

    def _drop(self, unit: int) -> None:
        self._packed.pop(unit, None)
        self._fetched.pop(unit, None)


class OnTheFly:
    """Rows of training units for one rank's stream, packed when they are asked for.

    Within Ray the run's actor packs them; without Ray this process does, when they are asked for.
    """

    def __init__(self, prepared: Prepared, *, rank: int, world: int, bad_rows: Decimal):
        self.hash, self.sequence_length, self.pad = prepared.hash, prepared.sequence_length, prepared.pad
        self.units = prepared.units
        self._url, self._roots, self._rank = prepared.url, tuple(prepared.index["roots"]), rank
        self._tally = Tally(prepared, bad_rows)
        self._actor = _actor(prepared, world, bad_rows)

    def count(self, unit: int) -> int | None:
        """Not known before the unit is packed."""
        return None

    def read(self, unit: int) -> Rows:
        """The rows of a unit; waits for them. Raises SpecError where too much of the data cannot be read."""
        if self._actor is None:
            table, counts = pack_unit(self._url, self._roots, unit)
            self._tally.add(unit, counts)
            return from_table(table)
        import ray
        from ray.exceptions import RayTaskError

        if not ray.is_initialized():
            # Any call would start another Ray.
            raise RuntimeError("the connection to Ray was closed while the stream was read")
        try:
            (reference,) = ray.get(self._actor.rows.remote(unit, self._rank))
        except RayTaskError as error:
            raise (error.cause if isinstance(error.cause, SpecError | OSError) else error) from None
        return _copied(from_table(ray.get(reference)))


def _copied(rows: Rows) -> Rows:
    """The rows in this process's own memory, so that the object store may drop them."""
    answers = None if rows.answers is None else np.array(rows.answers)
    flat = np.concatenate(rows.segments) if rows.segments else np.zeros(0, np.int32)
    bounds = np.cumsum([len(row) for row in rows.segments])[:-1]
    segments = np.split(flat, bounds) if rows.segments else []
    return Rows(np.array(rows.tokens), segments, np.array(rows.bytes), answers)


def _actor(prepared: Prepared, world: int, bad_rows: Decimal) -> Any:
    import ray

    if not ray.is_initialized():
        return None
    logging.getLogger("ray").setLevel(logging.WARNING)
    name = f"raytrain-packing-{prepared.hash}-{world}"
    options = {"name": name, "get_if_exists": True, "num_cpus": 0, "max_concurrency": 1000}
    return ray.remote(Packing).options(**options).remote(prepared.url, world, bad_rows)
