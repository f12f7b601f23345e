"""The driver of a run: what `ray job submit` starts. It claims the run, prepares the data, trains, and sums up.

It runs inside a Ray job, or in any Python that reaches a Ray cluster, or alone, when Ray starts on this machine. Talk
goes to stdout, since a Ray job has one log. Exit codes: 0 done (or asked to stop, with its state saved), 1 failed,
3 the file or its surroundings cannot be used.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import raytrain_eks
from raytrain_eks.plan.batch import steps_of
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train import loggers
from raytrain_eks.train.accepted import check_model
from raytrain_eks.train.control import clear, refusal, request_stop
from raytrain_eks.train.trainer import Planned


def say(text: str) -> None:
    """One line of the job's log, at once."""
    print(text, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run a job file and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="train.py", description="Train what a job file says, on the Ray cluster here."
    )
    parser.add_argument("job", help="the job file")
    parser.add_argument("--storage", help="folder or s3:// URL that holds run folders; overrides the file's")
    parser.add_argument("--resume", action="store_true", help="go on with the run even if the file has changed")
    parser.add_argument("--tiny", action="store_true", help="a dry run: the same job in small, on whatever is here")
    parser.add_argument("--workers", type=Planned.parse, help="as the cluster's plan counts them, such as 32xGPU")
    parser.add_argument("--client", help="the version of raytrain-eks that submitted; one that does not fit is refused")
    given = parser.parse_args(arguments)
    started = time.time()

    def work() -> int:
        check_client(given.client)
        job, storage = load(given.job, expect="Job"), given.storage
        if given.tiny:
            from raytrain_eks.train.dry_run import dry_run

            cluster = connect()
            job, storage = dry_run(job, storage, cluster=cluster, say=say)
        return Driver(job, storage, resume=given.resume, started=started, planned=given.workers).drive()

    return ended(work)


def ended(work: Callable[[], int]) -> int:
    """The exit code of a driver's work: its own, or 3 with a message where file or surroundings cannot be used."""
    try:
        return work()
    except SpecError as error:
        print(error, file=sys.stderr, flush=True)
        print("nothing was started", file=sys.stderr, flush=True)
        return 3
    except OSError as error:
        if error.filename is None:
            raise
        print(f"{os.fspath(error.filename)}: {error.strerror}", file=sys.stderr, flush=True)
        return 3


def check_client(version: str | None) -> None:
    """Raises SpecError when another minor version submitted the job than the image has, which runs it."""
    mine = raytrain_eks.__version__
    if version is not None and version.split(".")[:2] != mine.split(".")[:2]:
        rule = f"the image has raytrain-eks {mine}, and {version} submitted the job"
        fix = f"install raytrain-eks {mine} where you submit, build a new image, or submit without --code image"
        raise SpecError([Problem(path="raytrain-eks", value=version, rule=rule, fix=fix)])


def connect() -> dict[str, float]:
    """Connect this process to the Ray that it is in, or start one; the resources of the cluster."""
    import logging

    from raytrain_eks.train.trainer import environment

    environment()
    import ray

    if not ray.is_initialized():
        ray.init(logging_level=logging.WARNING, log_to_driver=True)
    # The cluster that this driver is in, said explicitly: another one may be on the same machine.
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    return dict(ray.cluster_resources())


def run_steps(job: Job, prepared: Any) -> int:
    """Optimizer steps of the whole run: the first of the stop conditions that holds."""
    told = steps_of(job)
    limits = [] if told is None else [told]
    if job.stop.epochs is not None:
        limits.append(prepared.steps(job.stop.epochs, job.global_sequences))
    return min(limits)


def anywhere(job: Job) -> Job:
    """The job with its local folders as absolute paths: workers run in a folder of their own."""
    changed: dict[str, Any] = {}
    for field in ("model", "tokenizer"):
        part = getattr(job, field)
        if part is not None and part.name is not None and Path(os.path.expanduser(part.name)).is_dir():
            name = str(Path(os.path.expanduser(part.name)).absolute())
            changed[field] = part.model_copy(update={"name": name})
    return job.model_copy(update=changed)


