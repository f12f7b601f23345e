"""From a part of a file to documents: a text, the messages of a chat, or a prompt with its completion.

Every reader yields what it could not read as a `Bad`, with its place, so that nothing is lost in silence.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.files import Place
from raytrain_eks.data.sources import File

LINE_END = b"\n"
LOOK = 2**16
"""Bytes that are read at a time in search of a line end."""


@dataclass(frozen=True)
class Span:
    """A contiguous part of one file: bytes of text, rows of a table."""

    name: str
    url: str
    start: int
    stop: int
    bytes: int = 0
    """About how much text it holds, uncompressed."""
    step: int = 0
    """Text only: a document ends at the first line end after each `step` bytes of its file."""


@dataclass(frozen=True)
class Document:
    """One row or text, before tokenising."""

    key: str
    """What tells it from all others of its source; the stable hash that holds out documents is taken of it."""
    content: Any
    """str; for a chat `{messages: [{role, content}, ...]}` or `{prompt: str, completion: str}`."""


@dataclass(frozen=True)
class Bad:
    """What could not be read, and why."""

    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}"


@dataclass(frozen=True)
class Extent:
    """How large a file is for the purpose of cutting it into spans."""

    stop: int
    """The end of its last span: bytes of text, rows of a table."""
    bytes: int
    """Bytes of text in it, not compressed."""


def measure_text(file: File, columns: Columns) -> Extent:
    return Extent(file.size, file.size)


def read_text(span: Span, columns: Columns) -> Iterator[Document | Bad]:
    """The documents of a part of a text file; a document belongs to the part in which its first line begins."""
    try:
        with Place(span.url).filesystem.open_input_file(Place(span.url).path) as file:
            size = file.size()
            first, last = _line_start(file, span.start, size), _line_start(file, span.stop, size)
            data = file.read_at(last - first, first)
    except OSError as error:
        yield Bad(span.name, reason(error))
        return
    if not data and not span.start:
        yield Document(span.name, "")
        return
    bounds = [0]
    for cut in range(span.start + span.step, span.stop, span.step):
        before = cut - 1 - first
        found = data.find(LINE_END, before) + 1 if before >= 0 else 0
        bounds.append(found if found or before < 0 else len(data))
    bounds.append(len(data))
    for number, (here, end) in enumerate(pairwise(bounds)):
        if end > here:
            whole = size <= span.step
            place = span.name if whole else f"{span.name}:{span.start + number * span.step}"
            yield _decoded(place, data[here:end], first + here)


def _decoded(place: str, data: bytes, start: int) -> Document | Bad:
    try:
        return Document(place, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        return Bad(place, f"not UTF-8 text (byte {start + error.start} of the file)")


def _line_start(file: Any, position: int, size: int) -> int:
    """The first byte at or after `position` that begins a line; the file's size where none does."""
    if position <= 0 or position >= size:
        return min(max(position, 0), size)
    at = position - 1
    while at < size:
        block = file.read_at(min(LOOK, size - at), at)
        if (found := block.find(LINE_END)) >= 0:
            return int(at + found + 1)
        at += len(block)
    return size


def reason(error: BaseException) -> str:
    """The system's own words, without Arrow's around them."""
    number = error.errno if isinstance(error, OSError) else None
    return os.strerror(number) if number else (str(error).splitlines() or [type(error).__name__])[0]
