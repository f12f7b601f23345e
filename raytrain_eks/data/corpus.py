"""The corpus as a list of units: fixed parts of the sources, each tokenised and packed for itself.

Units are a function of the data alone, not of the machines that read it. Order, resume and both ways of reading
(prepared, on the fly) stand on them. Held-out data is chosen by a stable hash of names.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.lines import measure_lines, read_lines
from raytrain_eks.data.readers import Bad, Document, Extent, Span, measure_text, read_text
from raytrain_eks.data.sources import File, list_files, total_bytes
from raytrain_eks.data.tables import measure_arrow, measure_parquet, read_arrow, read_parquet
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Data
from raytrain_eks.spec.problem import Problem, SpecError

SMALLEST_UNIT = 2**19
LARGEST_UNIT = 2**23
UNITS_AT_LEAST = 32
"""A source is cut into about this many units or more, within the two bounds above (bytes of text)."""

PIECE = 2**18
"""A text file above this size is read in several documents of about this many bytes, cut at line ends."""
SMALLEST_PIECE = 2**10
PIECES_OF_A_SINGLE_FILE = 64

SMALL = 2**24
"""Below this many bytes, at least one whole file of a text source is held out."""
FILES_HELD_OUT = 4
"""Files are held out whole where at least this many are expected to be; documents one by one otherwise."""
EVALUATION_UNITS = 8
"""Held-out data beyond so many units is left out of training but not packed: an evaluation has no use for it."""

THREADS = 16
"""Files are measured by so many threads; most of the time goes into waiting for storage."""

Measure = Callable[[File, Columns], Extent]
Read = Callable[[Span, Columns], Iterator[Document | Bad]]
FORMATS: dict[str, tuple[Measure, Read]] = {
    "text": (measure_text, read_text),
    "jsonl": (measure_lines, read_lines),
    "parquet": (measure_parquet, read_parquet),
    "datasets": (measure_arrow, read_arrow),
}
"""Format -> how a file is measured, and how a part of one is read."""


@dataclass(frozen=True)
class Unit:
    """What is tokenised and packed together, always with the same result."""

    number: int
    """Its place in the list of its split, over all sources."""
    source: int
    split: str
    """`train` or `eval`."""
    spans: tuple[Span, ...]
    sift: float | None
    """Documents are held out one by one with this probability; None: the spans are of the split as a whole."""

    def documents(self, format: str, columns: Columns) -> Iterator[Document | Bad]:
        """What its spans hold of its split; what is bad is counted with the training part only."""
        read = FORMATS[format][1]
        for span in self.spans:
            for document in read(span, columns):
                if isinstance(document, Bad):
                    if self.sift is None or self.split == "train":
                        yield document
                elif self.sift is None or held_out(document.key, self.sift) == (self.split == "eval"):
                    yield document


@dataclass(frozen=True)
class Files:
    """The files of a job's data, listed and with fingerprints, but not yet opened."""

    sources: tuple[tuple[File, ...], ...]
    """Of each training source."""
    evaluate: tuple[File, ...]
    """Of `data.evaluate`; none where that is left out."""

    @property
    def count(self) -> int:
        return sum(map(len, self.sources)) + len(self.evaluate)

    @property
    def bytes(self) -> int:
        return sum(map(total_bytes, [*self.sources, self.evaluate]))


@dataclass(frozen=True)
class Corpus:
    """All units of a job's data."""

    train: tuple[Unit, ...]
    eval: tuple[Unit, ...]
    held_out_files: int


def hashed(key: str) -> float:
    """A number in [0, 1) that depends on the text alone, the same in every process and on every machine."""
    return (
        int.from_bytes(hashlib.blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest(), "big") / 2**64
    )


def held_out(key: str, share: float) -> bool:
    """Whether the file or document of this name is set apart for evaluation."""
    return hashed(key) < share


def list_sources(data: Data) -> Files:
    """List every source. Raises SpecError where a path is missing or holds no files."""
    sources = [("data.train", data.train)] if isinstance(data.train, str) else []
    if not isinstance(data.train, str):
        sources = [(f"data.train.{index}.path", source.path) for index, source in enumerate(data.train)]

    def listed(where: str, path: str) -> tuple[File, ...]:
        return tuple(list_files(path, pattern=data.files, format=data.format, where=where))

    evaluate = listed("data.evaluate", data.evaluate) if data.evaluate is not None else ()
    return Files(tuple(listed(where, path) for where, path in sources), evaluate)


