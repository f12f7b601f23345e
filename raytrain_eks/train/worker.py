"""What one worker process does: build the model, the engine and the stream, restore, run the loop, finish."""

import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.control import refuse

if TYPE_CHECKING:
    from raytrain_eks.train.loop import Pilot


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


@dataclass(frozen=True, kw_only=True)
class Place:
    """Which of the worker processes one is; the process group is joined already."""

    rank: int
    world: int
    local_rank: int
    threads: int
    """CPU threads that torch may use, where there is no GPU."""


def train_worker(task: dict[str, Any]) -> None:
    """The function that TorchTrainer runs on every worker."""
    import ray.train

    context = ray.train.get_context()
    place = Place(
        rank=context.get_world_rank(),
        world=context.get_world_size(),
        local_rank=context.get_local_rank(),
        threads=max((os.cpu_count() or 1) // context.get_local_world_size(), 1),
    )
    Worker(Task(**task), place).work()


class Worker:
    """One rank of one attempt of a run."""

    def __init__(self, task: Task, place: Place, pilot: "Pilot | None" = None):
        self.rank, self.world, self.local_rank, self.threads = place.rank, place.world, place.local_rank, place.threads
        self.task, self.job, self.pilot = task, Job.parse(task.job), pilot
        self._open()

    def _open(self) -> None:
        import torch

        from raytrain_eks.checkpoint.run import RunFolder
        from raytrain_eks.checkpoint.storage import Storage
        from raytrain_eks.train.allocator import keep_freed_memory
        from raytrain_eks.train.journal import Journal
        from raytrain_eks.train.loggers import Loggers
        from raytrain_eks.train.notice import Notice
        from raytrain_eks.train.watch import Watch

        if not torch.cuda.is_available():
            # transformers looks for DeepSpeed when it saves a model, and DeepSpeed then looks for accelerators.
            os.environ.setdefault("DS_ACCELERATOR", "cpu")
            torch.set_num_threads(self.threads)
            keep_freed_memory()
        self.run = RunFolder(Storage.of(self.task.storage), self.job.name)
        self.attempt = self._begin()
        self.stop = False
        self.journal = self.loggers = None
        if self.rank == 0:
            self.loggers = Loggers(self.job, self.run.storage.folder, self.attempt.number)
            self.journal = Journal(self.run.storage, tick=self._watch, listen=self.loggers.add)
        self.watch = Watch(
            self.run.storage,
            attempt=self.attempt.number,
            rank=self.rank,
            world=self.world,
            limit=quantity.seconds(self.job.failures.hang),
            say=self._hung,
            compiles=self.job.engine.kind == "xla",
        )
        self.notice = Notice(watch_machine=self.local_rank == 0, say=self._reclaimed)
        self.event("worker", world=self.world, ranks=self._who())

    def _begin(self) -> Any:
        """Every start of the worker group is an attempt of its own: one rank takes it and tells the others."""
        import torch.distributed as dist

        taken = [self.run.begin() if self.rank == 0 else None]
        if self.world > 1:
            dist.broadcast_object_list(taken, src=0)
        return taken[0]

    def _who(self) -> list[dict[str, Any]]:
        """Host, Ray node and process of every rank, for whoever looks for one."""
        import socket

        import ray
        import torch.distributed as dist

        mine = {"host": socket.gethostname(), "pid": os.getpid(), "node": ray.get_runtime_context().get_node_id()}
        found: list[Any] = [mine]
        if self.world > 1:
            found = found * self.world
            dist.all_gather_object(found, mine)
        return found

    def _hung(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)
        if self.journal is not None:
            self.event("hang", reason=sentence)
            self.journal.flush()

    def _reclaimed(self, reason: str) -> None:
        print(f"rank {self.rank}: {reason}; a checkpoint is made at once", file=sys.stderr, flush=True)

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

    def tell(self, event: dict[str, Any]) -> None:
        """An event of the checkpoint's background thread."""
        self.event(event["event"], **{key: value for key, value in event.items() if key != "event"})

    def work(self) -> None:
        """Run the loop, and finish the run when it is complete."""
        from raytrain_eks.train.assembly import assemble

        try:
            self.watch.start()
            parts = assemble(self)
            loop = parts.loop
            complete = loop.run()
            self.watch.at("finish", loop.progress.step)
            model = loop.engine.full_model() if complete else None
            loop.saver.close()
            loop.stream.close()
            if self.rank == 0:
                self._finish(parts, model, complete)
            loop.engine.close()
        except SpecError as refusal:
            # Starting again would not help: the driver shows it, and Ray need not know of a failure.
            if self.rank == 0:
                refuse(self.run, refusal)
        finally:
            self.watch.close()
            self.notice.close()
            if self.journal is not None and self.loggers is not None:
                self.journal.close()
                self.loggers.close()

    def _finish(self, parts: Any, model: Any, complete: bool) -> None:
        from raytrain_eks.checkpoint.run import LOSS_CURVE
        from raytrain_eks.train.finish import export, loss_curve, put_folder, samples

        assert self.journal is not None
        self.journal.flush()
        summary = self._summary(parts, complete)
        if model is not None:
            summary["samples"] = samples(self.job, model, parts.tokenizer)
            with tempfile.TemporaryDirectory() as folder:
                export(model, parts.tokenizer, Path(folder))
                put_folder(self.run.storage, "export", Path(folder))
            summary["export"] = "export"
        curve = loss_curve(self.run.metrics(), list(self.run.lines("events.jsonl")), self.job.name)
        self.run.storage.write(LOSS_CURVE, curve)
        self.run.write_summary(summary)
        self.event("finished", status=summary["status"])

    def _summary(self, parts: Any, complete: bool) -> dict[str, Any]:
        from raytrain_eks.train.goodput import ledger

        progress = parts.loop.progress
        return {
            "name": self.job.name,
            "status": "complete" if complete else "stopped",
            "steps": progress.step,
            "tokens": progress.tokens,
            "parameters": parts.parameters,
            "held_out_loss": {"before": progress.held_first, "after": progress.held_last},
            "bits_per_byte": progress.bits_per_byte,
            "tokens_per_second": round(progress.tokens / progress.seconds, 1) if progress.seconds else None,
            "step_seconds": round(progress.seconds, 3),
            "data_wait_share": round(progress.data_seconds / progress.seconds, 5) if progress.seconds else None,
            "workers": self.world,
            "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "engine": self.job.engine.kind if self.job.engine.kind != "auto" else "torch",
            "attempt": self.attempt.number,
            "seconds": ledger(self.run.lines("metrics.jsonl"), self.run.lines("events.jsonl")),
        }
