"""This machine as a target: `--on local`. A real Ray cluster with a real job server; only its life is special."""

import glob
import sys
from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import replace
from pathlib import Path

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem
from raytrain_eks.submit import places
from raytrain_eks.submit.cluster import RayCluster
from raytrain_eks.submit.head import LOOPBACK, LocalHead, cores
from raytrain_eks.submit.jobserver import CHUNK, JobServer
from raytrain_eks.submit.target import JobState, Phase, Say, Stream, Submission


class Local(RayCluster):
    """The head of this machine; follows the protocol `Target`. Making one touches nothing."""

    shares_files = True
    python = sys.executable

    def __init__(self) -> None:
        self.head = LocalHead()
        found = self.head.remembered()
        # Port 9 (discard) stands for "no head": whoever asks gets Unreachable, with a sentence of its own below.
        url = found.url if found is not None else f"http://{LOOPBACK}:9"
        super().__init__(JobServer(url, token=self.head.token()))
        self.name = "local"
        self.known = found

    def check(self, job: Job) -> Iterator[Problem]:
        """More workers than CPUs."""
        wanted, there = job.workers.count, cores()
        if wanted is not None and wanted > there:
            yield Problem(
                path="workers.count",
                value=str(wanted),
                rule=f"this machine has {there} CPU{'s' if there != 1 else ''}, and a worker needs one",
                fix=f"write at most {there}, or submit to a cluster: --on http://HEAD:8265",
            )

    def prepare(self, say: Say) -> None:
        """Start the head when there is none that can be used."""
        self.known = self.head.ensure(say)
        self.server = self.known.server(token=self.head.token())

    def submit(self, submission: Submission, say: Say) -> str:
        """Start the driver; workers are told which of the clusters on this machine is theirs."""
        assert self.known is not None
        address = {"RAY_ADDRESS": self.known.gcs}
        return super().submit(replace(submission, environment=submission.environment | address), say)

    def jobs(self) -> list[JobState]:
        """Jobs of the head; none without one."""
        return super().jobs() if self._up() else []

    def job(self, id: str) -> JobState | None:
        """The job; None without a head."""
        return super().job(id) if self._up() else None

    def stop(self, id: str) -> bool:
        """Ask the driver to save and end; without a head everything is over."""
        return super().stop(id) if self._up() else False

    def past(self, id: str) -> JobState | None:
        """A job of a head that has ended: its log is still on the disk."""
        return JobState(id=id, phase=Phase.FAILED, message="its Ray has ended") if self._old_log(id) else None

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream:
        """The driver's log; from the disk when its head is gone."""
        if state.node is not None and self._up():
            return super().log(state, skip=skip, follow=follow, last=last)
        path = self._old_log(state.id)
        return _nothing() if path is None else _content(path, skip, last)

    @staticmethod
    def _old_log(id: str) -> Path | None:
        """The file that a job's driver wrote; None when it is gone as well."""
        return next(places.ray_folder().glob(f"session_2*/logs/job-driver-{glob.escape(id)}.log"), None)

    def lost(self) -> str | None:
        """The head that ran the jobs is gone, and they with it."""
        now = self.head.remembered()
        if self.known is None or (now is not None and now.id != self.known.id):
            return "the local Ray was started anew"
        why = self.known.dead()
        return f"the local Ray is gone: {why}" if why is not None else None

    def _up(self) -> bool:
        """Whether the head lives. One that lives and does not answer makes its caller Unreachable."""
        return self.known is not None and self.known.dead() is None


def _content(path: Path, skip: int, last: int | None) -> Generator[bytes, None, None]:
    """A file after its first `skip` bytes, or its `last` lines."""
    with path.open("rb") as file:
        if last is not None:
            yield b"".join(deque(file, maxlen=last))
            return
        file.seek(skip)
        while chunk := file.read(CHUNK):
            yield chunk


def _nothing() -> Generator[bytes, None, None]:
    yield from ()
