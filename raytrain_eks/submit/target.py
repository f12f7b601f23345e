"""What a submission needs from the place it goes to. One protocol for this machine, a Ray cluster and Kubernetes."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem
from raytrain_eks.submit.package import Package

if TYPE_CHECKING:
    from raytrain_eks.submit.assemble import JobFile

Say = Callable[[str], None]
"""Takes one line of talk; the caller decides where it goes."""


class Phase(Enum):
    """Where a job is, in the words of Ray's job server."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    STOPPED = "STOPPED"

    @property
    def over(self) -> bool:
        """Whether the job will never run again."""
        return self in (Phase.SUCCEEDED, Phase.FAILED, Phase.STOPPED)


@dataclass(frozen=True, kw_only=True)
class JobState:
    """A job as its target sees it."""

    id: str
    phase: Phase
    exit_code: int | None = None
    """The driver's own; negative: the signal that killed it. None while it runs, and when it never started."""
    message: str = ""
    entrypoint: str = ""
    metadata: dict[str, str] = field(default_factory=dict)
    started: float | None = None
    """Seconds since the epoch."""
    ended: float | None = None
    node: str | None = None
    """The node that the driver, and so its log, is on."""
    ran: bool = False
    """Whether the target knows that the driver has begun, where `exit_code` does not tell."""

    @property
    def run(self) -> str | None:
        """The run that the job is an attempt of, where the submitter said it."""
        return self.metadata.get(RUN)


RUN = "raytrain_run"
STORAGE = "raytrain_storage"
"""Keys of a job's metadata."""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """What a cluster runs."""

    ray: str
    python: str | None
    """None when the cluster does not tell."""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """A job that is ready to go anywhere."""

    id: str
    """Unique on the target; begins with the run's name."""
    run: str
    job_file: str
    """Its name in the package."""
    script: str | None
    """The driver's name in the package; None: the driver of raytrain-eks itself."""
    options: tuple[str, ...]
    """Words for the driver, unquoted, each as it must see it."""
    folder: str
    """Where the person is. The driver works there on targets that share this machine's files."""
    package: Package
    """The working directory of the driver, and with it of every worker."""
    environment: dict[str, str]
    """Variables of every process of the job. Never secrets: job servers show them."""
    metadata: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of a job, on targets that have pods."""

    name: str
    role: str
    """`head`, the worker group's name, or `submit`."""
    phase: str
    """As Kubernetes says it; `Starting` and `Ending` for pods that run but are not or no longer whole."""
    node: str | None = None
    restarts: int = 0
    why: str | None = None
    """What keeps it, as a sentence."""


@dataclass(frozen=True, kw_only=True)
class Details:
    """What a target knows of a job beyond its state."""

    pods: tuple[Pod, ...] = ()
    why: tuple[str, ...] = ()
    """Why it does not run, or has failed; sentences."""


@dataclass(frozen=True, kw_only=True)
class RankPlace:
    """Where one worker process is."""

    rank: int
    node: str
    """The id of its Ray node."""
    pid: int


class Placement(Protocol):
    """What a target reads of a job before anything else about it is decided."""

    @property
    def default_storage(self) -> str | None:
        """Where runs go when neither the file nor the command says."""

    def storage_problems(self, storage: str) -> Iterator[Problem]:
        """What is wrong with a storage there."""


class Stream(Protocol):
    """Bytes as they come. `close` may be called from another thread and ends the one that waits."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Target(Protocol):
    """A place that runs jobs. Every method but `check` may raise Unreachable or NotAllowed."""

    name: str
    """What `--on` says."""

    shares_files: bool
    """Whether a path of this machine means the same file there."""

    def check(self, job: Job) -> Iterator[Problem]:
        """What this target can never run, found before anything starts. Paths are of the job's tree."""

    def place(self, file: "JobFile", folder: Path) -> Placement | None:
        """Read what the job says about its place, relative to `folder`. None: nothing that this target needs. Raises
        SpecError."""

    def access(self) -> dict[str, str]:
        """What `open_target` needs beside the name to reach it again; no secrets."""

    def prepare(self, say: Say) -> None:
        """Make it ready to take jobs. Raises Incompatible when it runs what this machine cannot talk to."""

    def submit(self, submission: Submission, say: Say) -> str:
        """Start the job and return its id."""

    def job(self, id: str) -> JobState | None:
        """The job, None when the target does not know it."""

    def jobs(self) -> list[JobState]:
        """All jobs that it knows, oldest first."""

    def stop(self, id: str) -> bool:
        """Ask the driver to save and end; it is killed when it does not within `STOP_GRACE_S`. False: it was over."""

    def end(self, id: str) -> bool:
        """End the job without asking. False: it was over, or there is none."""

    def kept(self, run: str, storage: str | None) -> "JobFile | None":
        """The job file of a run's newest job, where the target keeps it."""

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream:
        """The bytes of the driver's log after the first `skip`, or its `last` lines; with `follow` without an end. A
        connection that drops raises Unreachable."""

    def rank_log(
        self, state: JobState, rank: "RankPlace", *, skip: int = 0, follow: bool = False, last: int | None = None
    ) -> Stream:
        """The bytes of one rank's own output, as `log`. Raises NotFound when its process or its node is gone."""

    def details(self, id: str) -> Details:
        """Pods and reasons of a job; empty on targets that have none."""

    def past(self, id: str) -> JobState | None:
        """A job that the target no longer knows, but whose log it still has; None for every other."""

    def lost(self) -> str | None:
        """Why jobs here are gone for good, as a sentence; None while they may go on."""

    def address(self, id: str) -> str | None:
        """Where a browser shows the job; None when nowhere."""


STOP_GRACE_S = 120
"""How long a driver may take to save a last checkpoint when it is asked to stop."""


def state_of(details: dict[str, Any]) -> JobState:
    """A job out of the REST API's JobDetails. Times there are milliseconds."""
    seconds = {key: details[key] / 1000 if details.get(key) else None for key in ("start_time", "end_time")}
    return JobState(
        id=details.get("submission_id") or details.get("job_id") or "",
        phase=Phase(details["status"]),
        exit_code=details.get("driver_exit_code"),
        message=details.get("message") or "",
        entrypoint=details.get("entrypoint") or "",
        metadata=details.get("metadata") or {},
        started=seconds["start_time"],
        ended=seconds["end_time"],
        node=details.get("driver_node_id"),
    )
