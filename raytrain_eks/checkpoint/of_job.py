"""What a job's `checkpoint:` section means for this room: one call for saving, one for restoring, one for the mirror.

driver:   bring_back(run, job.checkpoint); run.open(job)
workers:  reader = restored(run, job.checkpoint, attempt=attempt, rank=rank, world=world)
          saver = saver_of(run, job.checkpoint, attempt=attempt, rank=rank, world=world, tell=tell)
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raytrain_eks.checkpoint.codec import Codec
from raytrain_eks.checkpoint.mirror import Mirror
from raytrain_eks.checkpoint.mirroring import MirrorThread
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import Attempt, RunFolder
from raytrain_eks.spec.job import Checkpoint

if TYPE_CHECKING:
    from raytrain_eks.checkpoint.reader import Reader
    from raytrain_eks.checkpoint.save import Saver

log = logging.getLogger(__name__)
Say = Callable[[str], None]


def retention(checkpoint: Checkpoint) -> Retention:
    """What stays in the run folder."""
    return Retention(last=checkpoint.keep, best=checkpoint.keep_best, every=checkpoint.keep_every)


def mirror_of(run: RunFolder, checkpoint: Checkpoint, *, say: Say = log.warning) -> Mirror | None:
    """The run's mirror; None when the job names none."""
    if checkpoint.mirror is None:
        return None
    keep = Retention(last=checkpoint.mirror_keep, best=1)
    return Mirror(run, checkpoint.mirror, keep=keep, codec=Codec(checkpoint.mirror_codec), say=say)


def bring_back(run: RunFolder, checkpoint: Checkpoint, *, say: Say = log.warning) -> bool:
    """Before a run is opened: what it is, from its mirror, where the run folder is gone; whether it was brought.

    Raises OSError when the run folder is not there and the mirror does not answer: to begin anew would lose the run.
    """
    mirror = mirror_of(run, checkpoint, say=say)
    return mirror is not None and mirror.bring_identity()


def restored(
    run: RunFolder,
    checkpoint: Checkpoint,
    *,
    attempt: Attempt,
    rank: int = 0,
    world: int = 1,
    group: Any = None,
    say: Say = log.warning,
) -> "Reader | None":
    """The newest whole checkpoint, also from the mirror; see `restore.restore`."""
    from raytrain_eks.checkpoint.restore import restore

    mirror = mirror_of(run, checkpoint, say=say) if rank == 0 else None
    verify = checkpoint.verify
    return restore(
        run, rank=rank, world=world, group=group, verify=verify, mirror=mirror, attempt=attempt, say=say
    )  # fmt: skip


def saver_of(
    run: RunFolder,
    checkpoint: Checkpoint,
    *,
    attempt: Attempt,
    rank: int = 0,
    world: int = 1,
    group: Any = None,
    tell: Callable[[dict[str, Any]], None],
) -> "Saver":
    """A saver that keeps what the job says and, on rank 0, mirrors beside training; its `close()` brings the mirror up
    to date. Events of the mirror (`mirrored`, `mirror_failed`, `mirror_caught_up`, `mirror_stopped`) go to `tell`."""
    from raytrain_eks.checkpoint.save import Saver

    mirror = mirror_of(run, checkpoint) if rank == 0 else None
    thread = MirrorThread(mirror, tell) if mirror is not None else None
    saver = Saver(
        run,
        attempt,
        rank=rank,
        world=world,
        group=group,
        keep=retention(checkpoint),
        busy=checkpoint.busy,
        budget=checkpoint.failures,
        tell=tell,
        after_commit=thread.wake if thread is not None else None,
    )
    if thread is not None:
        saver.at_close.callback(thread.close)
    return saver
