"""Reading any part of any logical tensor of a checkpoint, whoever wrote it and at whatever world size.

Only the bytes that are needed are read: long runs go straight into the memory of the result, short ones by way of a
bounded buffer.
"""

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import torch

from raytrain_eks.checkpoint.chunk import TORCH
from raytrain_eks.checkpoint.manifest import Damaged, Manifest, Piece, Record
from raytrain_eks.checkpoint.region import Region, Strided, covers, meet
from raytrain_eks.checkpoint.storage import ReadAt, Storage
from raytrain_eks.checkpoint.verify import threads

DIRECT = 256 * 1024
"""Bytes from which a run is read straight into the result."""
GAP = 128 * 1024
"""Bytes between two short runs that are rather read and dropped than skipped by another read."""
RUN = 32 * 2**20
"""Bytes that one read of a long run takes at most, so that threads share the work."""
_NOTHING = torch.empty(0, dtype=torch.uint8)
_INTEGER = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class NoSuchTensor(KeyError):
    """The checkpoint has no tensor of that name, or one of another shape: it is of another model."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class _Read:
    """One read from a file and where its elements go."""

    file: str
    offset: int
    """Bytes in the file."""
    part: Strided
    """In elements; `source` counts from `offset`."""


class Reader:
    """An open checkpoint. Tensors come on the CPU in the type in which they were saved; thread-safe."""

    def __init__(self, storage: Storage, manifest: Manifest, records: Sequence[Record]):
        self.storage = storage
        """The checkpoint's folder."""
        self.manifest = manifest
        self.step: int = manifest.step
        self.meta: dict[str, Any] = manifest.meta
        """What rank 0 gave to `save`."""
        self._records = records
        self._pieces: dict[str, dict[Region, tuple[str, Piece]]] = {}
        for record in records:
            for piece in record.pieces:
                region = Region(piece.global_shape, piece.offsets, piece.shape, piece.flat_start)
                # Of equal parts that several ranks wrote, one is enough.
                self._pieces.setdefault(piece.name, {}).setdefault(region, (record.file, piece))
        self._files: dict[str, ReadAt] = {}
        self._pool: ThreadPoolExecutor | None = None
        self._local = threading.local()
        self.at_close = ExitStack()
        """What ends when the reader is closed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the files."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.at_close.close()

    def names(self) -> list[str]:
        """Names of the logical tensors, sorted."""
        return sorted(self._pieces)

    def __contains__(self, name: object) -> bool:
        return name in self._pieces

    def shape(self, name: str) -> tuple[int, ...]:
        """Global shape. Raises NoSuchTensor."""
        return self._first(name).global_shape

    def dtype(self, name: str) -> torch.dtype:
        """Raises NoSuchTensor."""
        return TORCH[self._first(name).dtype]

    def rank_meta(self, rank: int) -> dict[str, Any] | None:
        """What a rank gave to `save` for itself; None at another world size, where ranks are not the same."""
        found = [record.meta for record in self._records if record.rank == rank]
        return found[0] if found else None

    @property
    def world(self) -> int:
        """Ranks that wrote it."""
        return self.manifest.world

    def _first(self, name: str) -> Piece:
        if name not in self._pieces:
            from raytrain_eks.spec.problem import nearest

            guess = nearest(name, self._pieces)
            rule = f"the checkpoint of step {self.step} has no tensor {name}; is it of another model?"
            raise NoSuchTensor(rule + (f" (near: {guess})" if guess else ""))
        return next(iter(self._pieces[name].values()))[1]

    def full(self, name: str, out: torch.Tensor | None = None) -> torch.Tensor:
        """The whole tensor."""
        return self._one(name, Region.all(self.shape(name)), out)

    def box(
        self, name: str, offsets: tuple[int, ...], shape: tuple[int, ...], out: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The N-D part at `offsets`, of `shape`. Raises ValueError when it is not inside the tensor."""
        return self._one(name, Region.box(self.shape(name), tuple(offsets), tuple(shape)), out)

    def flat(self, name: str, start: int, length: int, out: torch.Tensor | None = None) -> torch.Tensor:
        """`length` elements of the row-major flattened tensor from `start`, 1-D."""
        return self._one(name, Region.flat(self.shape(name), start, length), out)

    def _one(self, name: str, region: Region, out: torch.Tensor | None) -> torch.Tensor:
        target = torch.empty(region.shape, dtype=self.dtype(name)) if out is None else out
        self.fill([(name, region, target)])
        return target

    def fill(self, wanted: Iterable[tuple[str, Region, torch.Tensor]]) -> None:
        """Fill tensors with parts of logical tensors, in parallel and in the order of the files: the way to load much.

        A target has the region's number of elements, any type and device. Raises NoSuchTensor for a name or a global
        shape that the checkpoint does not have, Damaged when no rank wrote a part of what is wanted.
        """
        reads: list[tuple[_Read, torch.Tensor]] = []
        later: list[tuple[torch.Tensor, torch.Tensor]] = []
        for name, region, target in wanted:
            dtype = self.dtype(name)
            if region.whole != self.shape(name):
                rule = f"{name} has shape {self.shape(name)} in the checkpoint of step {self.step}"
                raise NoSuchTensor(f"{rule}, {region.whole} is expected; is it of another model?")
            if target.numel() != region.numel:
                raise ValueError(f"{name}: the target has {target.numel()} elements, the part has {region.numel}")
            direct = target.detach()
            if target.dtype != dtype or target.device.type != "cpu" or not target.is_contiguous():
                direct = torch.empty(target.shape, dtype=dtype)
                later.append((target.detach(), direct))
            flat = direct.reshape(-1).view(_INTEGER[direct.element_size()])
            reads += [(read, flat) for read in self._plan(name, region, flat.element_size())]
        reads.sort(key=lambda item: (item[0].file, item[0].offset))
        for read, _ in reads:
            self._open(read.file)
        if len(reads) < 2:
            for item in reads:
                self._run(item)
        else:
            self._pool = self._pool or ThreadPoolExecutor(threads(), thread_name_prefix="checkpoint-read")
            list(self._pool.map(self._run, reads))
        for target, direct in later:
            target.copy_(direct)

    def _open(self, file: str) -> ReadAt:
        if file not in self._files:
            try:
                self._files[file] = self.storage.open(file)
            except FileNotFoundError:
                raise Damaged(f"{file} is missing") from None
        return self._files[file]

    def _plan(self, name: str, target: Region, width: int) -> Iterator[_Read]:
        parts: list[Strided] = []
        for region, (file, piece) in self._pieces[name].items():
            met = meet(region, target)
            parts += met
            for part in met:
                yield from _split(file, piece.begin, part, width, self.storage.slab)
        if not covers(parts, target.numel):
            raise Damaged(f"no rank wrote all of {name} that is wanted ({target})")

    def _run(self, item: tuple[_Read, torch.Tensor]) -> None:
        read, flat = item
        part, width = read.part, flat.element_size()
        file = self._files[read.file]
        if part.count == 1:
            into = flat[part.target : part.target + part.length]
            file.read_into(read.offset, memoryview(into.view(torch.uint8).numpy().data))
            return
        span = (part.count - 1) * part.source_step + part.length
        # One buffer for each thread: it stays in the processor's cache, and new memory would cost more than the read.
        if getattr(self._local, "slab", _NOTHING).numel() < span * width:
            self._local.slab = torch.empty(span * width, dtype=torch.uint8)
        slab = self._local.slab[: span * width]
        shape = (part.count, part.length * width)
        file.read_into(read.offset, memoryview(slab.numpy().data))
        # numpy and not torch, whose copy would start threads of its own in each of ours.
        source = np.ndarray(shape, np.uint8, slab.numpy().data, 0, (part.source_step * width, 1))
        target = flat.view(torch.uint8).numpy().data
        np.ndarray(shape, np.uint8, target, part.target * width, (part.target_step * width, 1))[:] = source


def _split(file: str, begin: int, part: Strided, width: int, slab: int) -> Iterator[_Read]:
    """The reads of a part: long or distant runs one by one, others many at once, about `slab` bytes of the file."""
    if part.count == 1 or part.length * width >= DIRECT or (part.source_step - part.length) * width > GAP:
        size = RUN // width
        for number in range(part.count):
            source, target = part.source + number * part.source_step, part.target + number * part.target_step
            for at in range(0, part.length, size):
                run = Strided(0, 0, target + at, 0, min(size, part.length - at), 1)
                yield _Read(file, begin + (source + at) * width, run)
        return
    rows = max(slab // (part.source_step * width), 1)
    for first in range(0, part.count, rows):
        source, target = part.source + first * part.source_step, part.target + first * part.target_step
        count = min(rows, part.count - first)
        run = Strided(0, part.source_step, target, part.target_step, part.length, count)
        yield _Read(file, begin + source * width, run)
