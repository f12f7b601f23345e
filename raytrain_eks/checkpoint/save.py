"""Saving: one copy of the state while the step waits, everything else beside training.

`save()` copies this rank's parts into a host buffer that is laid out as the file will be and is used again for every
save, so host memory does not grow. A thread then hashes, writes and syncs it. Ranks tell rank 0 that they are done by
their records on storage (a collective from a second thread would break the training group: gloo aborts the process),
and rank 0 writes the manifest when it has all of them and no newer attempt has begun.
"""

import contextlib
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from raytrain_eks.checkpoint.chunk import Chunk
from raytrain_eks.checkpoint.manifest import (
    BLOCK,
    MANIFEST,
    Damaged,
    Manifest,
    Piece,
    Record,
    Stored,
    block_checksum,
    bytes_checksum,
    check_whole,
    counts,
    step_folder,
)
from raytrain_eks.checkpoint.rankfile import layout
from raytrain_eks.checkpoint.retention import Retention, prune
from raytrain_eks.checkpoint.run import Attempt, Fenced, RunFolder, versions
from raytrain_eks.checkpoint.together import Together

log = logging.getLogger(__name__)
KEEP = Retention()


class CheckpointFailed(RuntimeError):
    """Saves failed more often in a row than the budget allows, or the last one of a run failed."""


@dataclass(frozen=True)
class SaveError:
    """A save that did not become a checkpoint."""

    step: int
    reason: str


@dataclass
class _Pending:
    """What the background needs of one save."""

    step: int
    token: str
    """Differs from save to save and is the same on all ranks, so that no file is ever written twice."""
    meta: dict[str, Any]
    rank_meta: dict[str, Any]
    loss: float | None
    begun: float
    stalled: float = 0.0
    thread: threading.Thread | None = None


@dataclass
class _Buffer:
    """The host copy of this rank's file."""

    key: object = None
    memory: torch.Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.uint8))
    views: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    """Index of the chunk, and where it is copied to."""
    pieces: tuple[Piece, ...] = ()
    size: int = 0

    def take(self, chunks: Sequence[Chunk]) -> None:
        """Copy all chunks; memory is only made when the file has grown."""
        key = [(c.name, c.dtype, c.global_shape, c.offsets, c.flat_start, c.tensor.shape) for c in chunks]
        if key != self.key:
            self._lay_out(chunks)
            self.key = key
        on_device = False
        for index, view in self.views:
            tensor = chunks[index].tensor.detach()
            on_device = on_device or tensor.device.type == "cuda"
            view.copy_(tensor, non_blocking=True)
        if on_device:
            # The copies run on the current stream: the optimizer's next step comes after them by itself, but the
            # writer must not start before they have arrived.
            torch.cuda.current_stream().synchronize()

    def _lay_out(self, chunks: Sequence[Chunk]) -> None:
        header, places, self.size = layout(chunks)
        if self.size > self.memory.numel():
            pinned = any(chunk.tensor.device.type == "cuda" for chunk in chunks)
            self.memory = torch.empty(0, dtype=torch.uint8)
            self.memory = torch.empty(self.size, dtype=torch.uint8, pin_memory=pinned)
        self.memory[: len(header)] = torch.frombuffer(bytearray(header), dtype=torch.uint8)
        index = {id(chunk): number for number, chunk in enumerate(chunks)}
        self.views = [
            (index[id(chunk)], self.memory[piece.begin : piece.end].view(chunk.dtype).view(chunk.tensor.shape))
            for chunk, piece in places
            if chunk.nbytes
        ]
        self.pieces = tuple(piece for _, piece in places)


