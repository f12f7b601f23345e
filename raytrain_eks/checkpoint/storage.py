"""Where run folders live: a folder (local, NFS, EFS, FSx for Lustre) or `s3://bucket/prefix`, behind one interface.

Every path is relative and has forward slashes. A write is atomic and durable: a reader sees the old content or the
new one, and what was written is still there after a power cut. `create` is exclusive on both kinds (a hard link on a
folder, a conditional write on S3), which is what fencing stands on. Nothing here imports torch, ray or, for a
folder, boto3.
"""

import errno
import os
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from raytrain_eks.spec.problem import Problem, SpecError

TEMPORARY = ".tmp-"
"""Prefix of a file that is being written; such files are never listed but by `leftovers`."""


@dataclass(frozen=True)
class Entry:
    """One name in a folder."""

    name: str
    is_folder: bool
    size: int
    """Bytes; 0 for a folder."""


class ReadAt(Protocol):
    """An open file that is read at any place, by any number of threads."""

    size: int

    def read_into(self, offset: int, buffer: memoryview) -> None:
        """Fill `buffer` (bytes, writable) from `offset`. Raises OSError when the file ends before that."""

    def close(self) -> None: ...


class Output(Protocol):
    """A file in the making: it appears under its name only with `commit()`."""

    def write(self, data: memoryview) -> None:
        """Append bytes; `data` may be reused as soon as this returns."""

    def commit(self) -> None:
        """Make it durable and give it its name."""

    def abort(self) -> None:
        """Leave nothing behind; harmless after `commit()`."""


class Appender(Protocol):
    """A file of lines that grows: metrics and events. Writing never waits for the network."""

    def write(self, data: bytes) -> None:
        """Append whole lines."""

    def close(self) -> None:
        """Everything written is on storage when this returns."""


class Storage(ABC):
    """A folder or an S3 prefix. Errors are OSError, with the full place as `filename`."""

    url: str
    """The whole place, as a person would write it."""
    slab: int = 2**20
    """Bytes that one read best takes where many short runs lie close together."""
    is_far: bool = False
    """Whether nothing on this machine remembers what was read (a folder has the kernel's page cache)."""

    @staticmethod
    def of(place: "str | os.PathLike[str] | Storage") -> "Storage":
        """The storage at a path or URL; nothing is created or contacted yet. Raises SpecError for another scheme."""
        if isinstance(place, Storage):
            return place
        text = os.fspath(place)
        if text.startswith("s3://"):
            from raytrain_eks.checkpoint.s3 import S3

            return S3.parse(text)
        if text.startswith("file://"):
            text = text.removeprefix("file://")
        elif "://" in text:
            rule = "storage must be a folder or an s3:// URL"
            raise SpecError([Problem(path="storage", value=text, rule=rule, fix="for example s3://my-bucket/runs")])
        from raytrain_eks.checkpoint.folder import Folder

        return Folder(Path(os.path.expanduser(text)).absolute())

    @abstractmethod
    def child(self, *names: str) -> "Storage":
        """The storage one or more levels below."""

    @abstractmethod
    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """A file's bytes; a negative `start` counts from the end. Raises FileNotFoundError."""

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Replace or make a file, atomically and durably."""

    @abstractmethod
    def create(self, path: str, data: bytes) -> bool:
        """Make a file that is not there yet, atomically; False when it is there already (also from a race lost)."""

    @abstractmethod
    def exchange(self, path: str, old: bytes, new: bytes) -> bool:
        """Replace a file's content if it is still `old`; False, and nothing changed, when it is not (or is gone)."""

    @abstractmethod
    def output(self, path: str) -> Output:
        """A file that is written piece by piece and appears at the end."""

    @abstractmethod
    def open(self, path: str) -> ReadAt:
        """Open a file for reading at any place. Raises FileNotFoundError."""

    @abstractmethod
    def appender(self, path: str) -> Appender:
        """Go on with a file of lines, at its end."""

    @abstractmethod
    def entries(self, path: str = "") -> list[Entry]:
        """What lies in a folder, sorted by name; empty when there is none."""

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Bytes of a file; None when there is none."""

    @abstractmethod
    def modified(self, path: str) -> float | None:
        """When a file was last written, in seconds by the storage's own clock; None when there is none."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Delete a file; one that is not there is fine."""

    @abstractmethod
    def remove_tree(self, path: str) -> None:
        """Delete a folder and all in it; one that is not there is fine."""

    def leftovers(self, path: str) -> list[str]:
        """Names in a folder of files in the making, whose writer is at work or was killed. S3 has none."""
        return []

    @abstractmethod
    def remove_empty(self, path: str) -> None:
        """Delete a folder if nothing is in it."""

    @abstractmethod
    def move(self, source: str, target: str) -> None:
        """Rename a folder. Atomic on a folder; on S3 file by file, `manifest.json` first, so that it stops existing."""

    @abstractmethod
    def free(self) -> int | None:
        """Bytes that are still free; None where there is no limit (S3)."""

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None for S3."""
        return None

    def exists(self, path: str) -> bool:
        """Whether there is a file of this name."""
        return self.size(path) is not None

    def files(self, path: str = "") -> Iterator[tuple[str, int]]:
        """Every file below a folder: path relative to this storage, and size."""
        for entry in self.entries(path):
            here = f"{path}/{entry.name}" if path else entry.name
            if entry.is_folder:
                yield from self.files(here)
            else:
                yield here, entry.size

    def check_writable(self) -> None:
        """Write, read and delete a small file. Raises SpecError with the reason when that fails."""
        probe = f"{TEMPORARY}probe-{uuid.uuid4().hex}"
        try:
            self.write(probe, b"probe")
            if self.read(probe) != b"probe":
                raise OSError(errno.EIO, "what was read is not what was written", self.url)
            self.remove(probe)
        except OSError as error:
            reason = error.strerror or str(error)
            fix = "give a place that this user may write to, with `storage:` or --storage"
            raise SpecError(
                [Problem(path="storage", value=self.url, rule=f"not writable: {reason}", fix=fix)]
            ) from None

    def __repr__(self) -> str:
        return f"Storage({self.url!r})"
