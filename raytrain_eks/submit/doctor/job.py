"""The check of a cluster's workers, as a job that goes the way of every other: through its target.

It takes no accelerator but while the all-reduce is measured, writes nothing to storage that it does not remove, and is
no run: it leaves no run folder.
"""

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from raytrain_eks.spec.diagnosis import Diagnosis, red
from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.follow import Follower, ending
from raytrain_eks.submit.package import File, Package
from raytrain_eks.submit.target import Say, Submission, Target

SCRIPT = "jobs/doctor.py"
LAUNCHER = b"""\
import sys

from raytrain_eks.train.doctor.driver import main

sys.exit(main())
"""
SETTINGS = "doctor.yaml"
"""A job of this package always has a file; this one is empty."""
METADATA = {"raytrain_doctor": "workers"}


def submission(storage: str | None, *, fabric: bool, folder: Path) -> Submission:
    """The job that checks all workers. `storage`: where runs would go; None: what each worker has for it."""
    contents = {SETTINGS: b"", SCRIPT: LAUNCHER}
    files = tuple(File(name, folder / name, len(text), 0o644, text) for name, text in sorted(contents.items()))
    options = (*((f"--storage={storage}",) if storage else ()), *(() if fabric else ("--no-fabric",)))
    return Submission(
        id=f"doctor-{secrets.token_hex(4)}",
        run="doctor",
        job_file=SETTINGS,
        script=SCRIPT,
        options=options,
        folder=str(folder),
        package=Package(folder, files),
        environment={},
        metadata=METADATA,
    )


def examine(target: Target, storage: str | None, *, fabric: bool, folder: Path, say: Say) -> Iterator[Diagnosis]:
    """Run the check on a target and yield its findings as they come; what else the job says goes to `say`.

    Raises TargetError when the target cannot be reached or takes no job. A check that breaks off is a red finding; one
    whose reader goes away is stopped.
    """
    from raytrain_eks.train.doctor.driver import END, finding

    target.prepare(say)
    id = target.submit(submission(storage, fabric=fabric, folder=folder), say)
    follower, whole, shown = Follower(target, id, say=say), False, 0
    try:
        for line in follower.lines():
            if (found := finding(line)) is not None:
                yield found
            elif line == END:
                whole = True
            elif line.strip():
                say(line)
                shown += 1
    finally:
        if not whole and (follower.state is None or not follower.state.phase.over):
            with contextlib.suppress(TargetError):
                target.stop(id)
    if not whole:
        assert follower.state is not None
        why = f"the check broke off: {ending(follower.state)}"
        yield red("worker.job", target.name, why, f"its log is above{'' if shown else ', and empty'}; job {id}")
