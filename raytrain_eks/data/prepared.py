"""Prepared data: packed Parquet shards with an index, shared by all runs that read the same content.

A folder `<storage>/.data/<content hash>/`: `tokenizer/`, `train/00000.parquet`, `eval/00000.parquet`, and `index.json`,
which is written last: without it the data is not complete. Data that is packed while training runs has the same
folder with `onthefly.json` and `units.json` in the place of the index and the training shards. Nothing here imports
ray, torch or transformers.
"""

import io
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from raytrain_eks.data import tokenizer
from raytrain_eks.data.columns import Columns
from raytrain_eks.data.corpus import Unit
from raytrain_eks.data.files import Place
from raytrain_eks.data.packing import Rows, from_table, to_table
from raytrain_eks.data.readers import Span
from raytrain_eks.data.recipe import COUNTED, Counts, Recipe
from raytrain_eks.spec.problem import Problem, SpecError

FORMAT = 1
"""Of the index and the shards; part of the content hash."""
INDEX = "index.json"
ON_THE_FLY = "onthefly.json"
"""The index of data whose training rows are packed while training runs."""
UNITS = "units.json"
TOKENIZER = "tokenizer"
COUNTS = b"raytrain.counts"
GROUP_BYTES = 2**18
"""Bytes of tokens in a row group: the least that is read for one row."""


def shard_name(split: str, number: int) -> str:
    return f"{split}/{number:05d}.parquet"


