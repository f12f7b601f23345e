"""A folder as storage: atomic rename, exclusive hard links, fsync of file and folder before a name counts."""

import contextlib
import errno
import os
import shutil
import sys
import uuid
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import BinaryIO

from raytrain_eks.checkpoint.storage import TEMPORARY, Entry, Storage

WRITE_BACK = 2**20
"""Bytes of a write from which the kernel is asked to begin with it at once."""


class Folder(Storage):
    """A folder of a file system that has atomic rename and hard links, shared between nodes or not."""

    def __init__(self, root: Path):
        self.root = root
        self.url = str(root)

    @property
    def folder(self) -> Path:
        return self.root

    def child(self, *names: str) -> "Folder":
        return Folder(self.root.joinpath(*names))

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        with (self.root / path).open("rb") as file:
            if start < 0:
                size = file.seek(0, os.SEEK_END)
                start = max(size + start, 0)
            file.seek(start)
            return file.read() if length is None else file.read(length)

    def write(self, path: str, data: bytes) -> None:
        output = self.output(path)
        try:
            output.write(memoryview(data))
            output.commit()
        finally:
            output.abort()

    def create(self, path: str, data: bytes) -> bool:
        output = self.output(path)
        try:
            output.write(memoryview(data))
            return output.commit_new()
        finally:
            output.abort()

    def exchange(self, path: str, old: bytes, new: bytes) -> bool:
        # Taken aside first, then looked at: so two writers never both believe that they replaced `old`.
        aside = self.root / path
        aside = aside.parent / f"{TEMPORARY}{aside.name}.{uuid.uuid4().hex[:12]}"
        try:
            os.rename(self.root / path, aside)
        except FileNotFoundError:
            return False
        if aside.read_bytes() == old:
            taken = self.create(path, new)
        else:
            taken = False
            with contextlib.suppress(FileExistsError):
                os.link(aside, self.root / path)
        aside.unlink(missing_ok=True)
        return taken

    def output(self, path: str) -> "_FolderOutput":
        return _FolderOutput(self.root / path)

    def open(self, path: str) -> "_FolderFile":
        return _FolderFile(self.root / path)

    def appender(self, path: str) -> "_FolderAppender":
        return _FolderAppender(self.root / path)

    def entries(self, path: str = "") -> list[Entry]:
        found = []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(self.root / path) as names:
            for name in names:
                if name.name.startswith(TEMPORARY):
                    continue
                try:
                    is_folder = name.is_dir()
                    found.append(Entry(name.name, is_folder, 0 if is_folder else name.stat().st_size))
                except OSError as error:
                    # Gone meanwhile, or a link that leads nowhere or to itself: nothing is there.
                    if error.errno not in (errno.ENOENT, errno.ELOOP):
                        raise
        return sorted(found, key=lambda entry: entry.name)

    def size(self, path: str) -> int | None:
        try:
            status = (self.root / path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return None if (status.st_mode & 0o170000) == 0o040000 else status.st_size

    def modified(self, path: str) -> float | None:
        try:
            return (self.root / path).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def remove(self, path: str) -> None:
        (self.root / path).unlink(missing_ok=True)

    def remove_tree(self, path: str) -> None:
        # Files may vanish under us (another process prunes as well); what cannot be deleted must be heard of.
        def on_error(function: object, name: str, failure: BaseException) -> None:
            if not isinstance(failure, FileNotFoundError):
                raise failure

        target = self.root / path
        if target.exists():
            shutil.rmtree(target, onerror=lambda function, name, info: on_error(function, name, info[1]))

    def leftovers(self, path: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            return sorted(name for name in os.listdir(self.root / path) if name.startswith(TEMPORARY))
        return []

    def remove_empty(self, path: str) -> None:
        with contextlib.suppress(OSError):
            os.rmdir(self.root / path)

    def move(self, source: str, target: str) -> None:
        (self.root / target).parent.mkdir(parents=True, exist_ok=True)
        os.rename(self.root / source, self.root / target)
        sync_folder((self.root / target).parent)

    def free(self) -> int | None:
        place = self.root
        while not place.exists():
            place = place.parent
        return shutil.disk_usage(place).free


def sync_folder(folder: Path) -> None:
    """fsync a folder, so that a name made or changed in it survives a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems refuse fsync on a folder; their rename is durable by itself.
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@cache
def _sync_file_range() -> Callable[[int, int, int], None]:
    """Linux's sync_file_range(2) with SYNC_FILE_RANGE_WRITE, which Python does not have; elsewhere nothing."""
    import ctypes

    function = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if function is None:
        return lambda descriptor, offset, size: None
    wide = ctypes.c_int64
    return lambda descriptor, offset, size: function(descriptor, wide(offset), wide(size), 2)


def _start_writing_back(descriptor: int, offset: int, size: int) -> None:
    """Let the kernel begin to write what it was given, without waiting, so that the fsync at the end finds little to
    do: it halves the time to durable. Only a hint: what it answers does not matter."""
    if size >= WRITE_BACK:
        _sync_file_range()(descriptor, offset, size)


class _FolderOutput:
    """Written beside its final name, then renamed or linked to it."""

    def __init__(self, path: Path):
        self.path = path
        self.temporary = path.parent / f"{TEMPORARY}{path.name}.{uuid.uuid4().hex[:12]}"
        self.file: BinaryIO | None = self._begin()
        self.size = 0

    def _begin(self) -> BinaryIO:
        # An empty folder may be collected just before it is filled.
        for _ in range(10):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                return self.temporary.open("xb", buffering=0)
        return self.temporary.open("xb", buffering=0)

    def write(self, data: memoryview) -> None:
        assert self.file is not None
        written = 0
        while written < len(data):
            written += self.file.write(data[written:])
        _start_writing_back(self.file.fileno(), self.size, written)
        self.size += written

    def _close(self) -> None:
        assert self.file is not None
        os.fsync(self.file.fileno())
        self.file.close()
        self.file = None

    def commit(self) -> None:
        self._close()
        os.replace(self.temporary, self.path)
        sync_folder(self.path.parent)

    def commit_new(self) -> bool:
        """As `commit`, but False when the name is taken."""
        self._close()
        try:
            os.link(self.temporary, self.path)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                raise
            return self._create_without_links()
        sync_folder(self.path.parent)
        return True

    def _create_without_links(self) -> bool:
        # A file system without hard links: exclusive, but a crash between the two steps leaves an empty file.
        # What is read back with a checksum (manifests) then does not exist; an attempt's number is merely spent.
        try:
            descriptor = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        except FileExistsError:
            return False
        os.close(descriptor)
        os.replace(self.temporary, self.path)
        sync_folder(self.path.parent)
        return True

    def abort(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None
        # A folder that turned read-only must not hide the error that led here.
        with contextlib.suppress(OSError):
            self.temporary.unlink(missing_ok=True)


class _FolderFile:
    def __init__(self, path: Path):
        self.path = path
        self.descriptor = os.open(path, os.O_RDONLY)
        self.size = os.fstat(self.descriptor).st_size

    def read_into(self, offset: int, buffer: memoryview) -> None:
        done = 0
        while done < len(buffer):
            count = os.preadv(self.descriptor, [buffer[done:]], offset + done)
            if count == 0:
                reason = f"ends at byte {offset + done}, {len(buffer) - done} bytes too early"
                raise OSError(errno.EIO, reason, str(self.path))
            done += count

    def close(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


class _FolderAppender:
    """One write per call with O_APPEND: a reader sees whole lines, a crash loses at most the last one."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A line that a crash cut in half would swallow the first line written after it.
        self.file = path.open("a+b", buffering=0)
        if self.file.seek(0, os.SEEK_END) and os.pread(self.file.fileno(), 1, self.file.tell() - 1) != b"\n":
            self.file.write(b"\n")

    def write(self, data: bytes) -> None:
        self.file.write(data)

    def close(self) -> None:
        if not self.file.closed:
            os.fsync(self.file.fileno())
            self.file.close()
