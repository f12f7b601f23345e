"""From a job's data to prepared data: list, train the tokenizer, tokenise and pack with Ray Data, write the index.

Idempotent: the folder's name is a hash of everything that its content depends on, so that the second call returns at
once. Resumable: a shard appears whole or not at all, and one that is there is not made again.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

import pyarrow as pa

from raytrain_eks.data import execution, tokenizer
from raytrain_eks.data.columns import Columns
from raytrain_eks.data.corpus import Corpus, Files, Unit, corpus, list_sources
from raytrain_eks.data.files import TEMPORARY, Place
from raytrain_eks.data.prepared import (
    FORMAT,
    INDEX,
    ON_THE_FLY,
    TOKENIZER,
    UNITS,
    Prepared,
    read_counts,
    shard_name,
    write_shard,
)
from raytrain_eks.data.recipe import Counts, Recipe, over_budget
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

Say = Callable[[str], None]
FEW = 4
"""Up to so many units are packed here: Ray Data would take longer to start."""
FOLDER = ".data"
"""The folder of prepared data beside the run folders."""


def content_hash(job: Job, files: Files) -> str:
    """16 hex digits over all that the prepared rows depend on; weights, seed and batch are no part of it."""
    data = job.data
    listed = [*files.sources, files.evaluate]
    content = {
        "format": FORMAT,
        "files": [[[file.name, file.size, file.fingerprint] for file in part] for part in listed],
        "tokenizer": tokenizer.identity(job),
        "sequence_length": data.sequence_length,
        "pack": data.pack,
        "read": [data.format, data.column, str(quantity.share(data.held_out)) if data.evaluate is None else None],
        "chat": job.task == "sft",
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def prepare(
    job: Job, storage: object, *, say: Say = lambda text: None, execute: execution.Execute | None = None
) -> Prepared:
    """The prepared data of a job, made where it is not there yet.

    `storage` is a folder, a URL or a Storage, the one that holds the runs. `say` gets a line per phase. `execute`
    works through the units; by default Ray Data does, and a few are done here. With `data.prepare: false` only the
    tokenizer and the held-out rows are made. Raises SpecError for whatever is wrong with the data, OSError where the
    storage cannot be written.
    """
    files = list_sources(job.data)
    folder = _folder(job, files, storage)
    roots = [listed[0].root for listed in files.sources]
    if folder.child(INDEX).exists():
        return Prepared.load(folder.url)
    if not job.data.prepare and folder.child(ON_THE_FLY).exists():
        return _moved(Prepared.load(folder.url), roots)
    units = corpus(files, job.data, Columns.of(job))
    say(f"data: {files.count} files, {files.bytes / 1e6:.1f} MB, {units.held_out_files} files held out")
    if not folder.child(TOKENIZER).child("tokenizer.json").exists():
        tokenizer.make(job, units, folder.child(TOKENIZER))
        say(f"data: tokenizer ready, {len(tokenizer.token_bytes(folder.child(TOKENIZER).url))} entries")
    work = Pack(_recipe(job, folder), folder.url)
    wanted = [*(units.train if job.data.prepare else ()), *units.eval]
    counts = _pack_all(work, wanted, say, execute)
    _check(job, units, counts)
    about = {"hash": content_hash(job, files), "files": files.count, "bytes": files.bytes}
    content = _index(about | {"held_out_files": units.held_out_files}, units, counts, work.recipe)
    if not job.data.prepare:
        folder.child(UNITS).write(json.dumps([_portable(unit) for unit in units.train]).encode())
        recipe = {key: value for key, value in asdict(work.recipe).items() if key != "tokenizer"}
        content |= {"units": len(units.train), "roots": roots, "recipe": recipe}
    folder.child(INDEX if job.data.prepare else ON_THE_FLY).write(json.dumps(content, indent=1).encode())
    _sweep(folder)
    prepared = Prepared.load(folder.url)
    train = prepared.train.counts
    text = f"{train.tokens} tokens in {train.rows} sequences of {prepared.sequence_length}, fill {prepared.fill:.3f}"
    say(f"data: {text}" if job.data.prepare else f"data: {len(units.train)} units, packed while training runs")
    return prepared


def find(job: Job, storage: object) -> Prepared | None:
    """The complete prepared data of a job as its files are now; None where it is missing, or made from other files.

    Raises SpecError where a source cannot be listed.
    """
    folder = _folder(job, list_sources(job.data), storage)
    return Prepared.load(folder.url) if folder.child(INDEX).exists() else None


def _folder(job: Job, files: Files, storage: object) -> Place:
    return Place.of(getattr(storage, "url", storage)).child(FOLDER).child(content_hash(job, files))


def _portable(unit: Unit) -> dict[str, Any]:
    """A unit without the place of its files, which may move."""
    fields = asdict(unit)
    for span in fields["spans"]:
        del span["url"]
    return fields


def _moved(prepared: Prepared, roots: list[str]) -> Prepared:
    """The same data, read from where its sources lie now."""
    if prepared.index["roots"] != roots:
        content = prepared.index | {"roots": roots}
        Place.of(prepared.url).child(ON_THE_FLY).write(json.dumps(content, indent=1).encode())
    return Prepared.load(prepared.url)


def _recipe(job: Job, folder: Place) -> Recipe:
    data = job.data
    return Recipe(folder.child(TOKENIZER).url, data.format, Columns.of(job), data.sequence_length, data.pack)


@dataclass(frozen=True)
class Pack:
    """Packs one unit into its shard; runs in a task of Ray Data."""

    recipe: Recipe
    folder: str

    def __call__(self, unit: Unit) -> tuple[str, int, Counts]:
        rows, counts = self.recipe.rows(unit)
        write_shard(Place.of(self.folder).child(shard_name(unit.split, unit.number)), rows, counts)
        return unit.split, unit.number, counts


Found = dict[tuple[str, int], Counts]


def _pack_all(work: Pack, wanted: list[Unit], say: Say, execute: execution.Execute | None) -> Found:
    folder = Place.of(work.folder)
    present = {folder.relative(info) for info in folder.walk()}
    done: Found = {}
    for unit in wanted:
        name = shard_name(unit.split, unit.number)
        if name in present:
            try:
                done[unit.split, unit.number] = read_counts(folder.child(name))
            except (OSError, KeyError, ValueError, pa.ArrowInvalid):
                say(f"data: {name} is damaged and is made again")
    rest = [unit for unit in wanted if (unit.split, unit.number) not in done]
    if done and rest:
        say(f"data: {len(done)} of {len(wanted)} shards are there from before")
    if execute is None:
        execute = execution.ray_data if len(rest) > FEW else execution.here
    for split, shard, counts in _told(execute(work, rest), len(rest), say):
        done[split, shard] = counts
    return done


def _told(results: Iterator[Any], total: int, say: Say) -> Iterator[Any]:
    """Pass results on and say how far it is after every tenth."""
    for number, result in enumerate(results, 1):
        yield result
        if total > 20 and number * 10 // total != (number - 1) * 10 // total and number < total:
            say(f"data: {number} of {total} shards")


def _check(job: Job, units: Corpus, found: Found) -> None:
    """Refuse data that holds nothing, or in which more than the budget is unreadable. Raises SpecError."""
    train, evaluation = _sum("train", units.train, found), _sum("eval", units.eval, found)
    problem = over_budget(train + evaluation, quantity.share(job.data.bad_rows))
    if problem is not None:
        raise SpecError([problem])
    for source in sorted({unit.source for unit in units.train}) if job.data.prepare else []:
        mine = _sum("train", [unit for unit in units.train if unit.source == source], found)
        if not mine.targets:
            where = "data.train" if isinstance(job.data.train, str) else f"data.train.{source}.path"
            rule = "holds no text to train on" + (f"; {mine.empty} files or rows are empty" if mine.empty else "")
            raise SpecError([Problem(path=where, rule=rule, fix="name data with text in it")])
    if units.eval and not evaluation.targets:
        where, fix = ("data.evaluate", "name data with text in it")
        if job.data.evaluate is None:
            where, fix = "data.held_out", "raise the share, add data, set data.evaluate, or write 0% for none"
        raise SpecError([Problem(path=where, rule="leaves no text to evaluate on", fix=fix)])


def _sum(split: str, units: Sequence[Unit], found: Found) -> Counts:
    """Counts of these units, those that are not packed left out."""
    return reduce(add, (found.get((split, unit.number), Counts()) for unit in units), Counts())


def _index(about: dict[str, Any], units: Corpus, found: Found, recipe: Recipe) -> dict[str, Any]:
    return {
        "format": FORMAT,
        **about,
        "sequence_length": recipe.length,
        "pad": recipe.pad,
        "vocab_size": len(tokenizer.token_bytes(recipe.tokenizer)),
        "train": _split_index("train", units.train, found),
        "eval": _split_index("eval", units.eval, found),
    }


def _split_index(split: str, units: Sequence[Unit], found: Found) -> dict[str, Any]:
    sources: dict[int, list[int]] = {}
    for unit in units:
        sources.setdefault(unit.source, [unit.number, 0])[1] += 1
    rows = [found[split, unit.number].rows for unit in units if (split, unit.number) in found]
    return {"rows": rows, "sources": list(sources.values()), "counts": asdict(_sum(split, units, found))}


def _sweep(folder: Place) -> None:
    """Remove what killed processes left half written."""
    for info in list(folder.walk()):
        if info.base_name.startswith(TEMPORARY):
            folder.delete(folder.relative(info))
