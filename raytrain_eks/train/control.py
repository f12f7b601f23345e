"""Asking a run to stop with a last checkpoint: a small file in the run folder, which every kind of storage can carry.

The driver clears it when it starts, so that an old request never stops a new start.
"""

import json
import time

from raytrain_eks.checkpoint.run import RunFolder

STOP = "stop.json"


def request_stop(run: RunFolder) -> None:
    """Ask the run's workers to save a last checkpoint and to end."""
    run.storage.write(STOP, json.dumps({"asked": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}).encode())


def clear_stop(run: RunFolder) -> None:
    """Forget an earlier request."""
    run.storage.remove(STOP)


def stop_requested(run: RunFolder) -> bool:
    """Whether somebody asked; storage that does not answer now counts as no."""
    try:
        return run.storage.size(STOP) is not None
    except OSError:
        return False
