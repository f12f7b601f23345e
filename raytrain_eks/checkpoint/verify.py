"""Is what lies on storage what was written? Checked before a checkpoint is used. Imports neither torch nor ray.

`full` reads every byte and compares checksums, `sizes` compares sizes, `off` looks only at the manifest and the
records (always checked: nothing can be read without them).
"""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

from raytrain_eks.checkpoint.manifest import Damaged, Manifest, Record, bytes_checksum, parts_checksum
from raytrain_eks.checkpoint.storage import ReadAt, Storage

Level = Literal["full", "sizes", "off"]


def threads() -> int:
    """How many files or blocks are read at a time."""
    return min(8, max(2, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2))


def read_records(storage: Storage, manifest: Manifest) -> list[Record]:
    """The records of all ranks; `storage` is the checkpoint's folder. Raises Damaged, naming the file."""

    def read(name: str, checksum: str) -> Record:
        try:
            data = storage.read(name)
        except FileNotFoundError:
            raise Damaged(f"{name} is missing") from None
        if bytes_checksum(data) != checksum:
            raise Damaged(f"{name} is not what was written (checksum)")
        return Record.load(data)

    with ThreadPoolExecutor(threads()) as pool:
        return list(pool.map(lambda stored: read(stored.name, stored.checksum), manifest.records))


class Held:
    """A file in memory, read once: checked, and then read from here."""

    def __init__(self, size: int):
        self.size = size
        self.content = memoryview(bytearray(size))

    def read_into(self, offset: int, buffer: memoryview) -> None:
        buffer[:] = self.content[offset : offset + len(buffer)]

    def close(self) -> None:
        self.content = memoryview(b"")


def check_files(storage: Storage, records: Sequence[Record], level: Level, held: dict[str, Held] | None = None) -> None:
    """Compare data files with their records. Raises Damaged, naming file and byte; OSError when storage fails.

    With `held`, what is read to be checked (level `full`) stays there, by the file's name.
    """
    if level == "off":
        return
    for record in records:
        size = storage.size(record.file)
        if size is None:
            raise Damaged(f"{record.file} is missing")
        if size != record.size:
            raise Damaged(f"{record.file} has {size} bytes, {record.size} were written")
    if level == "full":
        with ThreadPoolExecutor(threads()) as pool:
            for record in records:
                content = None if held is None else held.setdefault(record.file, Held(record.size))
                _check_blocks(storage, record, pool, content)


def _check_blocks(storage: Storage, record: Record, pool: ThreadPoolExecutor, held: Held | None) -> None:
    file: ReadAt = storage.open(record.file)

    def check(numbers: range) -> None:
        # A part stays in the processor's cache between the read and the checksum; far storage is asked for whole
        # blocks.
        buffer = memoryview(bytearray(min(record.block, record.size, storage.slab)))

        def parts(begin: int, end: int) -> Iterator[memoryview]:
            for at in range(begin, end, len(buffer)):
                size = min(len(buffer), end - at)
                part = buffer[:size] if held is None else held.content[at : at + size]
                file.read_into(at, part)
                yield part

        for number in numbers:
            begin, size = record.span(number)
            if parts_checksum(parts(begin, begin + size)) != record.blocks[number]:
                raise Damaged(f"{record.file} is not what was written (bytes {begin} to {begin + size})")

    try:
        count = len(record.blocks)
        step = -(-count // threads()) or 1
        list(pool.map(check, [range(begin, min(begin + step, count)) for begin in range(0, count, step)]))
    finally:
        file.close()
