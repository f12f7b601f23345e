"""A few rows of a job's data, read as the job would read them: for a dry run, which must not read all of it."""

import threading
from collections.abc import Iterator
from itertools import islice
from typing import Any

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.corpus import FORMATS
from raytrain_eks.data.readers import Bad, Document, Span
from raytrain_eks.data.sources import File, list_names
from raytrain_eks.spec.job import Data, Job
from raytrain_eks.spec.problem import Problem, SpecError

FILES = 8
"""Rows are taken of so many files of each source at most."""
BEGINNING = 2**20
"""Bytes of a file of text or lines that are looked at."""
LONGEST = 4000
"""Characters of a text that are kept, and about the bytes of a piece of it."""
TABLES = ("parquet", "datasets")
PATIENCE = 20.0
"""Seconds within which storage must answer; a bucket out of reach would keep one waiting for minutes."""


def sample(job: Job, *, rows: int) -> list[dict[str, Any]]:
    """The first rows of each source, as a JSON Lines file of the job's schema would hold them.

    Raises SpecError where there is nothing, where it cannot be reached in time, and where the column is not there.
    """
    found: list[dict[str, Any]] = []
    failed: list[BaseException] = []

    def read() -> None:
        try:
            for where, path in sources(job.data):
                found.extend(_rows(job, where, path, rows))
        except BaseException as error:
            failed.append(error)

    # A daemon: what hangs in a socket must not keep the process.
    thread = threading.Thread(target=read, name="data-sample", daemon=True)
    thread.start()
    thread.join(PATIENCE)
    if thread.is_alive():
        raise SpecError([Problem(path="data.train", rule=f"does not answer within {PATIENCE:g} s")])
    if failed:
        raise failed[0]
    return found


def sources(data: Data) -> list[tuple[str, str]]:
    """(field, place) of each training source."""
    if isinstance(data.train, str):
        return [("data.train", data.train)]
    return [(f"data.train.{index}.path", source.path) for index, source in enumerate(data.train)]


def _rows(job: Job, where: str, path: str, rows: int) -> Iterator[dict[str, Any]]:
    files = list_names(path, pattern=job.data.files, format=job.data.format, where=where)[:FILES]
    taken, bad = 0, ""
    for index, file in enumerate(files):
        share = -(-(rows - taken) // (len(files) - index))
        for document in islice(_documents(job, file), share):
            if isinstance(document, Bad):
                bad = bad or str(document)
                continue
            taken += 1
            content = document.content
            yield {job.data.column: content[:LONGEST]} if isinstance(content, str) else content
    if not taken:
        rule = "no row of it can be used" + (f": {bad}" if bad else "")
        raise SpecError([Problem(path=where, value=path, rule=rule, fix="see what there is, and correct `data`")])


def _documents(job: Job, file: File) -> Iterator[Document | Bad]:
    """What the beginning of a file holds. Raises SpecError where a table lacks the column."""
    columns = Columns.of(job)
    measure, read = FORMATS[job.data.format]
    if job.data.format in TABLES:
        # A table tells its columns without being read.
        stop = measure(file, columns).stop
    else:
        stop = min(file.size, BEGINNING) if job.data.format == "text" else BEGINNING
    return read(Span(file.name, file.url, 0, stop, step=LONGEST), columns)
