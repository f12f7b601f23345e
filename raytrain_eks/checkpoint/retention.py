"""Which checkpoints stay, and how the others go. A crash at any instant of the deletion leaves whole checkpoints.

The newest, the best and one that is being read are never deleted. A checkpoint ceases to exist when its manifest is
deleted, which happens first; what is left of it then is an orphan, like the files of attempts that died while they
saved, and is collected. Imports neither torch nor ray.
"""

import contextlib
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

from raytrain_eks.checkpoint.manifest import (
    MANIFEST,
    PACKED,
    PACKED_SUFFIXES,
    Damaged,
    Manifest,
    committed,
    counts,
    step_folder,
    steps,
)
from raytrain_eks.checkpoint.run import CHECKPOINTS, RunFolder
from raytrain_eks.checkpoint.storage import TEMPORARY

READING = "reading"
"""Folder in `checkpoints/` with one small file per reader."""
LEASE = 3600.0
"""Seconds after which a reader that has given no sign of life is taken for dead; it gives one each LEASE / 6."""
_FILE = re.compile(r"a(\d{4,})-([0-9a-f]+)-r\d+\.(safetensors(\.\w+)?|json|failed)")


@dataclass(frozen=True)
class Retention:
    """What stays."""

    last: int = 3
    """The newest ones; at least 1."""
    best: int = 1
    """Those with the lowest held-out loss."""
    every: int | None = None
    """All whose step is a multiple of this."""

    def stay(self, checkpoints: Sequence[Manifest]) -> set[int]:
        """Steps of the complete checkpoints that stay."""
        ordered = sorted(checkpoints, key=lambda each: each.step)
        kept = {each.step for each in ordered[-max(self.last, 1) :]}
        # NaN is not a loss by which anything could be best. Of equal losses the later step is better.
        measured = [each for each in ordered if each.loss is not None and each.loss == each.loss]
        kept |= {each.step for each in sorted(measured, key=lambda each: (each.loss, -each.step))[: self.best]}
        if self.every:
            kept |= {each.step for each in ordered if each.step % self.every == 0}
        return kept


Newest = tuple[int, str]
"""Attempt and token of the newest finished save."""


def prune(run: RunFolder, keep: Retention, *, newest: Newest | None = None, say: Callable[[str], None]) -> list[int]:
    """Delete the complete checkpoints that `keep` lets go, and orphans; the steps that went.

    With `newest`, the caller's last finished save, files of later saves may be in progress and stay. None is for a
    person at a run that is not running: all orphans go.
    """
    complete = committed(run)
    spared = keep.stay(complete) | reading(run)
    gone = [each.step for each in complete if each.step not in spared]
    for step in gone:
        if _is_fenced(run, newest):
            return []
        delete(run, step)
    collect(run, newest=newest, say=say)
    return gone


def _is_fenced(run: RunFolder, newest: Newest | None) -> bool:
    """Whether a newer attempt has begun: what was looked at before may be its own by now, and nothing may go."""
    return newest is not None and not run.owned_by(newest[0])


def _became_complete(run: RunFolder, step: int) -> bool:
    """Whether a step's checkpoint is complete now. One that was not when all were looked at may be: by the attempt that
    trains while a person prunes, or by a newer one while this process was stopped."""
    try:
        found = Manifest.load(run.storage.read(f"{step_folder(step)}/{MANIFEST}"))
    except (FileNotFoundError, Damaged):
        return False
    return counts(found, run.inventories())


def delete(run: RunFolder, step: int) -> None:
    """Delete one checkpoint, manifest first: from then on it does not exist."""
    run.storage.remove(f"{step_folder(step)}/{MANIFEST}")
    run.storage.remove_tree(step_folder(step))