def write_shard(place: Place, rows: Rows, counts: Counts) -> None:
    """Write the packed rows of a unit as Parquet, whole or not at all, its counts in the file's metadata."""
    table = to_table(rows).replace_schema_metadata({COUNTS: json.dumps(asdict(counts)).encode()})
    per_group = max(GROUP_BYTES // max(rows.tokens.shape[1] * rows.tokens.itemsize, 1), 1)
    buffer = io.BytesIO()
    pq.write_table(table, buffer, row_group_size=per_group, compression="zstd", use_dictionary=False)
    place.write(buffer.getvalue())


def read_counts(place: Place) -> Counts:
    """The counts that a shard carries. Raises OSError or pyarrow's ArrowInvalid where it is damaged."""
    with place.filesystem.open_input_file(place.path) as file:
        found = json.loads(pq.read_schema(file).metadata[COUNTS])
    return Counts(**{**found, "problems": tuple(found["problems"])})


@dataclass(frozen=True)
class Split:
    """The shards of one split: one for each unit."""

    rows: tuple[int, ...]
    """Rows of each shard, by its number."""
    sources: tuple[tuple[int, int], ...]
    """For each source, its first shard and how many it has."""
    counts: Counts


@dataclass(frozen=True)
class Prepared:
    """A complete folder of prepared data."""

    url: str
    index: dict[str, Any]

    @classmethod
    def load(cls, url: object) -> "Prepared":
        """Open a folder or URL that `prepare` returned. Raises SpecError where it is not complete."""
        place = Place.of(url)
        index = None
        for name in (INDEX, ON_THE_FLY):
            with suppress(FileNotFoundError):
                index = index or json.loads(place.child(name).read())
        if index is None:
            fix = "prepare it again: raytrain-eks prepare JOB"
            problem = Problem(
                path="data", value=place.url, rule=f"prepared data without {INDEX} is not complete", fix=fix
            )
            raise SpecError([problem])
        if index.get("format") != FORMAT:
            rule = f"prepared data of format {index.get('format')}; this version reads format {FORMAT}"
            raise SpecError([Problem(path="data", value=place.url, rule=rule, fix="prepare it again")])
        return cls(place.url, index)

    @property
    def hash(self) -> str:
        """The content hash: sources, tokenizer, sequence length, packing rule, format."""
        return str(self.index["hash"])

    @property
    def sequence_length(self) -> int:
        return int(self.index["sequence_length"])

    @property
    def pad(self) -> int:
        """The token id that fills the end of a row."""
        return int(self.index["pad"])

    @property
    def vocab_size(self) -> int:
        """Entries of the tokenizer, its special tokens included."""
        return int(self.index["vocab_size"])

    @cached_property
    def train(self) -> Split:
        return self._split("train")

    @cached_property
    def eval(self) -> Split:
        return self._split("eval")

    @property
    def on_the_fly(self) -> bool:
        """Whether training rows are packed while training runs: then their number is not known."""
        return "units" in self.index

    @property
    def sequences(self) -> int:
        """Rows of one pass over the training data; 0 where they are packed on the fly."""
        return self.train.counts.rows

    def recipe(self) -> Recipe:
        """How units are packed; only of data that is packed on the fly."""
        fields = self.index["recipe"]
        columns = Columns(**fields["columns"])
        return Recipe(**{**fields, "columns": columns, "tokenizer": Place.of(self.url).child(TOKENIZER).url})

    def plan(self) -> tuple[Unit, ...]:
        """The units of the training data; only of data that is packed on the fly."""
        roots = [Place.of(root) for root in self.index["roots"]]

        def unit(fields: dict[str, Any]) -> Unit:
            root = roots[fields["source"]]
            spans = tuple(Span(url=root.child(span["name"]).url, **span) for span in fields["spans"])
            return Unit(**{**fields, "spans": spans})

        return tuple(map(unit, json.loads(Place.of(self.url).child(UNITS).read())))

    @property
    def fill(self) -> float:
        """The part of all positions of the training rows that holds text."""
        return self.train.counts.tokens / max(self.sequences * self.sequence_length, 1)

    def _split(self, name: str) -> Split:
        found = self.index[name]
        counts = Counts(**{key: found["counts"][key] for key in COUNTED}, problems=tuple(found["counts"]["problems"]))
        sources = tuple((int(first), int(count)) for first, count in found["sources"])
        return Split(tuple(found["rows"]), sources, counts)

    def rows(self, split: str, number: int) -> Rows:
        """All rows of one shard. Raises OSError where it cannot be read."""
        place = Place.of(self.url).child(shard_name(split, number))
        with place.filesystem.open_input_file(place.path) as file:
            table: pa.Table = pq.read_table(file, use_threads=False)
        return from_table(table)

    @property
    def units(self) -> tuple[tuple[int, int], ...]:
        """For each source, its first training shard and how many it has."""
        return self.train.sources

    def count(self, unit: int) -> int:
        """Rows of a training shard."""
        return self.train.rows[unit]

    def read(self, unit: int) -> Rows:
        """The rows of a training shard."""
        return self.rows("train", unit)

    def steps(self, epochs: float, global_sequences: int) -> int:
        """Optimizer steps until the training data has been read `epochs` times; the last batch may go beyond.

        Raises SpecError where the number of sequences is not known.
        """
        if self.on_the_fly:
            rule = "how long an epoch is shows only when all data is packed, and data.prepare is false"
            fix = "write stop.steps or stop.tokens, or data.prepare: true"
            raise SpecError([Problem(path="stop.epochs", rule=rule, value=f"{epochs:g}", fix=fix)])
        return ceil(Fraction(epochs).limit_denominator(10**6) * self.sequences / global_sequences)

    def tokenizer_folder(self) -> str:
        """A local folder with the tokenizer."""
        return tokenizer.local_folder(Place.of(self.url).child(TOKENIZER))

    def tokenizer(self) -> Any:
        """The tokenizer as `transformers.AutoTokenizer` opens it."""
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(self.tokenizer_folder())

    def summary(self) -> dict[str, Any]:
        """Counts for a person and for summary.json: files, documents, rows, tokens, fill, bad, empty."""
        return {
            "files": self.index["files"],
            "bytes": self.index["bytes"],
            "held_out_files": self.index["held_out_files"],
            "train": {key: getattr(self.train.counts, key) for key in COUNTED},
            "eval": {key: getattr(self.eval.counts, key) for key in COUNTED},
            "fill": round(self.fill, 4),
            "problems": list(self.train.counts.problems),
        }
