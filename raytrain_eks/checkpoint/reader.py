"""Reading any part of any logical tensor of a checkpoint, whoever wrote it and at whatever world size.

Long runs go straight into the memory of the result. Short ones (a tensor written in rows and wanted in columns) come by
way of a buffer that stays in the processor's cache: each stretch of the file is read once for all that is wanted of it.
"""

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
class _Copy:
    """Elements of a piece and where they go."""

    part: Strided
    """In elements; `source` counts from the piece's first."""
    target: torch.Tensor
    """The whole target, flat, in an integer type of the elements' width."""


@dataclass
class _Read:
    """One read from a file, and what is taken out of it."""

    file: str
    piece: int
    """First byte of the piece in the file."""
    begin: int
    """First byte that is read, in the file."""
    end: int
    copies: list[_Copy]


class Reader:
    """An open checkpoint. Tensors come on the CPU in the type in which they were saved; thread-safe."""

    def __init__(
        self,
        storage: Storage,
        manifest: Manifest,
        records: Sequence[Record],
        held: Mapping[str, ReadAt] | None = None,
    ):
        """`held`: files that are open already, by name; the reader closes them."""
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
        self._files: dict[str, ReadAt] = dict(held or {})
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
        wide: dict[tuple[str, int, int], _Read] = {}
        reads: list[_Read] = []
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
            self._plan(name, region, direct.reshape(-1).view(_INTEGER[direct.element_size()]), reads, wide)
        reads += wide.values()
        reads.sort(key=lambda read: (read.file, read.begin))
        for read in reads:
            self._open(read.file)
        if len(reads) < 2:
            for read in reads:
                self._run(read)
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

    def _plan(
        self,
        name: str,
        wanted: Region,
        target: torch.Tensor,
        reads: list[_Read],
        wide: dict[tuple[str, int, int], _Read],
    ) -> None:
        """Add the reads for one target: to `reads` those of long runs, to `wide` those that several may share."""
        found: list[Strided] = []
        for region, (file, piece) in self._pieces[name].items():
            met = meet(region, wanted)
            found += met
            for part in met:
                width = target.element_size()
                if part.count == 1 or part.length * width >= DIRECT or (part.source_step - part.length) * width > GAP:
                    reads += _long(file, piece.begin, part, target)
                    continue
                for number, few in _stretches(part, max(self.storage.slab // width, 1)):
                    begin = piece.begin + few.source * width
                    end = begin + ((few.count - 1) * few.source_step + few.length) * width
                    read = wide.setdefault((file, piece.begin, number), _Read(file, piece.begin, begin, end, []))
                    read.begin, read.end = min(read.begin, begin), max(read.end, end)
                    read.copies.append(_Copy(few, target))
        if not covers(found, wanted.numel):
            raise Damaged(f"no rank wrote all of {name} that is wanted ({wanted})")

    def _run(self, read: _Read) -> None:
        file, size = self._files[read.file], read.end - read.begin
        first = read.copies[0]
        if len(read.copies) == 1 and first.part.count == 1:
            into = first.target[first.part.target : first.part.target + first.part.length]
            file.read_into(read.begin, memoryview(into.view(torch.uint8).numpy().data))
            return
        # One buffer for each thread: it stays in the processor's cache, and new memory would cost more than the read.
        if getattr(self._local, "slab", _NOTHING).numel() < size:
            self._local.slab = torch.empty(size, dtype=torch.uint8)
        slab = self._local.slab.numpy().data
        file.read_into(read.begin, memoryview(slab)[:size])
        for copy in read.copies:
            part, width = copy.part, copy.target.element_size()
            shape = (part.count, part.length * width)
            # numpy and not torch, whose copy would start threads of its own in each of ours.
            at = read.piece + part.source * width - read.begin
            source = np.ndarray(shape, np.uint8, slab, at, (part.source_step * width, 1))
            target = copy.target.view(torch.uint8).numpy().data
            np.ndarray(shape, np.uint8, target, part.target * width, (part.target_step * width, 1))[:] = source


def _long(file: str, piece: int, part: Strided, target: torch.Tensor) -> Iterator[_Read]:
    """A read of its own for each run, and several for a very long one."""
    width = target.element_size()
    size = RUN // width
    for number in range(part.count):
        source, into = part.source + number * part.source_step, part.target + number * part.target_step
        for at in range(0, part.length, size):
            length = min(size, part.length - at)
            begin = piece + (source + at) * width
            copy = _Copy(Strided(source + at, 0, into + at, 0, length, 1), target)
            yield _Read(file, piece, begin, begin + length * width, [copy])


def _stretches(part: Strided, size: int) -> Iterator[tuple[int, Strided]]:
    """The runs of a part by the stretch of `size` elements of the piece in which they begin, and its number: the same
    stretches for every part, so that one read serves all."""
    done = 0
    while done < part.count:
        source, target = part.source + done * part.source_step, part.target + done * part.target_step
        number = source // size
        following = -(-((number + 1) * size - part.source) // part.source_step)
        count = min(following, part.count) - done
        yield number, Strided(source, part.source_step, target, part.target_step, part.length, count)
        done += count