def collect(run: RunFolder, *, newest: Newest | None, say: Callable[[str], None]) -> int:
    """Delete files that belong to no complete checkpoint and to no save that may be in progress; how many."""
    complete = {each.step: each for each in committed(run)}
    spared = reading(run)
    torn = _torn(run, newest)
    count = 0
    for step in steps(run):
        if step in spared or (step not in complete and _became_complete(run, step)):
            continue
        folder = step_folder(step)
        named = {file.name for file in complete[step].files} | {MANIFEST, PACKED} if step in complete else set()
        orphans = torn.get(step, [])
        for entry in run.storage.entries(folder):
            if entry.name in named or _unpacked(entry.name) in named:
                continue
            match = _FILE.fullmatch(entry.name)
            is_later = match and newest and _is_later(int(match.group(1)), match.group(2), newest)
            if not is_later and (match is not None or entry.name in (MANIFEST, PACKED)):
                orphans.append(entry.name)
        # A manifest that came too late goes first, for the same reason as in `delete`.
        if orphans and _is_fenced(run, newest):
            break
        for name in sorted(orphans, key=lambda name: name != MANIFEST):
            run.storage.remove(f"{folder}/{name}")
        if step not in complete:
            run.storage.remove_empty(folder)
        count += len(orphans)
    if count:
        say(f"removed {count} files of saves that were never completed")
    return count


def _torn(run: RunFolder, newest: Newest | None) -> dict[int, list[str]]:
    """Step -> files whose writer was killed while it wrote them, by their names in the making."""
    found = {step: run.storage.leftovers(step_folder(step)) for step in steps(run)}
    # Looked at after the names: while this attempt owns the run, whoever made them is no newer one.
    owns = newest is None or run.owned_by(newest[0])

    def is_dead(name: str) -> bool:
        match = _FILE.fullmatch(name.removeprefix(TEMPORARY).rpartition(".")[0])
        if match is None or newest is None:
            return owns
        return owns and not _is_later(int(match.group(1)), match.group(2), newest)

    return {step: [name for name in names if is_dead(name)] for step, names in found.items()}


def _unpacked(name: str) -> str:
    suffix = next((suffix for suffix in PACKED_SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _is_later(attempt: int, token: str, newest: Newest) -> bool:
    """Whether a save may still be in progress. Tokens are 8 digits of the worker group and the count of its saves; of
    another worker group of the same attempt nothing is known."""
    if attempt != newest[0]:
        return attempt > newest[0]
    return token[:8] != newest[1][:8] or token > newest[1]


def reading(run: RunFolder) -> set[int]:
    """Steps that somebody reads. Ages are differences of the storage's own clock; one that went backwards makes a
    reader look younger, never older."""
    names = [entry.name for entry in run.storage.entries(f"{CHECKPOINTS}/{READING}") if entry.name.endswith(".json")]
    if not names:
        return set()
    probe = f"{CHECKPOINTS}/{READING}/now-{uuid.uuid4().hex}"
    run.storage.write(probe, b"")
    now = run.storage.modified(probe) or 0.0
    run.storage.remove(probe)
    owner = max(run.attempts(), default=0)
    found = set()
    for name in names:
        path = f"{CHECKPOINTS}/{READING}/{name}"
        with contextlib.suppress(FileNotFoundError, ValueError, KeyError):
            touched = run.storage.modified(path)
            about = json.loads(run.storage.read(path))
            is_old = touched is not None and now - touched > LEASE
            if is_old or (about.get("attempt") or owner) < owner:
                run.storage.remove(path)
            else:
                found.add(int(about["step"]))
    return found


@contextmanager
def being_read(run: RunFolder, step: int, attempt: int | None = None) -> Iterator[None]:
    """Keep a checkpoint from being deleted while the block runs. On storage that cannot be written nothing is kept,
    and nobody there could delete either. With `attempt` only until a newer attempt of the run begins: a reader that
    died with its attempt is so forgotten at once."""
    path = f"{CHECKPOINTS}/{READING}/{step:08d}-{uuid.uuid4().hex[:12]}.json"
    body = json.dumps({"step": step, "attempt": attempt}).encode()
    done = Event()

    def sign_of_life() -> None:
        while not done.wait(LEASE / 6):
            with contextlib.suppress(OSError):
                run.storage.write(path, body)

    try:
        run.storage.write(path, body)
    except OSError:
        yield
        return
    thread = Thread(target=sign_of_life, name="checkpoint-being-read", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        with contextlib.suppress(OSError):
            run.storage.remove(path)
