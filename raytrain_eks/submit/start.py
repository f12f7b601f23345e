"""A job from its file to its target, what came of its run, and its end: what the command line and Python have in
common, so that both take every decision in the same order. Nothing here prints."""

import time
from dataclasses import dataclass
from pathlib import Path

from raytrain_eks.checkpoint.default import default_storage
from raytrain_eks.checkpoint.run import JOB, RunFolder
from raytrain_eks.submit import assemble, registry
from raytrain_eks.submit.assemble import JobFile
from raytrain_eks.submit.errors import NotFound
from raytrain_eks.submit.package import LIMIT
from raytrain_eks.submit.registry import Record
from raytrain_eks.submit.run_status import job_of
from raytrain_eks.submit.target import STOP_GRACE_S, STORAGE, JobState, Say, Submission, Target
from raytrain_eks.tune.history import FILE as SWEEP

STOP_S = STOP_GRACE_S + 15
"""Seconds after which a job that was asked to stop should have stopped, or have been killed."""
LOOK_S = 0.3
"""Seconds between two looks at a job that is about to stop."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A job that a target has taken."""

    run: str
    id: str
    on: str
    storage: str
    """Folder or URL of run folders, as the driver was told."""
    address: str | None
    """Where a browser shows the job."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a person wants a job to be sent."""

    folder: Path
    """Where the person is: relative paths of the job file start here."""
    working_dir: Path
    """What travels with the job."""
    storage: str | None = None
    """Wins over the file's."""
    resume: bool = False
    """Go on with the run even if the file has changed."""
    limit: int = LIMIT
    """Bytes of the working directory at most."""


def start(file: JobFile, target: Target, wish: Wish, say: Say) -> Started:
    """Check, pack, start and remember. Raises SpecError with every problem of the file, and TargetError for everything
    else that stops it."""
    submission = ready(file, target, wish, say)
    target.prepare(say)
    assemble.refuse_twice(submission, target)
    id = target.submit(submission, say)
    place = submission.metadata[STORAGE]
    registry.remember(
        Record(
            run=submission.run,
            on=target.name,
            id=id,
            storage=place,
            folder=str(wish.folder),
            working_dir=str(wish.working_dir.resolve()),
            access=target.access(),
        )
    )
    return Started(run=submission.run, id=id, on=target.name, storage=place, address=target.address(id))


def ready(file: JobFile, target: Target, wish: Wish, say: Say) -> Submission:
    """What `start` would send: checked and packed, nothing started. Raises as `start`."""
    known = target.place(file, wish.folder)
    shared = known.default_storage if known is not None else None
    place = assemble.storage_for(file.job, target, given=wish.storage, folder=wish.folder, shared=shared)
    assemble.check(file, target, place, folder=wish.folder, resume=wish.resume, place=known)
    submission = assemble.assemble(
        file,
        target,
        place,
        folder=wish.folder,
        working_dir=wish.working_dir,
        resume=wish.resume,
        limit=wish.limit,
    )
    for name in submission.package.unfit[:5]:
        say(f"left behind, since Ray does not unpack such a name: {name!r}")
    return submission


def place_of_run(run: str, storage: str | None, record: Record | None, target: Target) -> str | None:
    """Where the run's folder is: as given, where it was submitted to, this machine's default for what runs here, or
    what its newest job on the target says; None when nobody tells. Raises TargetError."""
    known = storage or (record.storage if record is not None and record.storage else None)
    if known is not None or target.shares_files:
        return known or default_storage()
    job = job_of(run, target, storage=None, id=None)
    return job.metadata.get(STORAGE) if job is not None else None


def place_of(storage: str | None, record: Record | None) -> str:
    """Where run folders are: as given, where the run was submitted to, or this machine's default."""
    return storage or (record.storage if record is not None and record.storage else None) or default_storage()


def again(run: str, target: Target, storage: str | None, record: Record | None) -> tuple[JobFile, Path, Path]:
    """The job file that a run's folder holds, or its target where that cannot be read; the folder that its relative
    paths start at, and the working directory of the last submission; this folder for what is gone or was never known.
    Raises NotFound, OSError."""
    here = _still_there(record.folder if record is not None else None)
    there = _still_there(record.working_dir if record is not None else None)
    trouble = None
    if storage is not None:
        folder = RunFolder(storage, run)
        try:
            name = next((each for each in (SWEEP, JOB) if folder.storage.exists(each)), JOB)
            return JobFile.of(Path(f"{folder.url}/{name}"), folder.storage.read(name)), here, there
        except FileNotFoundError:
            pass
        except OSError as error:
            trouble = error
    if (kept := target.kept(run, storage)) is not None:
        return kept, here, there
    if trouble is not None:
        raise trouble
    elsewhere = "" if target.shares_files else "\n  when only the cluster can read it, submit the job file again"
    raise NotFound(f"no run `{run}` in {storage or target.name} (see `raytrain-eks ls`){elsewhere}")


def _still_there(folder: str | None) -> Path:
    return Path(folder) if folder is not None and Path(folder).is_dir() else Path.cwd()


def newest(run: str, target: Target, *, storage: str | None, id: str | None) -> JobState | None:
    """The newest job of a run, also one that the target has forgotten and still has the log of; None for none.

    `id` is its last job as far as this machine knows; `storage` tells runs of one name apart.
    """
    state = job_of(run, target, storage=storage, id=id)
    return target.past(id) if state is None and id is not None else state


def stopped(target: Target, id: str, *, timeout: float = STOP_S) -> bool:
    """Wait until a job that was asked to stop is over; False when it still is not after `timeout` seconds."""
    end = time.monotonic() + timeout
    while (now := target.job(id)) is not None and not now.phase.over:
        if time.monotonic() > end:
            return False
        time.sleep(LOOK_S)
    return True
