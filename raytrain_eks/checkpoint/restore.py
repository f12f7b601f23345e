"""Restoring: the newest complete checkpoint that proves to be whole. One rank decides, all ranks share the checking.

A checkpoint that is not whole is set aside under a name that says so (`step-00000050.bad-1`), with the reason in the
log and beside it, and the one before it is taken.
"""

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

from raytrain_eks.checkpoint.manifest import (
    Damaged,
    Manifest,
    Record,
    committed,
    inspect,
    quarantined,
    step_folder,
)
from raytrain_eks.checkpoint.mirror import Mirror
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.checkpoint.retention import being_read
from raytrain_eks.checkpoint.run import CHECKPOINTS, Attempt, RunFolder
from raytrain_eks.checkpoint.together import Together
from raytrain_eks.checkpoint.verify import Held, Level, check_files, read_records

log = logging.getLogger(__name__)


def restore(
    run: RunFolder,
    *,
    rank: int = 0,
    world: int = 1,
    group: Any = None,
    verify: Level = "full",
    step: int | None = None,
    mirror: Mirror | None = None,
    attempt: Attempt | None = None,
    say: Callable[[str], None] = log.warning,
) -> Reader | None:
    """A reader of the newest complete, verified checkpoint (or of that of `step`); None when there is none.

    A collective of all ranks when `world` > 1: rank 0 chooses, every rank checks a part of the files, and all get the
    same answer. With a mirror that has newer ones than the run folder they are brought back first; a mirror that does
    not answer is passed over while the run folder has one, and an error when it has none. The checkpoint is kept from
    being deleted until the reader of rank 0 is closed, or a newer attempt than `attempt` begins.

    Raises Damaged when `step` was asked for and is not whole, OSError when storage does not answer.
    """
    together = Together(rank, world, group)
    tried: set[int] = set()
    while True:
        manifest = together.share(_choose(run, step, tried, mirror, say) if rank == 0 else None)
        if isinstance(manifest, Exception):
            raise manifest
        if manifest is None:
            return None
        held: dict[str, Held] = {}
        records, reason = _check(run, manifest, rank, world, verify, held)
        reasons = [each for each in together.gather(reason) if each is not None]
        failure = next((each for each in reasons if isinstance(each, OSError)), None)
        if failure is not None:
            # Storage that does not answer proves nothing about the checkpoint.
            raise failure
        if not reasons:
            reader = Reader(run.storage.child(*manifest.folder.split("/")), manifest, records, held)
            if rank == 0:
                reader.at_close.enter_context(being_read(run, manifest.step, attempt.number if attempt else None))
            return reader
        if step is not None:
            raise Damaged(f"the checkpoint of step {step} is not whole: {reasons[0]}")
        tried.add(manifest.step)
        if rank == 0:
            quarantine(run, manifest.step, str(reasons[0]), say=say)


def _choose(
    run: RunFolder, step: int | None, tried: set[int], mirror: Mirror | None, say: Callable[[str], None]
) -> Manifest | Exception | None:
    """Rank 0: the next candidate, or an error for all ranks to raise (nobody may be left waiting)."""
    try:
        complete, damaged = inspect(run)
        for bad, reason in damaged.items():
            if step is None and bad not in tried:
                tried.add(bad)
                quarantine(run, bad, reason, say=say)
        if mirror is not None and _bring(mirror, step, bool(complete), say):
            complete = committed(run)
        wanted = [each for each in complete if each.step not in tried and step in (None, each.step)]
        if step is not None and not wanted:
            have = ", ".join(str(each.step) for each in complete) or "none"
            return Damaged(f"`{run.name}` has no complete checkpoint of step {step}; there are: {have}")
        return wanted[-1] if wanted else None
    except OSError as error:
        return error


def _bring(mirror: Mirror, step: int | None, have_one: bool, say: Callable[[str], None]) -> bool:
    """Bring the newest checkpoint back that the mirror has and the run folder has not; whether one came."""
    try:
        for newer in [step] if step is not None else reversed(mirror.missing()):
            try:
                mirror.bring(newer)
                return True
            except Damaged as error:
                say(f"the mirror's checkpoint of step {newer} is not whole: {error}")
            except FileNotFoundError:
                continue
    except OSError as error:
        if not have_one:
            raise
        say(f"the mirror does not answer and is passed over: {error}")
    return False


def _check(
    run: RunFolder, manifest: Manifest, rank: int, world: int, verify: Level, held: dict[str, Held] | None = None
) -> tuple[Sequence[Record], Exception | None]:
    """The records of all ranks, and what is wrong with this rank's part of the files. At the world size that wrote
    them, `held` gets what a rank has read from far storage: its own file, as large as its snapshots will be."""
    storage = run.storage.child(*manifest.folder.split("/"))
    keeps = storage.is_far and world == manifest.world
    try:
        records = read_records(storage, manifest)
        check_files(storage, records[rank::world], verify, held if keeps else None)
    except (Damaged, OSError) as error:
        return (), error
    return records, None


def verified(run: RunFolder, step: int, level: Level = "full") -> str | None:
    """None when the checkpoint of a step is whole, otherwise what is wrong with it. Nothing is set aside."""
    complete, damaged = inspect(run)
    if step in damaged:
        return damaged[step]
    manifest = next((each for each in complete if each.step == step), None)
    if manifest is None:
        return "is not complete: it has no manifest that counts"
    reason = _check(run, manifest, 0, 1, level)[1]
    return None if reason is None else str(reason)


def quarantine(run: RunFolder, step: int, reason: str, *, say: Callable[[str], None]) -> str | None:
    """Set a checkpoint aside; its new name. On storage that cannot be written it is only passed over."""
    taken = {int(name.rpartition("-")[2]) for name in quarantined(run) if name.startswith(f"step-{step:08d}.")}
    name = f"step-{step:08d}.bad-{max(taken, default=0) + 1}"
    say(f"checkpoint of step {step} is not whole and is set aside as {name}: {reason}")
    try:
        run.storage.move(step_folder(step), f"{CHECKPOINTS}/{name}")
        body = json.dumps({"step": step, "reason": reason}, indent=1).encode()
        run.storage.write(f"{CHECKPOINTS}/{name}/quarantine.json", body)
    except OSError as error:
        say(f"{name} could not be set aside ({error}); it is passed over")
        return None
    return name
