"""Word between the driver and the workers of a run: small files in its folder, which every kind of storage can carry.

The driver clears them when it starts, so that an old request never stops a new start.
"""

import json
import time
from dataclasses import asdict

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.problem import Problem, SpecError

STOP = "stop.json"
REFUSED = "refused.json"


def request_stop(run: RunFolder) -> None:
    """Ask the run's workers to save a last checkpoint and to end."""
    run.storage.write(STOP, json.dumps({"asked": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}).encode())


def clear(run: RunFolder) -> None:
    """Forget an earlier request and an earlier refusal."""
    run.storage.remove(STOP)
    run.storage.remove(REFUSED)


def refuse(run: RunFolder, error: SpecError) -> None:
    """Leave word for the driver that the workers cannot do what the job says."""
    run.storage.write(REFUSED, json.dumps([asdict(problem) for problem in error.problems]).encode())


def refusal(run: RunFolder) -> SpecError | None:
    """The word that the workers left; None when they left none."""
    try:
        return SpecError(Problem(**problem) for problem in json.loads(run.storage.read(REFUSED)))
    except FileNotFoundError:
        return None


def stop_requested(run: RunFolder) -> bool:
    """Whether somebody asked; storage that does not answer now counts as no."""
    try:
        return run.storage.size(STOP) is not None
    except OSError:
        return False
