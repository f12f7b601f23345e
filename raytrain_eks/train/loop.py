"""The worker loop, written once for every engine.

Data, accumulation, schedule, metrics, evaluation, checkpoints and resume are here and nowhere else. Every rank runs it.
Ranks agree after each step on all that they must do alike (save, stop) in one small all-reduce; only rank 0 writes
metrics. The loop never asks the device for a value but through the engine's `read`.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from raytrain_eks.plan.batch import Split
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.train.engines import Engine
from raytrain_eks.train.guard import Sentry
from raytrain_eks.train.journal import Journal, now
from raytrain_eks.train.lora import BASE
from raytrain_eks.train.masking import Masking
from raytrain_eks.train.profile import Profiler
from raytrain_eks.train.schedule import LearningRate
from raytrain_eks.train.watch import Watch

AGAIN = 30.0
"""Seconds between checkpoints once a machine of the group will be taken away: so much is lost with it at most."""


class Spoilt(RuntimeError):
    """Steps were refused again and again; going back did not help."""


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


class Pilot(Protocol):
    """Who follows a run from beside it, and says on a few steps whether it goes on. Told and asked on rank 0 only."""

    def waits(self, step: int) -> bool:
        """Whether the run waits for the word after this step; the same on every rank."""

    def stepped(self, progress: Progress, loss: float) -> None:
        """A step was done, with its training loss; returns at once."""

    def evaluated(self, progress: Progress) -> None:
        """Held-out loss was measured; returns at once."""

    def goes_on(self, progress: Progress) -> bool:
        """The word, for which the run stands still; its state is saved."""


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
    sentry: Sentry
    """Judges each step; the same verdict on every rank."""
    rewind: Callable[[], Progress | None]
    """Loads the newest checkpoint into the engine; None when there is none."""
    speed: Callable[[int, float], dict[str, float]]
    """Tokens and seconds of a step -> what is reported of its speed."""
    steps: int
    """Optimizer steps of the whole run."""
    journal: Journal | None
    """Rank 0's side channel."""
    attempt: int
    masking: Masking | None = None
    """Hides tokens of each step, for a masked language model."""
    base: dict[str, str] | None = None
    """What checkpoints say of frozen weights, which they do not hold."""
    watch: Watch
    """Told where this rank is, so that a hang has a name."""
    profiler: Profiler
    """Traces the steps that the job asks for."""
    stop_requested: Callable[[], bool]
    """Whether somebody asked for a last checkpoint and an orderly end; asked on rank 0 only."""
    reclaimed: Callable[[], bool] = lambda: False
    """Whether a machine will be taken away, as far as this rank was told; asked on every rank."""
    pilot: Pilot | None = None
    """None: nobody is asked."""
    progress: Progress = field(default_factory=Progress)
    saved_step: int = -1
    _save_due: bool = False
    _rewind_due: bool = False
    _reclaimed: bool = False
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
        elif self._gate() and not self._let_on():
            # It died while it waited for the word.
            return False
        while self.progress.step < self.steps:
            self.profiler.before(self.progress.step + 1)
            stop = self._step()
            if self.profiler.after(self.progress.step):
                self.event("profiled", step=self.progress.step, file=self.profiler.path)
            if self._rewind_due:
                self._go_back()
                continue
            held_now = self.evaluate() if self._evaluation_due() else None
            # While steps are refused the state may be spoilt already: the checkpoint to go back to stays the newest.
            due = self._save_due and not self.sentry.bad_in_a_row
            if due or stop or self.progress.step == self.steps or self._gate():
                self.save(held_now.nats_per_token if held_now else None)
            stop = stop or (self._gate() and not self._let_on())
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
        if self.masking is not None:
            drawn = self.masking.of_step(drawn, self.progress.step, self.engine.reduce)
        self.engine.seed(self.job.seed, self.progress.step)
        batches = [self.engine.put(batch) for batch in drawn.micro_batches]
        total = max(drawn.targets, 1)
        losses = [
            self.engine.micro_step(batch, total, last=index == len(batches) - 1) for index, batch in enumerate(batches)
        ]
        values = self.engine.read(*losses)
        self.watch.at("exchange", self.progress.step)
        wishes = (self._wants_save(), self._wants_stop(), self.reclaimed())
        summed, save, stop, reclaimed = self.engine.reduce(math.fsum(values), *map(float, wishes))
        self._heed(save > 0, reclaimed > 0)
        computed = time.perf_counter() - began - waited
        rate = self.rate(self.progress.step)
        norm, refused = self._apply(summed / total, rate, drawn)
        took = time.perf_counter() - began
        self.progress.step += 1
        self.progress.tokens += drawn.targets
        self.progress.seconds += took
        self.progress.data_seconds += waited
        if self.pilot is not None and self.rank == 0:
            self.pilot.stepped(self.progress, summed / total)
        if self.journal is not None:
            self.journal.add(
                "metrics.jsonl",
                step=self.progress.step,
                loss=summed / total,
                learning_rate=rate,
                gradient_norm=norm,
                tokens=drawn.targets,
                tokens_total=self.progress.tokens,
                epoch=drawn.epoch,
                first_id=drawn.ids[0] if len(drawn.ids) else None,
                step_seconds=round(took, 6),
                data_seconds=round(waited, 6),
                compute_seconds=round(computed, 6),
                optimizer_seconds=round(took - computed - waited, 6),
                **self.speed(drawn.targets, took),
                **({"refused": refused} if refused else {}),
                attempt=self.attempt,
                time=now(),
            )
        return stop > 0

    def _heed(self, save: bool, reclaimed: bool) -> None:
        """Whether a checkpoint is due after this step: one was wished for, or a machine is taken back, told of once."""
        fresh = reclaimed and not self._reclaimed
        self._save_due = save or fresh
        if fresh:
            self._reclaimed = True
            self.event("reclaimed", step=self.progress.step + 1)

    def _apply(self, loss: float, rate: float, drawn: Any) -> tuple[float, str | None]:
        """The optimizer step, unless guard or gradients forbid it: the gradient norm, and why it was refused."""
        refused = self.sentry.verdict(loss)
        if refused is None:
            (norm,) = self.engine.read(self.engine.step(rate))
            if math.isfinite(norm):
                self.sentry.applied(loss)
                return norm, None
            refused = f"its gradient norm is {norm}"
        else:
            norm = math.nan
            self.engine.skip()
        self._rewind_due = self.sentry.stopped()
        self.event("refused", step=self.progress.step + 1, reason=refused, epoch=drawn.epoch, ids=list(drawn.ids))
        return norm, refused

    def _go_back(self) -> None:
        """Back to the last checkpoint, its steps to be done again with the data that comes next.

        Raises Spoilt when that has happened too often, or there is no checkpoint to go back to.
        """
        self._rewind_due = False
        at = self.progress.step
        self.saver.wait()
        progress = None if self.sentry.spent else self.rewind()
        if progress is None:
            why = "it went back as often as it may" if self.sentry.spent else "there is no checkpoint to go back to"
            raise Spoilt(f"{self.sentry.rule.in_a_row} steps in a row were refused at step {at}, and {why}")
        # The time and the data that were spent stay spent.
        progress.seconds, progress.data_seconds = self.progress.seconds, self.progress.data_seconds
        self.progress, self.saved_step = progress, progress.step
        self.event("rewound", step=at, to=progress.step)
        # So that a crash does not bring the refused data back.
        self.save(None)

    def _wants_save(self) -> bool:
        """Rank 0's wish by the clock, every rank's by the step; the ranks add their wishes up."""
        since = time.monotonic() - self.saved_at
        if self._reclaimed and self.rank == 0 and since >= AGAIN:
            return True
        if self.every_steps is not None:
            return (self.progress.step + 1) % self.every_steps == 0
        assert self.every_seconds is not None
        return self.rank == 0 and since >= self.every_seconds

    def _wants_stop(self) -> bool:
        return self.rank == 0 and self.stop_requested()

    def _evaluation_due(self) -> bool:
        every = self.job.evaluate.every
        asked = every is not None and self.progress.step % every == 0
        return self.progress.step == self.steps or asked or self._gate()

    def _gate(self) -> bool:
        """Whether the run waits for its pilot's word after this step; never at its end."""
        return self.pilot is not None and self.progress.step < self.steps and self.pilot.waits(self.progress.step)

    def _let_on(self) -> bool:
        """The pilot's word, once the checkpoint of this step is whole; the same on every rank."""
        assert self.pilot is not None
        self.saver.wait()
        self.watch.at("word", self.progress.step)
        (refused,) = self.engine.reduce(float(self.rank == 0 and not self.pilot.goes_on(self.progress)))
        return refused == 0

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
        if self.pilot is not None and self.rank == 0:
            self.pilot.evaluated(self.progress)
        told = {"held_out_loss": held.nats_per_token, "bits_per_byte": held.bits_per_byte}
        told["took"] = round(time.perf_counter() - began, 6)
        self.event("evaluated", step=self.progress.step, **told)
        return held

    def save(self, held_out_loss: float | None) -> None:
        """Snapshot the state and let it be written; the loop goes on."""
        began = time.perf_counter()
        self.watch.at("save", self.progress.step)
        meta = {"progress": self.progress.saved(), "data": self.stream.state(), "steps": self.steps, BASE: self.base}
        meta["guard"] = self.sentry.saved()
        if self.journal is not None:
            # A step that a checkpoint holds is never done again: its line must not be lost with this process.
            self.journal.flush()
        self.saver.save(self.progress.step, self.engine.chunks(), meta, loss=held_out_loss)
        self.saved_step, self.saved_at = self.progress.step, time.monotonic()
        self.event("save", step=self.progress.step, stall_seconds=round(time.perf_counter() - began, 6))

    def event(self, name: str, **fields: Any) -> None:
        """Leave an event on the side channel, from rank 0."""
        if self.journal is not None:
            self.journal.add("events.jsonl", event=name, **fields, attempt=self.attempt, time=now())