class Driver:
    """One attempt of a run, from the driver's side."""

    def __init__(self, job: Job, storage: str | None, *, resume: bool, started: float, planned: Planned | None = None):
        from raytrain_eks.checkpoint.default import default_storage
        from raytrain_eks.checkpoint.run import RunFolder
        from raytrain_eks.checkpoint.storage import Storage

        self.job, self.resume, self.started, self.planned = job, resume, started, planned
        self.training = False
        self.storage = Storage.of(storage or job.storage or default_storage())
        self.run = RunFolder(self.storage, job.name)

    def drive(self) -> int:
        """Claim, prepare, train, sum up; the exit code."""
        from raytrain_eks.train.model import check_folder
        from raytrain_eks.train.trainer import workers

        check_folder(self.job)
        loggers.check(self.job)
        self._bring_back()
        self._check_run()
        workers(self.job, connect(), self.planned)
        # After Ray, which takes the signal for itself when it connects.
        signal.signal(signal.SIGTERM, lambda *_: self._ask_to_stop())
        prepared = self._prepare()
        steps = run_steps(self.job, prepared)
        done = self._completed_steps()
        if done >= steps:
            say(f"{self.job.name} is already complete, {done} steps: {self.run.url}")
            say("to extend it, raise `stop`; for a new run, give the file another `name`")
            return 0
        check_model(self.job, prepared)
        self.run.open(self.job, accept_changes=self.resume)
        clear(self.run)
        say(f"run {self.job.name}, {steps} steps: {self.run.url}")
        return self._train(prepared, steps)

    def _bring_back(self) -> None:
        """A run whose folder is gone is known again from its mirror; its checkpoint comes when it is restored."""
        from raytrain_eks.checkpoint.of_job import bring_back

        if bring_back(self.run, self.job.checkpoint, say=say):
            say(f"{self.job.name} was brought back from {self.job.checkpoint.mirror}")

    def _check_run(self) -> None:
        """Refuse what would change the result of a run that is here; find out early that storage takes no files."""
        if not self.resume and (problems := self.run.differences(self.job)):
            raise SpecError(problems)
        self.storage.check_writable()

    def _completed_steps(self) -> int:
        """Steps of the run that is here if it was completed, else 0."""
        summary = self.run.summary() or {}
        return int(summary.get("steps", 0)) if summary.get("status") == "complete" else 0

    def _prepare(self) -> Any:
        from raytrain_eks.data.prepare import prepare

        began = time.monotonic()
        prepared = prepare(self.job, self.storage, say=say)
        what = "it is packed while training runs"
        if not prepared.on_the_fly:
            what = f"{prepared.sequences} training sequences"
        say(f"data ready after {time.monotonic() - began:.1f} s: {what}")
        return prepared

    def _train(self, prepared: Any, steps: int) -> int:
        from ray.train import TrainingFailedError

        from raytrain_eks.checkpoint.run import EVENTS, METRICS
        from raytrain_eks.train.progress import Follower
        from raytrain_eks.train.tail import Tail
        from raytrain_eks.train.trainer import trainer
        from raytrain_eks.train.worker import Task

        task = Task(
            job=anywhere(self.job).written(),
            storage=self.storage.url,
            prepared=prepared.url,
            steps=steps,
            started=self.started,
        )
        fitted = trainer(self.job, vars(task), self.planned)
        self.training = True
        news = [Tail(self.run.storage, name) for name in (METRICS, EVENTS)]
        try:
            with Follower(lambda: [line for tail in news for line in tail()], steps, say):
                fitted.fit()
        except TrainingFailedError as error:
            return self._failed(error)
        if (refused := refusal(self.run)) is not None:
            raise refused
        return self._sum_up()

    def _ask_to_stop(self) -> None:
        if not self.training:
            say("asked to stop before training began; what was prepared stays")
            raise SystemExit(0)
        say("asked to stop: saving a last checkpoint")
        request_stop(self.run)

    def _failed(self, error: Any) -> int:
        refused = getattr(error, "controller_failure", None)
        if isinstance(refused, SpecError):
            # The backend refused before any worker began.
            raise refused
        say(f"{self.job.name} failed: {error}")
        say(f"to go on from the last checkpoint: raytrain-eks resume {self.job.name}")
        return 1

    def _sum_up(self) -> int:
        summary = self.run.summary() or {}
        held = summary.get("held_out_loss") or {}
        say(f"{self.job.name} {summary.get('status')}: {summary.get('steps')} steps, {summary.get('tokens')} tokens")
        if held.get("before") is not None and held.get("after") is not None:
            told = f"held-out loss {held['before']:.4f} before, {held['after']:.4f} after"
            bits = summary.get("bits_per_byte")
            say(told + (f", {bits:.4f} bits per byte" if bits is not None else ""))
        for sample in summary.get("samples", []):
            say(f"--- {sample['prompt']!r} goes on as")
            say(sample["prompt"] + sample["text"])
        say(f"everything is in {self.run.url}")
        return 0
