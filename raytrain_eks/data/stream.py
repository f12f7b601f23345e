"""The stream of global batches: the same samples in the same order at any number of workers, resumed anywhere.

The samples of all epochs form one endless sequence; a global batch takes the next `global_sequences` of it. A batch
at the end of an epoch is filled from the next one, so that nothing is dropped and nothing is repeated. Rank r of w
takes samples r, r + w, r + 2w, ... of the batch; what is missing to whole micro-batches is padded with empty rows.
"""

import queue
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

from raytrain_eks.data.order import ROWS, Cursor, Mixture, Position, permutation
from raytrain_eks.data.packing import Batch, Rows, batch
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.data.shards import Shards
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

AHEAD = 4
"""Steps that are assembled in advance."""


class Packed(Protocol):
    """Where packed rows come from: prepared shards, or tasks that pack while training runs."""

    @property
    def hash(self) -> str: ...
    @property
    def sequence_length(self) -> int: ...
    @property
    def pad(self) -> int: ...
    @property
    def units(self) -> Sequence[tuple[int, int]]:
        """For each source, its first unit and how many it has."""

    def count(self, unit: int) -> int | None:
        """How many rows a training unit has; None where that is known only once it is packed."""

    def read(self, unit: int) -> Rows:
        """The rows of a training unit; waits for them."""


@dataclass(frozen=True)
class Step:
    """What one optimizer step learns from."""

    epoch: int
    """The pass over the data that the step's first sample belongs to; of a mixture, that of the source least read."""
    ids: list[int]
    """Ids of the samples of the whole global batch, in order."""
    targets: int
    """Tokens that the whole global batch learns, over all ranks."""
    micro_batches: list[Batch]
    """This rank's part: on every rank the same number of micro-batches of the same shape."""


