"""The worker loop, written once for every engine.

Data, accumulation, schedule, metrics, evaluation, checkpoints and resume are here and nowhere else. Every rank runs it.
Ranks agree after each step on all that they must do alike (save, stop) in one small all-reduce; only rank 0 writes
metrics. The loop never asks the device for a value but through the engine's `read`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.plan.batch import Split
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.train.engines import Engine
from raytrain_eks.train.journal import Journal, now
from raytrain_eks.train.schedule import LearningRate
from raytrain_eks.train.watch import Watch


@dataclass(frozen=True, kw_only=True)
class Held:
    """A held-out evaluation."""

    nats_per_token: float
    bits_per_byte: float | None
    """Comparable between tokenizers: all nats over ln 2 and the bytes of the predicted text."""


@dataclass(kw_only=True)
class Progress:
    """Where the run is; all of it lies in every checkpoint."""

    step: int = 0
    """Optimizer steps done."""
    tokens: int = 0
    """Trained tokens so far."""
    held_first: float | None = None
    """Held-out loss before the first step."""
    held_last: float | None = None
    bits_per_byte: float | None = None
    seconds: float = 0.0
    """Seconds of steps, over all attempts, those redone after a crash included."""
    data_seconds: float = 0.0
    """Of these, seconds of waiting for data."""

    def saved(self) -> dict[str, Any]:
        """As plain data for a checkpoint."""
        return dict(vars(self))


@dataclass(kw_only=True)
class Loop:
    """One rank's loop over the optimizer steps of a run."""

    job: Job
    engine: Engine
    stream: Any
    """`next()` gives a `Step`, `state()` the place to go on from."""
    held_out: Any
    """Batches of the held-out rows of this rank, and the bytes that they predict."""
    saver: Any
    split: Split
    rank: int
    steps: int
    """Optimizer steps of the whole run."""
    journal: Journal | None
    """Rank 0's side channel."""
    attempt: int
    watch: Watch
    """Told where this rank is, so that a hang has a name."""
    stop_requested: Callable[[], bool]
    """Whether somebody asked for a last checkpoint and an orderly end; asked on rank 0 only."""
    progress: Progress = field(default_factory=Progress)
    saved_step: int = -1
    saved_at: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.rate = LearningRate.of(self.job, self.steps)
        every = self.job.checkpoint.every
        self.every_steps = every if isinstance(every, int) else None
        self.every_seconds = None if isinstance(every, int) else quantity.seconds(every)
        if self.progress.step:
            self.saved_step = self.progress.step

    def run(self) -> bool:
        """Train to the last step. True: the run is complete; False: it was asked to stop and has saved its state."""
        if self.progress.step == 0:
            held = self.evaluate()
            self.progress.held_first = held.nats_per_token
        while self.progress.step < self.steps:
            stop = self._step()
            due = self._evaluation_due()
            held_now = self.evaluate() if due else None
            if self._save_due or stop or self.progress.step == self.steps:
                self.save(held_now.nats_per_token if held_now else None)
            if stop and self.progress.step < self.steps:
                self.saver.wait()
                self.event("stopped", step=self.progress.step)
                return False
        if self.saved_step != self.progress.step:
            self.save(self.progress.held_last)
        self.saver.wait()
        return True

    def _step(self) -> bool:
        """One optimizer step; whether the ranks agreed to stop after it."""
        began = time.perf_counter()
        self.watch.at("data", self.progress.step)
        drawn = self.stream.next()
        waited = time.perf_counter() - began
        self.watch.at("compute", self.progress.step)
        batches = [self.engine.put(batch) for batch in drawn.micro_batches]
        total = max(drawn.targets, 1)
        losses = [
            self.engine.micro_step(batch, total, last=index == len(batches) - 1) for index, batch in enumerate(batches)
        ]
        rate = self.rate(self.progress.step)
        norm = self.engine.step(rate)
        *values, gradient_norm = self.engine.read(*losses, norm)
        self.watch.at("exchange", self.progress.step)
        summed, save, stop = self.engine.reduce(math.fsum(values), float(self._wants_save()), float(self._wants_stop()))
        self._save_due = save > 0
        took = time.perf_counter() - began
        self.progress.step += 1
        self.progress.tokens += drawn.targets
        self.progress.seconds += took
        self.progress.data_seconds += waited
        self._report(drawn, summed / total, rate, gradient_norm, took, waited)
        return stop > 0

    def _report(self, drawn: Any, loss: float, rate: float, norm: float, took: float, waited: float) -> None:
        if self.journal is None:
            return
        self.journal.add(
            "metrics.jsonl",
            step=self.progress.step,
            loss=loss,
            learning_rate=rate,
            gradient_norm=norm,
            tokens=drawn.targets,
            tokens_total=self.progress.tokens,
            epoch=drawn.epoch,
            first_id=drawn.ids[0] if len(drawn.ids) else None,
            step_seconds=round(took, 6),
            data_seconds=round(waited, 6),
            attempt=self.attempt,
            time=now(),
        )

    def _wants_save(self) -> bool:
        """Rank 0's wish by the clock, every rank's by the step; the ranks add their wishes up."""
        if self.every_steps is not None:
            return (self.progress.step + 1) % self.every_steps == 0
        assert self.every_seconds is not None
        return self.rank == 0 and time.monotonic() - self.saved_at >= self.every_seconds

    def _wants_stop(self) -> bool:
        return self.rank == 0 and self.stop_requested()

    def _evaluation_due(self) -> bool:
        every = self.job.evaluate.every
        return self.progress.step == self.steps or (every is not None and self.progress.step % every == 0)

    def evaluate(self) -> Held:
        """Held-out loss over the same rows at every call."""
        began = time.perf_counter()
        self.watch.at("evaluate", self.progress.step)
        summed = [self.engine.evaluate(batch) for batch in map(self.engine.put, self.held_out.batches)]
        (nats,) = self.engine.reduce(math.fsum(self.engine.read(*summed)) if summed else 0.0)
        held = Held(
            nats_per_token=nats / max(self.held_out.targets, 1),
            bits_per_byte=nats / math.log(2) / self.held_out.bytes if self.held_out.bytes else None,
        )
        self.progress.held_last, self.progress.bits_per_byte = held.nats_per_token, held.bits_per_byte
        told = {"held_out_loss": held.nats_per_token, "bits_per_byte": held.bits_per_byte}
        told["took"] = round(time.perf_counter() - began, 6)
        self.event("evaluated", step=self.progress.step, **told)
        return held

    def save(self, held_out_loss: float | None) -> None:
        """Snapshot the state and let it be written; the loop goes on."""
        began = time.perf_counter()
        self.watch.at("save", self.progress.step)
        meta = {"progress": self.progress.saved(), "data": self.stream.state(), "steps": self.steps}
        self.saver.save(self.progress.step, self.engine.chunks(), meta, loss=held_out_loss)
        self.saved_step, self.saved_at = self.progress.step, time.monotonic()
        self.event("save", step=self.progress.step, stall_seconds=round(time.perf_counter() - began, 6))

    def event(self, name: str, **fields: Any) -> None:
        """Leave an event on the side channel, from rank 0."""
        if self.journal is not None:
            self.journal.add("events.jsonl", event=name, **fields, attempt=self.attempt, time=now())
