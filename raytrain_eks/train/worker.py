"""What one worker process does: build the model, the engine and the stream, restore, run the loop, finish."""

import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.control import refuse


@dataclass(frozen=True, kw_only=True)
class Task:
    """What the driver tells every worker; plain data, since it crosses processes."""

    job: dict[str, Any]
    """The job as written."""
    storage: str
    prepared: str
    """The URL of the prepared data."""
    steps: int
    started: float
    """Wall-clock time at which the driver began."""


def train_worker(task: dict[str, Any]) -> None:
    """The function that TorchTrainer runs on every worker."""
    Worker(Task(**task)).work()


class Worker:
    """One rank of one attempt of a run."""

    def __init__(self, task: Task):
        import ray.train

        context = ray.train.get_context()
        self.rank, self.world = context.get_world_rank(), context.get_world_size()
        self.local_rank, self.local_world = context.get_local_rank(), context.get_local_world_size()
        self.task, self.job = task, Job.parse(task.job)
        self._open()

    def _open(self) -> None:
        import torch

        from raytrain_eks.checkpoint.run import RunFolder
        from raytrain_eks.checkpoint.storage import Storage
        from raytrain_eks.train.journal import Journal
        from raytrain_eks.train.watch import Watch

        if not torch.cuda.is_available():
            # transformers looks for DeepSpeed when it saves a model, and DeepSpeed then looks for accelerators.
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            torch.set_num_threads(max((os.cpu_count() or 1) // self.local_world, 1))
        self.run = RunFolder(Storage.of(self.task.storage), self.job.name)
        self.attempt = self._begin()
        self.stop = False
        self.journal = Journal(self.run.storage, tick=self._watch) if self.rank == 0 else None
        self.watch = Watch(
            self.run.storage,
            attempt=self.attempt.number,
            rank=self.rank,
            world=self.world,
            limit=quantity.seconds(self.job.failures.hang),
            say=self._hung,
        )
        self.event("worker", world=self.world, ranks=self._who())

    def _begin(self) -> Any:
        """Every start of the worker group is an attempt of its own: one rank takes it and tells the others."""
        import torch.distributed as dist

        taken = [self.run.begin() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(taken, src=0)
        return taken[0]

    def _who(self) -> list[dict[str, Any]]:
        """Host and process of every rank, for whoever looks for one."""
        import socket

        import torch.distributed as dist

        found: list[Any] = [{"host": socket.gethostname(), "pid": os.getpid()}]
        if self.world > 1:
            found = found * self.world
            dist.all_gather_object(found, {"host": socket.gethostname(), "pid": os.getpid()})
        return found

    def _hung(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)
        if self.journal is not None:
            self.event("hang", reason=sentence)
            self.journal.flush()

    def _watch(self) -> None:
        from raytrain_eks.train.control import stop_requested

        self.stop = self.stop or stop_requested(self.run)

    def event(self, name: str, **fields: Any) -> None:
        """Leave an event on the side channel, from rank 0."""
        from raytrain_eks.train.journal import now

        if self.journal is not None:
            since = round(time.time() - self.task.started, 3)
            self.journal.add(
                "events.jsonl", event=name, **fields, seconds=since, attempt=self.attempt.number, time=now()
            )

    def _tell(self, event: dict[str, Any]) -> None:
        """An event of the checkpoint's background thread."""
        self.event(event["event"], **{key: value for key, value in event.items() if key != "event"})

    def work(self) -> None:
        """Run the loop, and finish the run when it is complete."""
        try:
            self.watch.start()
            loop = self._build()
            complete = loop.run()
            self.watch.at("finish", loop.progress.step)
            model = loop.engine.full_model() if complete else None
            loop.saver.close()
            loop.stream.close()
            if self.rank == 0:
                self._finish(loop, model, complete)
            loop.engine.close()
        except SpecError as refusal:
            # Starting again would not help: the driver shows it, and Ray need not know of a failure.
            if self.rank == 0:
                refuse(self.run, refusal)
        finally:
            self.watch.close()
            if self.journal is not None:
                self.journal.close()

    def _build(self) -> Any:
        from raytrain_eks.checkpoint.retention import Retention
        from raytrain_eks.checkpoint.save import Saver
        from raytrain_eks.data.prepared import Prepared
        from raytrain_eks.data.stream import Stream, evaluation
        from raytrain_eks.plan.batch import split
        from raytrain_eks.train import engines
        from raytrain_eks.train.loop import Loop
        from raytrain_eks.train.model import build_model, model_config

        job = self.job
        prepared = Prepared.load(self.task.prepared)
        self.tokenizer = prepared.tokenizer()
        model = build_model(job, model_config(job, self.tokenizer))
        self.parameters = sum(weight.numel() for weight in model.parameters())
        self.event("model", parameters=self.parameters)
        shape = split(
            global_sequences=job.global_sequences,
            world=self.world,
            sequence_length=job.data.sequence_length,
            micro=job.batch.micro,
        )
        engine = engines.build(
            job, model, rank=self.rank, world=self.world, micro=shape.micro, accumulation=shape.accumulation
        )
        from raytrain_eks.train.proof import prove_all_reduce

        prove_all_reduce(engine.device, self.world)
        progress, data_state = self._restore(engine)
        keep = Retention(last=job.checkpoint.keep, best=job.checkpoint.keep_best)
        stream = Stream.of(prepared, job, rank=self.rank, world=self.world, micro=shape.micro, state=data_state)
        held_out = evaluation(
            prepared, rank=self.rank, world=self.world, micro=shape.micro, sequences=job.evaluate.sequences
        )
        saver = Saver(self.run, self.attempt, rank=self.rank, world=self.world, keep=keep, tell=self._tell)
        self.event("ready", step=progress.step, split=f"{shape.accumulation} x {shape.micro} x {shape.world}")
        return Loop(
            job=job,
            engine=engine,
            stream=stream,
            held_out=held_out,
            saver=saver,
            split=shape,
            rank=self.rank,
            steps=self.task.steps,
            journal=self.journal,
            attempt=self.attempt.number,
            watch=self.watch,
            stop_requested=lambda: self.stop,
            progress=progress,
        )

    def _restore(self, engine: Any) -> tuple[Any, dict[str, Any] | None]:
        from raytrain_eks.checkpoint.reader import NoSuchTensor
        from raytrain_eks.checkpoint.restore import restore
        from raytrain_eks.train.loop import Progress

        reader = restore(self.run, rank=self.rank, world=self.world)
        if reader is None:
            return Progress(), None
        with reader:
            try:
                engine.load(reader)
            except NoSuchTensor as error:
                fix = "give this run a new `name`, or put the checkpoints of another model away"
                rule = f"{error} ({self.run.url})"
                raise SpecError([Problem(path="model", rule=rule, fix=fix)]) from None
        progress = Progress(**reader.meta["progress"])
        self.event("restored", step=progress.step)
        return progress, reader.meta["data"]

    def _finish(self, loop: Any, model: Any, complete: bool) -> None:
        from raytrain_eks.checkpoint.run import LOSS_CURVE
        from raytrain_eks.train.finish import export, loss_curve, put_folder, samples

        assert self.journal is not None
        self.journal.flush()
        summary = self._summary(loop, complete)
        if model is not None:
            summary["samples"] = samples(self.job, model, self.tokenizer)
            with tempfile.TemporaryDirectory() as folder:
                export(model, self.tokenizer, Path(folder))
                put_folder(self.run.storage, "export", Path(folder))
            summary["export"] = "export"
        curve = loss_curve(self.run.metrics(), list(self.run.lines("events.jsonl")), self.job.name)
        self.run.storage.write(LOSS_CURVE, curve)
        self.run.write_summary(summary)
        self.event("finished", status=summary["status"])

    def _summary(self, loop: Any, complete: bool) -> dict[str, Any]:
        from raytrain_eks.train.goodput import ledger

        progress = loop.progress
        return {
            "name": self.job.name,
            "status": "complete" if complete else "stopped",
            "steps": progress.step,
            "tokens": progress.tokens,
            "parameters": self.parameters,
            "held_out_loss": {"before": progress.held_first, "after": progress.held_last},
            "bits_per_byte": progress.bits_per_byte,
            "tokens_per_second": round(progress.tokens / progress.seconds, 1) if progress.seconds else None,
            "step_seconds": round(progress.seconds, 3),
            "data_wait_share": round(progress.data_seconds / progress.seconds, 5) if progress.seconds else None,
            "workers": self.world,
            "engine": self.job.engine.kind if self.job.engine.kind != "auto" else "torch",
            "attempt": self.attempt.number,
            "seconds": ledger(self.run.lines("metrics.jsonl"), self.run.lines("events.jsonl")),
        }
