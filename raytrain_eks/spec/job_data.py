"""What a job reads: training and held-out data, and the tokenizer that turns text into sequences."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PositiveFloat

from raytrain_eks.spec import quantity
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Count, Share

STDLIB = "python-stdlib:"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_S3 = re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?\Z")
_LOCATION = r"^(s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?|(?![A-Za-z][A-Za-z0-9+.-]*://).*\S.*)$"


def _location(value: object) -> object:
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("must not be empty")
    if value == STDLIB.rstrip(":"):
        raise ValueError(f"a colon is missing: write `{STDLIB}`, in quotes")
    scheme = _SCHEME.match(value)
    if scheme and scheme.group(1) == "file":
        raise ValueError(f"write the plain path, without `file://`: {value[7:]}")
    if scheme and scheme.group(1) != "s3":
        raise ValueError("must be a folder, a file or s3://bucket/prefix; nothing else can be read")
    if scheme and not _S3.match(value):
        raise ValueError("must look like s3://bucket/prefix")
    return value


Location = Annotated[
    str,
    BeforeValidator(_location, json_schema_input_type=Annotated[str, Field(pattern=_LOCATION)]),
]
"""A folder or a file, or `s3://bucket/prefix`."""
Text = Annotated[str, Field(min_length=1)]


class TrainTokenizer(Model):
    """A byte-level BPE tokenizer trained on the job's own training text."""

    vocab_size: Annotated[int, Field(ge=300, le=1_000_000)]
    """Entries of the vocabulary, the 256 bytes and the special tokens included. More of them make sequences shorter and
    the model's embeddings larger."""

    sample: Count = "16M"
    """Bytes of the training text that the vocabulary is learnt from, taken evenly over the files."""


class Tokenizer(Model):
    """Where the tokenizer comes from. Left out: from the model's own folder or name."""

    name: Text | None = None
    """A name on the hub, or a local folder that holds a tokenizer."""

    train: TrainTokenizer | None = None
    """Train one on the job's training text."""

    @rule
    def _one(self) -> Iterator[Problem]:
        if (self.name is None) == (self.train is None):
            fix = "`name` for one that exists, `train: {vocab_size: 8192}` to train one"
            yield Problem(path="", rule="needs exactly one of `name` and `train`", fix=fix)


class Source(Model):
    """One part of a mixture of training data."""

    path: Location
    """A folder, a file, `s3://bucket/prefix` or `python-stdlib:`."""

    weight: PositiveFloat = 1.0
    """Its part of the mixture, relative to the other sources: of weights 3 and 1 the first gives 75%."""


class Data(Model):
    """What is read, and how text becomes sequences."""

    train: Location | Annotated[list[Source], Field(min_length=1)]
    """A folder, a file, `s3://bucket/prefix`, `python-stdlib:` (the source of the standard library of the interpreter
    that runs the job), or a list of `{path, weight}`: a weighted mixture of them."""

    evaluate: Location | None = None
    """Held-out data: a folder, a file or `s3://bucket/prefix`. None: `held_out` of the training files."""

    held_out: Share = "5%"
    """The part of the training files (of the rows of a single file) that is set apart and not trained on, chosen by a
    stable hash of the path. Unused when `evaluate` is given."""

    format: Literal["text", "jsonl", "parquet", "datasets"] = "text"
    """`text` reads whole files, one document each; `jsonl` (also .gz, .zst), `parquet` and `datasets` (a folder that
    Hugging Face `save_to_disk` wrote) read rows."""

    files: Text = "**/*"
    """Which files of a folder are read, as a glob pattern: `**/*.py`, in quotes."""

    column: Text = "text"
    """The column of a row with the text, or with the `messages` of a chat."""

    sequence_length: Annotated[int, Field(ge=8, le=2**24)]
    """Tokens of a training sequence; the model's positions must reach that far. Memory of activations grows with it."""

    pack: bool = True
    """Fill sequences with several documents, without attention across their boundaries. Without it a document has rows
    of its own, padded to the full length."""

    prepare: bool = Aside(True)
    """Tokenise and pack everything before training starts, into storage, once for all runs that read the same; or, with
    false, while training runs, on CPUs of the cluster. The samples and their order are the same."""

    bad_rows: Share = Aside("1%")
    """Unreadable files and rows are skipped and counted; more than this part of all ends the run."""

    @rule
    def _something_is_left(self) -> Iterator[Problem]:
        if self.evaluate is None and quantity.share(self.held_out) == 1:
            yield Problem(path="held_out", rule="leaves nothing to train on", fix="write a few per cent, such as 5%")

    @rule
    def _rows_have_columns(self) -> Iterator[Problem]:
        if "column" in self.model_fields_set and self.format == "text":
            why = "`format: text` reads whole files, which have no columns"
            yield Problem(path="column", rule=why, fix="add `format: parquet` or `jsonl`, or leave the column out")

    @rule
    def _format_fits(self) -> Iterator[Problem]:
        endings = {".parquet": "parquet", ".jsonl": "jsonl", ".jsonl.gz": "jsonl", ".jsonl.zst": "jsonl"}
        sources = [("train", self.train)] if isinstance(self.train, str) else []
        for path, written in [*sources, ("files", self.files)]:
            for ending, format in endings.items():
                if written.endswith(ending) and self.format != format:
                    why = f"{ending} files hold rows, and data.format is {self.format}"
                    yield Problem(path=path, rule=why, fix=f"write `format: {format}`")


__all__ = ["STDLIB", "Data", "Location", "Source", "Text", "Tokenizer", "TrainTokenizer"]