def corpus(files: Files, data: Data, columns: Columns) -> Corpus:
    """Cut the files into units; all of them are measured. Raises SpecError where the column is not there."""
    share = float(quantity.share(data.held_out)) if data.evaluate is None else 0.0
    train: list[Unit] = []
    evaluation: list[Unit] = []
    apart = 0
    for number, listed in enumerate(files.sources):
        kept, held = _split(list(listed), share, data.format)
        apart += len(held)
        sift = share if share and not held else None
        cut = _Cut(data.format, columns, number, len(listed) == 1, sift)
        train += cut.units(kept, "train", len(train))
        rest = held or (_by_hash(listed) if sift else [])
        evaluation += cut.units(rest, "eval", len(evaluation))[:EVALUATION_UNITS]
    if files.evaluate:
        cut = _Cut(data.format, columns, len(files.sources), len(files.evaluate) == 1, None)
        evaluation = cut.units(_by_hash(files.evaluate), "eval", 0)[:EVALUATION_UNITS]
    return Corpus(tuple(train), tuple(evaluation), apart)


def _by_hash(files: Iterable[File]) -> list[File]:
    return sorted(files, key=lambda file: hashed(file.name))


def _split(files: list[File], share: float, format: str) -> tuple[list[File], list[File]]:
    """Files that are trained on and files that are held out whole, the latter in the order of their hash."""
    expected = len(files) * Decimal(share)
    whole = expected >= FILES_HELD_OUT
    if format == "text" and len(files) > 1:
        whole = whole or expected >= 1 or total_bytes(files) < SMALL
    if not share or not whole:
        return files, []
    by_hash = _by_hash(files)
    held = [file for file in by_hash if held_out(file.name, share)] or by_hash[:1]
    if len(held) == len(files):
        fix = "write a smaller share"
        raise SpecError([Problem(path="data.held_out", rule="would leave no file to train on", fix=fix)])
    names = {file.name for file in held}
    return [file for file in files if file.name not in names], held


@dataclass(frozen=True)
class _Cut:
    """How the files of one source become units."""

    format: str
    columns: Columns
    source: int
    single: bool
    """The source is one file: text is cut into smaller documents, so that some of them can be held out."""
    sift: float | None

    def units(self, files: list[File], split: str, first: int) -> list[Unit]:
        """Consecutive files in units of like size; a large file in several. The first unit gets the number `first`."""
        measure = FORMATS[self.format][0]
        with ThreadPoolExecutor(THREADS) as pool:
            extents = list(zip(files, pool.map(lambda file: measure(file, self.columns), files), strict=True))
        total = sum(extent.bytes for _, extent in extents)
        size = min(max(total // UNITS_AT_LEAST, SMALLEST_UNIT), LARGEST_UNIT)
        step = min(max(total // PIECES_OF_A_SINGLE_FILE, SMALLEST_PIECE), PIECE) if self.single else PIECE
        step = step if self.format == "text" else 0
        groups: list[list[Span]] = [[]]
        filled = 0
        for file, extent in extents:
            for start, stop, weight in _cuts(extent, size, step):
                if filled and filled + weight > size:
                    groups.append([])
                    filled = 0
                groups[-1].append(Span(file.name, file.url, start, stop, weight, step))
                filled += weight
        filled_groups = [tuple(group) for group in groups if group]
        return [Unit(first + at, self.source, split, group, self.sift) for at, group in enumerate(filled_groups)]


def _cuts(extent: Extent, size: int, step: int) -> Iterator[tuple[int, int, int]]:
    """(start, stop, bytes of text) of the parts of a file, each of at most about `size` bytes."""
    if extent.bytes <= size or not extent.stop:
        yield 0, extent.stop, extent.bytes
        return
    length = max(extent.stop * size // extent.bytes, 1)
    if step:
        length = max(length // step, 1) * step
    for start in range(0, extent.stop, length):
        stop = min(start + length, extent.stop)
        yield start, stop, extent.bytes * (stop - start) // extent.stop
