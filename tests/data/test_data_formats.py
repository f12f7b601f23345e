"""Rows of every format: put together from parts they are the file; a column that is not there is named."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raytrain_eks.data.columns import Columns
from raytrain_eks.data.corpus import FORMATS, list_sources
from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.readers import Bad, Span
from raytrain_eks.data.sources import File, list_files
from raytrain_eks.spec.problem import SpecError

TEXT = Columns("text", chat=False)
CHAT = Columns("text", chat=True)
ROWS = [{"id": number, "text": f"row {number}\nwith é and {'x' * (number % 13)}"} for number in range(50)]


def write(folder: Path, kind: str, rows: list[dict[str, Any]]) -> Path:
    """A file of this kind with these rows."""
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows).encode()
    table = pa.Table.from_pylist(rows)
    path = folder / f"data.{kind}"
    if kind == "jsonl":
        path.write_bytes(lines)
    elif kind == "jsonl.gz":
        half = len(lines) // 2
        path.write_bytes(gzip.compress(lines[:half]) + gzip.compress(lines[half:]))
    elif kind == "jsonl.zst":
        path.write_bytes(pa.compress(lines, codec="zstd", asbytes=True))
    elif kind == "parquet":
        pq.write_table(table, path, row_group_size=7)
    elif kind == "stream.arrow":
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=11)
    else:
        with pa.ipc.new_file(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=11)
    return path


KINDS = {
    "jsonl": "jsonl",
    "jsonl.gz": "jsonl",
    "jsonl.zst": "jsonl",
    "parquet": "parquet",
    "stream.arrow": "datasets",
    "file.arrow": "datasets",
}


def listed(path: Path) -> File:
    return File(path.name, str(path), path.stat().st_size, "")


@pytest.mark.parametrize("parts", [1, 3, 8])
@pytest.mark.parametrize(("kind", "format"), KINDS.items())
def test_the_rows_of_all_parts_are_the_file(tmp_path, kind, format, parts):
    path = write(tmp_path, kind, ROWS)
    measure, read = FORMATS[format]
    extent = measure(listed(path), TEXT)
    assert extent.bytes >= sum(len(row["text"].encode()) for row in ROWS) * 0.8
    length = -(-extent.stop // parts)
    spans = [
        Span(path.name, str(path), start, min(start + length, extent.stop)) for start in range(0, extent.stop, length)
    ]
    documents = [document for span in spans for document in read(span, TEXT)]
    assert [document.content for document in documents] == [row["text"] for row in ROWS]
    assert len({document.key for document in documents}) == len(ROWS)


@pytest.mark.parametrize(("kind", "format"), KINDS.items())
@pytest.mark.parametrize(
    ("column", "rule"),
    [
        (
            "txt",
            "has no such column; there is: id (",
        ),
        ("id", "this column is "),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named_with_what_is_there(tmp_path, kind, format, column, rule):
    path = write(tmp_path, kind, ROWS)
    with pytest.raises(SpecError) as caught:
        FORMATS[format][0](listed(path), Columns(column, chat=False))
    message = str(caught.value)
    assert f"data.column = {column}" in message
    assert rule in message
    assert "text" in message.splitlines()[-2], "the fix names the column that is there"


@pytest.mark.parametrize(("kind", "format"), KINDS.items())
def test_a_damaged_file_is_one_bad_file_with_a_reason(tmp_path, kind, format):
    path = write(tmp_path, kind, ROWS)
    path.write_bytes(b"\x00\x01garbage" * 3)
    measure, read = FORMATS[format]
    extent = measure(listed(path), TEXT)
    found = list(read(Span(path.name, str(path), 0, extent.stop), TEXT))
    assert len(found) == 1
    assert isinstance(found[0], Bad)
    assert found[0].place.startswith(path.name)
    assert found[0].reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"text": "x"', "not JSON (line that begins at byte 13)"),
        ("[1, 2]", "a JSON object is expected on each line, this is a list"),
        ('{"txt": "x"}', "no column text; there is: txt"),
        ('{"text": null}', "text is null"),
        ('{"text": 3}', "text is a number, not text"),
    ],
)
def test_a_bad_row_is_named_and_the_others_are_read(tmp_path, line, reason):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"text": "a"}\n'[:-1] + "\n" + line + '\n\n{"text": "b"}\n')
    bad = [*FORMATS["jsonl"][1](Span(path.name, str(path), 0, path.stat().st_size), TEXT)]
    assert [type(one).__name__ for one in bad] == ["Document", "Bad", "Document"]
    assert reason.replace("13", "14") in str(bad[1])


def test_bad_rows_count_against_the_budget_with_their_places(make_job, tmp_path):
    (tmp_path / "in").mkdir()
    rows = [json.dumps(row) for row in ROWS]
    rows[17] = "{"
    (tmp_path / "in" / "a.jsonl").write_text("\n".join(rows))
    fields, store = {"format": "jsonl", "held_out": "20%"}, tmp_path / "store"
    with pytest.raises(SpecError, match=r"1 of 50 files and rows cannot be read(.|\n)*a\.jsonl:\d+: not JSON"):
        prepare(make_job(str(tmp_path / "in"), **fields), store)
    prepared = prepare(
        make_job(str(tmp_path / "in"), format="jsonl", held_out="20%", bad_rows="2%"), tmp_path / "store"
    )
    assert prepared.train.counts.bad == 1
    assert prepared.train.counts.documents + prepared.eval.counts.documents == 49


def saved(folder: Path, rows: list[dict[str, Any]], **state: Any) -> None:
    """A folder as `datasets.Dataset.save_to_disk` writes it, with the cache of a `map` beside."""
    folder.mkdir(parents=True)
    write(folder, "stream.arrow", rows).rename(folder / "data-00000-of-00001.arrow")
    write(folder, "stream.arrow", ROWS[:1]).rename(folder / "cache-0123456789abcdef.arrow")
    (folder / "dataset_info.json").write_text("{}")
    content = {"_data_files": [{"filename": "data-00000-of-00001.arrow"}], "_indices_data_files": None}
    (folder / "state.json").write_text(json.dumps(content | state))


def test_of_a_saved_data_set_only_its_own_files_are_read(tmp_path):
    saved(tmp_path / "one", ROWS)
    found = list_files(str(tmp_path / "one"), pattern="**/*", format="datasets", where="data.train")
    assert [file.name for file in found] == ["data-00000-of-00001.arrow"]


def test_of_a_dictionary_of_splits_the_train_split_is_read(tmp_path):
    saved(tmp_path / "both" / "train", ROWS)
    saved(tmp_path / "both" / "test", ROWS)
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    found = list_files(str(tmp_path / "both"), pattern="**/*", format="datasets", where="data.train")
    assert [file.name for file in found] == ["train/data-00000-of-00001.arrow"]
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["test"]}')
    with pytest.raises(SpecError, match="has the splits test and no train"):
        list_files(str(tmp_path / "both"), pattern="**/*", format="datasets", where="data.train")


def test_a_data_set_with_reordered_rows_is_refused(tmp_path):
    saved(tmp_path / "one", ROWS, _indices_data_files=[{"filename": "indices.arrow"}])
    with pytest.raises(SpecError, match="flatten_indices"):
        list_files(str(tmp_path / "one"), pattern="**/*", format="datasets", where="data.train")


@pytest.mark.parametrize(("kind", "format"), KINDS.items())
def test_every_format_gives_the_same_rows(make_job, tmp_path, kind, format):
    (tmp_path / "in").mkdir()
    write(tmp_path / "in", kind, ROWS)
    prepared = prepare(make_job(str(tmp_path / "in"), format=format, held_out="0%"), tmp_path / "store")
    assert (prepared.train.counts.documents, prepared.train.counts.tokens) == (50, 484)


def test_a_mixture_reads_each_source_on_its_own(make_job, tmp_path):
    for number in range(2):
        (tmp_path / f"in{number}").mkdir()
        write(tmp_path / f"in{number}", "jsonl", ROWS[: 25 * (number + 1)])
    sources = [{"path": str(tmp_path / "in0"), "weight": 3}, {"path": str(tmp_path / "in1")}]
    job = make_job(sources, format="jsonl", held_out="0%")
    assert len(list_sources(job.data).sources) == 2
    prepared = prepare(job, tmp_path / "store")
    assert prepared.units == ((0, 1), (1, 1))
    assert prepared.train.rows[0] < prepared.train.rows[1]
    sources[1]["path"] = str(tmp_path / "nowhere")
    with pytest.raises(SpecError, match=r"data\.train\.1\.path"):
        prepare(make_job(sources, format="jsonl"), tmp_path / "store")