def shares(count: int, world: int, micro: int) -> int:
    """Micro-batches of each rank for a global batch of `count` sequences."""
    return -(-count // (world * micro))


class Stream:
    """This rank's micro-batches of one global batch after the other; a thread assembles them in advance."""

    def __init__(
        self,
        data: Packed,
        *,
        seed: int,
        global_sequences: int,
        rank: int,
        world: int,
        micro: int,
        state: dict[str, Any] | None = None,
        weights: Sequence[float] | None = None,
    ):
        """`state` is what `state()` returned, on any number of workers. Raises SpecError where it is of other data."""
        self._data, self._count = data, global_sequences
        self._rank, self._world, self._micro = rank, world, micro
        self._shards = Shards(data.read)
        sources = len(data.units)
        weights = list(weights) if weights is not None else [1.0] * sources
        state = state or {"data": data.hash, "seed": seed, "sources": [[0, 0, 0]] * sources, "drawn": [0] * sources}
        self._check(state, seed, sources)
        self._seed, self._state = seed, state
        cursors = [
            Cursor(seed=seed, source=number, first=first, units=units, rows=self._rows, position=Position(*position))
            for number, ((first, units), position) in enumerate(zip(data.units, state["sources"], strict=True))
        ]
        self._mixture = Mixture(cursors, weights, state["drawn"])
        self._ready: queue.Queue[tuple[Step, dict[str, Any]] | BaseException] = queue.Queue(AHEAD)
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    @classmethod
    def of(cls, data: Prepared, job: Job, *, rank: int, world: int, micro: int, state: dict[str, Any] | None) -> Self:
        """The stream of a job: its seed, global batch and weights of sources; prepared or packed on the fly."""
        rows: Packed = data
        if data.on_the_fly:
            from raytrain_eks.data.packer import OnTheFly

            rows = OnTheFly(data, rank=rank, world=world, bad_rows=quantity.share(job.data.bad_rows))
        weights = None if isinstance(job.data.train, str) else [source.weight for source in job.data.train]
        return cls(
            rows,
            seed=job.seed,
            global_sequences=job.global_sequences,
            rank=rank,
            world=world,
            micro=micro,
            state=state,
            weights=weights,
        )

    def _check(self, state: dict[str, Any], seed: int, sources: int) -> None:
        if state["data"] != self._data.hash or len(state["sources"]) != sources:
            rule = f"the checkpoint was written with data {state['data']}, this is {self._data.hash}"
            fix = "bring back the files, tokenizer and data fields of the run, or give the run a new name"
            raise SpecError([Problem(path="data", rule=rule, fix=fix)])
        if state["seed"] != seed:
            rule = f"the checkpoint was written with seed {state['seed']}"
            raise SpecError([Problem(path="seed", value=str(seed), rule=rule, fix="write that seed, or a new name")])

    def next(self) -> Step:
        """The next global batch. Raises what reading raised; there is always a next one."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._assemble, name="data-stream", daemon=True)
            self._thread.start()
        found = self._ready.get()
        if isinstance(found, BaseException):
            self._ready.put(found)
            raise found
        step, self._state = found
        return step

    def state(self) -> dict[str, Any]:
        """Where the stream stands after the last `next()`: small, JSON, the same on every rank."""
        return self._state

    def close(self) -> None:
        """Stop the thread and let the rows go."""
        self._closed.set()
        while self._thread is not None and self._thread.is_alive():
            try:
                self._ready.get(timeout=0.05)
            except queue.Empty:
                self._thread.join(timeout=0.05)
        self._shards.close()

    def _assemble(self) -> None:
        try:
            while not self._closed.is_set():
                self._ready.put(self._step())
        except BaseException as error:
            self._ready.put(error)

    def _step(self) -> tuple[Step, dict[str, Any]]:
        cursors = self._mixture.cursors
        # The windows that are being read come first, the ones after them follow in the same order of need.
        self._shards.hold(unit for ahead in (0, 1) for cursor in cursors for unit in cursor.units(ahead))
        epoch = min(cursor.position.epoch for cursor in cursors)
        ids = self._mixture.take(self._count).tolist()
        rows = [(self._shards.rows(sample // ROWS), sample % ROWS) for sample in ids]
        mine: list[tuple[Rows, int] | None] = list(rows[self._rank :: self._world])
        parts = shares(self._count, self._world, self._micro)
        mine += [None] * (parts * self._micro - len(mine))
        length, pad = self._data.sequence_length, self._data.pad
        batches = [
            batch(mine[part * self._micro : (part + 1) * self._micro], length=length, pad=pad) for part in range(parts)
        ]
        positions = [cursor.position for cursor in cursors]
        state = {
            "data": self._data.hash,
            "seed": self._seed,
            "sources": [[position.epoch, position.window, position.offset] for position in positions],
            "drawn": list(self._mixture.drawn),
        }
        targets = sum(packed.targets(index) for packed, index in rows)
        return Step(epoch, ids, targets, batches), state

    def _rows(self, unit: int) -> int:
        known = self._data.count(unit)
        return len(self._shards.rows(unit)) if known is None else known


@dataclass(frozen=True)
class Evaluation:
    """Held-out rows, always the same ones in the same order; iterates over this rank's batches."""

    batches: list[Batch]
    """This rank's part: the same number of batches of the same shape on every rank."""
    sequences: int
    """Over all ranks."""
    targets: int
    """Tokens that are predicted, over all ranks."""
    bytes: int
    """UTF-8 bytes of the text behind the targets, over all ranks: bits per byte is the summed loss in nats over
    ln 2 times this."""

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def evaluation(prepared: Prepared, *, rank: int, world: int, micro: int, sequences: int) -> Evaluation:
    """At most `sequences` held-out rows, drawn by a fixed permutation; empty where nothing was held out."""
    counts = prepared.eval.rows
    everything = [(unit, row) for unit, count in enumerate(counts) for row in range(count)]
    chosen = [everything[index] for index in permutation(len(everything), 0)[:sequences].tolist()]
    loaded = {unit: prepared.rows("eval", unit) for unit in sorted({unit for unit, _ in chosen})}
    rows = [(loaded[unit], row) for unit, row in chosen]
    mine: list[tuple[Rows, int] | None] = list(rows[rank::world])
    parts = shares(len(rows), world, micro)
    mine += [None] * (parts * micro - len(mine))
    batches = [
        batch(mine[part * micro : (part + 1) * micro], length=prepared.sequence_length, pad=prepared.pad)
        for part in range(parts)
    ]
    targets = sum(packed.targets(index) for packed, index in rows)
    return Evaluation(batches, len(rows), targets, sum(int(packed.bytes[index]) for packed, index in rows))
