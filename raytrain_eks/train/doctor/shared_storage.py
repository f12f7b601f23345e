"""Whether the storage of runs does what resuming and fencing stand on, from this worker, and whether all share it.

Written: a file that appears whole (fsync and rename, or one PUT), an exclusive create that only one wins, an exchange,
a folder's move. Each worker also leaves a mark, and then looks for the marks of all others: a folder that is mounted
on each node by itself looks fine to each of them alone.
"""

import contextlib
import os
import time
from collections.abc import Iterator

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.spec.problem import SpecError

FOLDER = ".doctor"
SIZE = 16 * 2**20
"""Bytes of the file that speed is measured with: enough to see a thousandfold difference, and no more."""
SLOW = 20e6
"""Bytes per second below which a checkpoint of some gigabytes takes minutes."""
ID = "worker.storage"


def examine(where: str, place: str, mark: str) -> Iterator[Diagnosis]:
    """Try everything in `<place>/.doctor/<mark>`, and remove it; the marks of `leave_mark` stay."""
    try:
        storage = Storage.of(place).child(FOLDER, mark)
        try:
            speed = _speed(storage)
            broken = _atomic(storage)
        finally:
            clear(place, mark)
    except (OSError, SpecError) as error:
        yield red(ID, f"{where}: {place}", f"cannot be used: {_said(error)}", _fix(place))
        return
    except ImportError as error:
        yield red(ID, f"{where}: {place}", f"{error.name} is not installed, and S3 needs it", "pip install boto3")
        return
    for what in broken:
        yield red(ID, f"{where}: {place}", what, "use FSx for Lustre, EFS, a local folder, or s3://")
    text = f"writes {speed[0] / 1e6:.0f} MB/s and reads {speed[1] / 1e6:.0f} MB/s, {SIZE // 2**20} MiB, one stream"
    if speed[0] < SLOW:
        yield yellow(ID, f"{where}: {place}", f"{text}: checkpoints will take long", "is it the right file system?")
    elif not broken:
        yield green(ID, f"{where}: {place}", text)


def _speed(storage: Storage) -> tuple[float, float]:
    """Bytes per second of writing durably, and of reading it back (which a cache may serve)."""
    content = os.urandom(SIZE)
    began = time.perf_counter()
    storage.write("speed", content)
    wrote = time.perf_counter()
    if storage.read("speed") != content:
        raise OSError(5, "what was read is not what was written", storage.url)
    read = time.perf_counter()
    return SIZE / max(wrote - began, 1e-9), SIZE / max(read - wrote, 1e-9)


def _atomic(storage: Storage) -> list[str]:
    """What the storage does not do that the run folder needs, as sentences."""
    broken = []
    storage.write("file", b"old")
    storage.write("file", b"new")
    if storage.read("file") != b"new":
        broken.append("a file that was replaced still shows its old content")
    if not storage.create("once", b"1") or storage.create("once", b"2") or storage.read("once") != b"1":
        broken.append("a file could be created twice: two attempts of a run would both write")
    if not storage.exchange("once", b"1", b"3") or storage.exchange("once", b"1", b"4"):
        broken.append("a file was exchanged by one who had not seen its content")
    storage.write("before/file", b"x")
    storage.move("before", "after")
    if storage.read("after/file") != b"x" or storage.exists("before/file"):
        broken.append("a folder's move is not seen")
    return broken


def leave_mark(place: str, run: str, name: str) -> None:
    """Say that this worker was here. Raises OSError or SpecError."""
    Storage.of(place).child(FOLDER, run).write(f"{name}.mark", name.encode())


def find_marks(where: str, place: str, run: str, names: list[str]) -> Diagnosis:
    """Whether the marks of all workers are seen from here."""
    there = {entry.name.removesuffix(".mark") for entry in Storage.of(place).child(FOLDER, run).entries()}
    missing = sorted(set(names) - there)
    if missing:
        why = f"what {', '.join(missing)} wrote is not seen from here: this folder is not shared"
        fix = "give a mount that all pods share (`storage: {shared: …}`), or s3://"
        return red("worker.storage.shared", f"{where}: {place}", why, fix)
    return green("worker.storage.shared", f"{where}: {place}", f"sees what all {len(names)} nodes wrote")


def clear(place: str, run: str) -> None:
    """Remove what a check wrote, and the folder of all checks when it was the last."""
    storage = Storage.of(place).child(FOLDER)
    storage.remove_tree(run)
    if storage.folder is not None:
        # Fails while somebody else has something in it, which is as it should be.
        with contextlib.suppress(OSError):
            storage.folder.rmdir()


def _said(error: Exception) -> str:
    if isinstance(error, SpecError):
        return error.problems[0].rule
    return getattr(error, "strerror", None) or str(error)


def _fix(place: str) -> str:
    if "://" in place:
        return "credentials and rights: s3:GetObject, PutObject, DeleteObject, ListBucket; IRSA or Pod Identity"
    return "is the volume mounted, and may the container's user (fsGroup) write to it?"
