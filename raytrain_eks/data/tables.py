"""Parquet files, and the Arrow files of a folder that Hugging Face's `datasets` wrote; a part is a range of rows.

Only the needed columns are read, a batch of rows at a time.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.files import Place
from raytrain_eks.data.readers import Bad, Document, Extent, Span, reason
from raytrain_eks.data.sources import File

BATCH = 1024
"""Rows that are decoded at a time."""
FAILURES = (OSError, pa.ArrowInvalid, pa.ArrowNotImplementedError)


def kind(type: pa.DataType) -> str:
    """An Arrow type in the words of `columns`."""
    if pa.types.is_dictionary(type):
        type = type.value_type
    if pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type):
        return "text"
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return "a list"
    return str(type)


@contextmanager
def _parquet(url: str) -> Iterator[pq.ParquetFile]:
    place = Place.of(url)
    with place.filesystem.open_input_file(place.path) as file:
        yield pq.ParquetFile(file)


@contextmanager
def _arrow(url: str) -> Iterator[Any]:
    """Record batches of an Arrow stream (what `datasets` writes) or file, mapped into memory where it is local."""
    place = Place.of(url)
    source = place.filesystem.open_input_file(place.path) if place.remote else pa.memory_map(place.path)
    with source as file:
        magic = file.read(6)
        file.seek(0)
        if magic == b"ARROW1":
            reader = pa.ipc.open_file(file)
            yield reader.schema, (reader.get_batch(number) for number in range(reader.num_record_batches))
        else:
            reader = pa.ipc.open_stream(file)
            yield reader.schema, iter(reader)


def _names(schema: pa.Schema, columns: Columns, file: str) -> tuple[str, ...]:
    return columns.choose({field.name: kind(field.type) for field in schema}, file)


def measure_parquet(file: File, columns: Columns) -> Extent:
    """Rows, and bytes of the columns that are read. Raises SpecError where the column is missing or of another type."""
    try:
        with _parquet(file.url) as opened:
            metadata, schema = opened.metadata, opened.schema_arrow
    except FAILURES:
        return Extent(1, 1)
    names = _names(schema, columns, file.name)
    size = 0
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        chunks = [row_group.column(number) for number in range(row_group.num_columns)]
        size += sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema.split(".")[0] in names)
    return Extent(metadata.num_rows, max(size, 1))


def measure_arrow(file: File, columns: Columns) -> Extent:
    """As `measure_parquet`; the headers of all batches are read."""
    rows = size = 0
    try:
        with _arrow(file.url) as (schema, batches):
            names = _names(schema, columns, file.name)
            for batch in batches:
                rows += batch.num_rows
                size += sum(batch.column(name).nbytes for name in names)
    except FAILURES:
        return Extent(1, 1)
    return Extent(rows, max(size, 1))


def read_parquet(span: Span, columns: Columns) -> Iterator[Document | Bad]:
    """Rows `start` to `stop` of a Parquet file."""

    def batches() -> Iterator[tuple[int, Any]]:
        with _parquet(span.url) as opened:
            names = _names(opened.schema_arrow, columns, span.name)
            first = 0
            for group in range(opened.metadata.num_row_groups):
                rows = opened.metadata.row_group(group).num_rows
                if first < span.stop and first + rows > span.start:
                    at = first
                    for batch in opened.iter_batches(BATCH, row_groups=[group], columns=list(names), use_threads=False):
                        yield at, batch
                        at += batch.num_rows
                first += rows

    return _rows(span, columns, batches)


def read_arrow(span: Span, columns: Columns) -> Iterator[Document | Bad]:
    """Rows `start` to `stop` of an Arrow file."""

    def batches() -> Iterator[tuple[int, Any]]:
        with _arrow(span.url) as (schema, found):
            names = list(_names(schema, columns, span.name))
            at = 0
            for batch in found:
                if at >= span.stop:
                    return
                yield at, batch.select(names)
                at += batch.num_rows

    return _rows(span, columns, batches)


def _rows(span: Span, columns: Columns, batches: Callable[[], Iterator[tuple[int, Any]]]) -> Iterator[Document | Bad]:
    try:
        for at, batch in batches():
            if at + batch.num_rows <= span.start or at >= span.stop:
                continue
            names = tuple(batch.schema.names)
            low, high = max(span.start - at, 0), min(span.stop - at, batch.num_rows)
            for number, row in enumerate(batch.slice(low, high - low).to_pylist(), at + low):
                place = f"{span.name}:{number}"
                try:
                    yield Document(place, columns.content(row, names))
                except ValueError as error:
                    yield Bad(place, str(error))
    except FAILURES as error:
        yield Bad(span.name, reason(error))