class Saver:
    """Saves one run from one rank. Made by all ranks at the same time (a collective when `world` > 1)."""

    def __init__(
        self,
        run: RunFolder,
        attempt: Attempt,
        *,
        rank: int = 0,
        world: int = 1,
        group: Any = None,
        keep: Retention = KEEP,
        busy: Literal["wait", "skip"] = "wait",
        budget: int = 3,
        patience: float = 1800.0,
        tell: Callable[[dict[str, Any]], None] | None = None,
        after_commit: Callable[[Manifest], None] | None = None,
    ):
        """
        `group`: a gloo group of all ranks for the main thread's agreements; None makes one of its own.
        `busy`: what a save does while the one before it is still written: wait for it, or be skipped by all ranks.
        `budget`: failed saves in a row after which `save()` raises. `patience`: seconds that rank 0 waits for the
        records of the others. `tell` gets events as JSON-able dicts from the background thread (`checkpoint`,
        `checkpoint_failed`, `checkpoint_skipped`); `after_commit` is called on rank 0 with each new manifest.
        """
        self.run, self.attempt, self.rank, self.world = run, attempt, rank, world
        self.keep, self.busy, self.budget, self.patience = keep, busy, budget, patience
        self._tell = tell
        self.after_commit = after_commit
        self.together = Together(rank, world, group)
        self._nonce = str(self.together.share(uuid.uuid4().hex[:8]))
        self._saves = 0
        self.errors: list[SaveError] = []
        self.committed: Manifest | None = None
        """Rank 0: the last checkpoint that this saver made."""
        self.stalled = 0.0
        """Seconds that the last `save()` held up its caller, the wait for the one before included."""
        self._failed_in_a_row = 0
        self._fenced: Fenced | None = None
        self.at_close = contextlib.ExitStack()
        """What ends with `close()`, once the last save is done."""
        self._buffer = _Buffer()
        self._pending: _Pending | None = None

    # -- called by the training thread --------------------------------------------------------------------------

    def save(
        self,
        step: int,
        chunks: Sequence[Chunk],
        meta: dict[str, Any],
        *,
        loss: float | None = None,
        rank_meta: dict[str, Any] | None = None,
    ) -> bool:
        """Copy the state and begin to write it; False when it was skipped because the one before is still written.

        All ranks call it at the same step. `meta` is rank 0's and must be JSON; `rank_meta` is kept for each rank;
        `loss` is the held-out loss, by which the best are kept. The tensors may change as soon as this returns.
        Raises Fenced when a newer attempt owns the run, CheckpointFailed when the budget of failures is spent.
        """
        began = time.perf_counter()
        self._raise_if_over()
        json.dumps([meta, rank_meta])
        if self.busy == "skip" and self.together.any(self.is_busy):
            self.tell({"event": "checkpoint_skipped", "step": step, "reason": "the one before is still written"})
            return False
        self.wait()
        self._raise_if_over()
        self._buffer.take(chunks)
        self._saves += 1
        pending = _Pending(step, f"{self._nonce}{self._saves:04x}", meta, rank_meta or {}, loss, time.perf_counter())
        self.stalled = pending.stalled = time.perf_counter() - began
        pending.thread = threading.Thread(target=self._background, args=(pending,), name="checkpoint", daemon=True)
        self._pending = pending
        pending.thread.start()
        return True

    @property
    def is_busy(self) -> bool:
        """Whether a save is still being written."""
        return self._pending is not None and self._pending.thread is not None and self._pending.thread.is_alive()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the save in progress; False when `timeout` seconds were not enough. On rank 0 it is then a
        checkpoint or an error, on the others this rank's part is on storage (or an error)."""
        pending = self._pending
        if pending is not None and pending.thread is not None:
            pending.thread.join(timeout)
            if pending.thread.is_alive():
                return False
            self._pending = None
        return True

    def close(self) -> None:
        """Wait for the save in progress. Raises Fenced, or CheckpointFailed when that last save failed."""
        self.wait()
        self.at_close.close()
        if self._fenced is not None:
            raise self._fenced
        if self._failed_in_a_row:
            raise CheckpointFailed(f"the last checkpoint failed: {self.errors[-1].reason}")

    def _raise_if_over(self) -> None:
        if self._fenced is not None:
            raise self._fenced
        if self._failed_in_a_row >= self.budget:
            last = self.errors[-1]
            raise CheckpointFailed(
                f"{self._failed_in_a_row} checkpoints failed in a row; the last, of step {last.step}: {last.reason}"
            )

    def tell(self, event: dict[str, Any]) -> None:
        """Hand an event over; who listens and fails does not fail the save."""
        if self._tell is not None:
            try:
                self._tell(event)
            except Exception:
                log.exception("the listener failed at %s", event)

    # -- in the background --------------------------------------------------------------------------------------

    def _background(self, pending: _Pending) -> None:
        try:
            self._write(pending)
            if self.rank == 0:
                self._commit(pending)
            self._failed_in_a_row = 0
        except Fenced as error:
            self._fenced = error
            self.tell({"event": "checkpoint_fenced", "step": pending.step, "reason": str(error)})
        except Exception as error:
            # Whatever it is, it is kept and told; `save()` raises it once the budget is spent.
            self._fail(pending, error)

    def _fail(self, pending: _Pending, error: Exception) -> None:
        expected = isinstance(error, OSError | Damaged | CheckpointFailed | TimeoutError)
        reason = str(error) if expected else f"{type(error).__name__}: {error}"
        self.errors.append(SaveError(pending.step, reason))
        self._failed_in_a_row += 1
        log.error("checkpoint of step %d failed on rank %d: %s", pending.step, self.rank, reason, exc_info=not expected)
        self.tell({"event": "checkpoint_failed", "step": pending.step, "rank": self.rank, "reason": reason})
        if self.rank != 0:
            with contextlib.suppress(OSError):
                self.run.storage.write(
                    f"{step_folder(pending.step)}/{self._stem(pending, self.rank)}.failed", reason.encode()
                )

    def _stem(self, pending: _Pending, rank: int) -> str:
        return f"a{self.attempt.number:04d}-{pending.token}-r{rank:05d}"

    def _write(self, pending: _Pending) -> None:
        """This rank's data, then its record: data is durable when the record is there."""
        folder, stem = step_folder(pending.step), self._stem(pending, self.rank)
        content = memoryview(self._buffer.memory.numpy().data)[: self._buffer.size]
        output = self.run.storage.output(f"{folder}/{stem}.safetensors")
        blocks = []
        try:
            for begin in range(0, len(content), BLOCK):
                block = content[begin : begin + BLOCK]
                blocks.append(block_checksum(block))
                output.write(block)
            output.commit()
        finally:
            output.abort()
        pieces = self._buffer.pieces
        record = Record(f"{stem}.safetensors", self.rank, len(content), BLOCK, tuple(blocks), pieces, pending.rank_meta)
        self.run.storage.write(f"{folder}/{stem}.json", record.dump())

    def _commit(self, pending: _Pending) -> None:
        """Rank 0: all records are there, they make whole tensors, nobody newer owns the run: the manifest."""
        files, bytes_of = self._gather(pending)
        manifest = Manifest(
            step=pending.step,
            attempt=self.attempt.number,
            token=pending.token,
            world=self.world,
            files=tuple(files),
            meta=pending.meta,
            loss=pending.loss,
            spec=str((self.run.identity() or {}).get("spec", "")),
            run_id=self.attempt.run_id,
            versions=versions(),
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        self._publish(manifest)
        self.committed = manifest
        took, stalled = round(time.perf_counter() - pending.begun, 3), round(pending.stalled, 4)
        event = {"event": "checkpoint", "step": pending.step, "bytes": bytes_of, "took": took, "stalled": stalled}
        self.tell(event)
        prune(self.run, self.keep, newest=(self.attempt.number, pending.token), say=log.info)
        if self.after_commit is not None:
            self.after_commit(manifest)

    def _gather(self, pending: _Pending) -> tuple[list[Stored], int]:
        folder = step_folder(pending.step)
        names = {f"{self._stem(pending, rank)}.json" for rank in range(self.world)}
        end, pause = time.monotonic() + self.patience, 0.01
        while True:
            listed = {entry.name for entry in self.run.storage.entries(folder)}
            for rank in range(self.world):
                if f"{self._stem(pending, rank)}.failed" in listed:
                    reason = self.run.storage.read(f"{folder}/{self._stem(pending, rank)}.failed").decode(
                        errors="replace"
                    )
                    raise CheckpointFailed(f"rank {rank}: {reason}")
            if not (missing := sorted(names - listed)):
                break
            if time.monotonic() > end:
                raise TimeoutError(f"{len(missing)} ranks did not finish in {self.patience:.0f} s: {missing[0]} ...")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        files, records = [], []
        for name in sorted(names):
            data = self.run.storage.read(f"{folder}/{name}")
            record = Record.load(data)
            files.append(Stored(record.file, record.size, record.checksum))
            files.append(Stored(name, len(data), bytes_checksum(data)))
            records.append(record)
        check_whole(records)
        return files, sum(file.size for file in files)

    def _publish(self, manifest: Manifest) -> None:
        path, content = f"{manifest.folder}/{MANIFEST}", manifest.dump()
        self._check_owner()
        while not self.run.storage.create(path, content):
            # A manifest of an attempt that died or came too late, or of our own earlier save of this step.
            with contextlib.suppress(FileNotFoundError):
                old = self.run.storage.read(path)
                with contextlib.suppress(Damaged):
                    if Manifest.load(old).attempt > self.attempt.number:
                        raise Fenced(f"attempt {Manifest.load(old).attempt} owns `{self.run.name}`")
                if self.run.storage.exchange(path, old, content):
                    break
            self._check_owner()
        if not self.run.owned_by(self.attempt) and not counts(manifest, self.run.inventories()):
            raise Fenced(f"a newer attempt began before the checkpoint of step {manifest.step} was complete")

    def _check_owner(self) -> None:
        if not self.run.owned_by(self.attempt):
            raise Fenced(f"attempt {self.run.attempts()[-1]} owns `{self.run.name}`, this one is {self.attempt.number}")
