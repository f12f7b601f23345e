"""JSON Lines, plain or compressed with gzip or zstd; a part of a file is a range of its uncompressed bytes.

A line belongs to the part in which it begins. A compressed file is read from its start up to the part, since neither
format can seek; so it is measured by reading it once.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from raytrain_eks.data.columns import Columns, describe
from raytrain_eks.data.files import Place
from raytrain_eks.data.readers import Bad, Document, Extent, Span, reason
from raytrain_eks.data.sources import File

CODECS = {".gz": "gzip", ".zst": "zstd"}
CHUNK = 2**20
FAILURES = (OSError, EOFError, zlib.error, pa.ArrowInvalid)


@contextmanager
def _opened(url: str, start: int) -> Iterator[Any]:
    """An input stream that stands at byte `start` of the uncompressed content."""
    place = Place.of(url)
    codec = next((codec for suffix, codec in CODECS.items() if place.path.endswith(suffix)), None)
    if codec is None:
        with place.filesystem.open_input_file(place.path) as file:
            file.seek(start)
            yield file
        return
    with place.filesystem.open_input_stream(place.path, compression=codec) as stream:
        while start > 0 and (skipped := stream.read(min(CHUNK, start))):
            start -= len(skipped)
        yield stream


def measure_lines(file: File, columns: Columns) -> Extent:
    """The uncompressed size. Raises SpecError where the first row lacks the column."""
    try:
        with _opened(file.url, 0) as stream:
            head = stream.read(CHUNK)
            size = file.size
            if file.url.partition("?")[0].endswith(tuple(CODECS)):
                size = len(head)
                while block := stream.read(CHUNK):
                    size += len(block)
    except FAILURES:
        return Extent(1, 1)
    first = _first_row(head)
    if first is not None:
        columns.choose({name: describe(value) for name, value in first.items()}, file.name)
    return Extent(size, size)


def _first_row(head: bytes) -> Mapping[str, Any] | None:
    for line in head.splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            return row
    return None


def read_lines(span: Span, columns: Columns) -> Iterator[Document | Bad]:
    """The rows of a part of a file; a line that cannot be used is a `Bad` with its place."""
    try:
        for at, line in _lines(span):
            if line.strip():
                yield _row(span.name, at, line, columns)
    except FAILURES as error:
        yield Bad(span.name, reason(error))


def _lines(span: Span) -> Iterator[tuple[int, bytes]]:
    """(offset, line) of the lines that begin within the span."""
    before = max(span.start - 1, 0)
    with _opened(span.url, before) as stream:
        at, rest = before, b""
        skip = span.start > 0
        while block := stream.read(CHUNK):
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                if at >= span.stop and not skip:
                    return
                if not skip:
                    yield at, line
                skip = False
                at += len(line) + 1
            if at >= span.stop and not skip:
                return
        if rest and not skip and at < span.stop:
            yield at, rest


def _row(name: str, at: int, line: bytes, columns: Columns) -> Document | Bad:
    place = f"{name}:{at}"
    try:
        row = json.loads(line)
    except ValueError as error:
        return Bad(place, f"not JSON (line that begins at byte {at}): {str(error).splitlines()[0]}")
    if not isinstance(row, dict):
        return Bad(place, f"a JSON object is expected on each line, this is {describe(row)}")
    names = columns.found(row)
    if names is None:
        return Bad(place, f"no column {columns.column}; there is: {', '.join(row) or 'nothing'}")
    try:
        return Document(place, columns.content(row, names))
    except ValueError as error:
        return Bad(place, str(error))
