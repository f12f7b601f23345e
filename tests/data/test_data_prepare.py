"""Preparing: what is read, what is refused and with which words, and that it happens once."""

import json
import math
import os
import shutil
from collections import Counter
from pathlib import Path

import pytest

from raytrain_eks.data import execution
from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.spec.problem import SpecError


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def test_the_second_call_finds_what_the_first_made(make_job, folder, store):
    job, said = make_job(str(folder)), []
    first = prepare(job, store, say=said.append, execute=execution.here)
    second = prepare(job, store, say=said.append, execute=lambda work, units: pytest.fail("packed again"))
    assert first == second == Prepared.load(first.url)
    assert len([line for line in said if "tokenizer ready" in line]) == 1
    assert first.sequences == sum(first.train.rows) > 10


def test_the_tokenizer_opens_with_transformers_and_gives_the_text_back(make_job, folder, store):
    prepared = prepare(make_job(str(folder)), store)
    tokenizer = prepared.tokenizer()
    assert len(tokenizer) == prepared.vocab_size == 300
    encoded = tokenizer("quick brown\n  fox é")["input_ids"]
    assert encoded[0] == tokenizer.bos_token_id
    assert encoded[-1] != tokenizer.eos_token_id
    assert tokenizer.decode(encoded, skip_special_tokens=True) == "quick brown\n  fox é"
    assert prepared.pad == tokenizer.pad_token_id


def test_every_token_of_the_training_files_is_in_the_rows(make_job, folder, store):
    prepared = prepare(make_job(str(folder), held_out="0%"), store)
    tokenizer = prepared.tokenizer()
    found: Counter[int] = Counter()
    for unit in range(len(prepared.train.rows)):
        rows = prepared.read(unit)
        for tokens, segments in zip(rows.tokens, rows.segments, strict=True):
            found.update(tokens[: segments.sum()].tolist())
    texts = [path.read_text() for path in folder.rglob("*.txt")]
    expected: Counter[int] = Counter()
    for text in texts:
        expected.update([*tokenizer(text)["input_ids"], tokenizer.eos_token_id])
    assert found == expected
    assert sum(expected.values()) == prepared.train.counts.tokens


@pytest.mark.parametrize(
    "change",
    [
        {"sequence_length": 64},
        {"pack": False},
        {"held_out": "20%"},
        {"files": "part0/*"},
    ],
)
def test_another_content_is_another_folder(make_job, folder, store, change):
    job, other = make_job(str(folder)), make_job(str(folder), **change)
    assert prepare(job, store).hash != prepare(other, store).hash


def test_a_changed_file_makes_the_data_stale_and_a_moved_folder_does_not(make_job, folder, store):
    first = prepare(make_job(str(folder)), store)
    moved = folder.rename(folder.parent / "moved")
    assert prepare(make_job(str(moved)), store).hash == first.hash
    (moved / "part0" / "00.txt").write_text("something else entirely\n")
    assert prepare(make_job(str(moved)), store).hash != first.hash


def test_the_same_hash_and_rows_whatever_the_time_of_change(make_job, folder, store):
    first = prepare(make_job(str(folder)), store)
    os.utime(folder / "part0" / "00.txt", (1, 1))
    assert prepare(make_job(str(folder)), store).hash == first.hash


def test_what_was_interrupted_goes_on_and_gives_the_same_rows(make_job, folder, store, tmp_path):
    job = make_job(str(folder))
    whole = prepare(job, tmp_path / "whole")

    def killed(work, units):
        yield work(units[0])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare(job, store, execute=killed)
    part = store / ".data" / whole.hash
    assert not (part / "index.json").exists()
    (part / "train" / ".tmp-rest-00001.parquet").write_bytes(b"half")
    packed: list[str] = []

    def counted(work, units):
        packed.extend(f"{unit.split}/{unit.number}" for unit in units)
        return execution.here(work, units)

    again = prepare(job, store, execute=counted)
    assert "train/0" not in packed
    assert not list(part.rglob(".tmp-*"))
    assert again.index == whole.index
    for shard in Path(whole.url).rglob("*.parquet"):
        assert (part / shard.relative_to(whole.url)).read_bytes() == shard.read_bytes()


def test_a_damaged_shard_of_an_interrupted_run_is_made_again(make_job, folder, store):
    job, said = make_job(str(folder)), []
    prepared = prepare(job, store)
    (Path(prepared.url) / "index.json").unlink()
    (Path(prepared.url) / "train" / "00000.parquet").write_bytes(b"not parquet")
    assert prepare(job, store, say=said.append).index == prepared.index
    assert any("train/00000.parquet is damaged" in line for line in said)


def refused(job, store) -> str:
    with pytest.raises(SpecError) as caught:
        prepare(job, store, execute=execution.here)
    assert not list(store.rglob("index.json"))
    return str(caught.value)


def test_a_missing_path_is_named(make_job, tmp_path, store):
    message = refused(make_job(str(tmp_path / "nowhere")), store)
    assert f"data.train = {tmp_path / 'nowhere'}" in message
    assert "there is nothing at" in message


def test_an_empty_folder_is_named(make_job, tmp_path, store):
    (tmp_path / "empty").mkdir()
    assert "holds no file that matches **/*" in refused(make_job(str(tmp_path / "empty")), store)


def test_files_without_text_are_refused(make_job, tmp_path, store):
    (tmp_path / "blank").mkdir()
    for number in range(5):
        (tmp_path / "blank" / f"{number}.txt").write_text(" \n" * number)
    assert "holds no text" in refused(make_job(str(tmp_path / "blank"), held_out="0%"), store)


def test_bad_files_beyond_the_budget_are_named(make_job, folder, store):
    (folder / "part0" / "latin.txt").write_bytes(b"caf\xe9\n")
    message = refused(make_job(str(folder)), store)
    assert "1 of 41 files and rows cannot be read, data.bad_rows allows 1%" in message
    assert "part0/latin.txt: not UTF-8 text (byte 3 of the file)" in message


def test_bad_files_within_the_budget_are_skipped_and_counted(make_job, folder, store):
    (folder / "part0" / "latin.txt").write_bytes(b"caf\xe9\n")
    prepared = prepare(make_job(str(folder), bad_rows="5%"), store)
    summary = prepared.summary()
    assert summary["train"]["bad"] + summary["eval"]["bad"] == 1
    assert summary["train"]["documents"] + summary["eval"]["documents"] == 40


def test_an_unreadable_file_is_counted(make_job, folder, store):
    (folder / "part0" / "gone.txt").symlink_to(folder / "nowhere")
    message = refused(make_job(str(folder)), store)
    assert "part0/gone.txt: No such file or directory" in message


def test_an_empty_file_is_counted_as_empty(make_job, folder, store):
    (folder / "part0" / "empty.txt").write_text("")
    counts = prepare(make_job(str(folder)), store).summary()
    assert counts["train"]["empty"] + counts["eval"]["empty"] == 1


def test_a_single_file_is_cut_into_documents_and_some_are_held_out(make_job, tmp_path, store):
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {number} of the book, {number * number}\n" for number in range(4000)))
    prepared = prepare(make_job(str(path), held_out="10%"), store)
    summary = prepared.summary()
    assert summary["train"]["documents"] + summary["eval"]["documents"] > 50
    assert 0.9 < (summary["train"]["bytes"] + summary["eval"]["bytes"]) / path.stat().st_size < 1
    assert summary["eval"]["documents"] >= 1


def test_bytes_behind_targets_make_bits_per_byte_independent_of_the_tokenizer(make_job, folder, store):
    small = prepare(make_job(str(folder)), store).summary()["train"]
    large = prepare(make_job(str(folder), top={"tokenizer": {"train": {"vocab_size": 400}}}), store).summary()["train"]
    assert small["targets"] > large["targets"]
    assert math.isclose(small["bytes"], large["bytes"], rel_tol=0.05)


def test_an_index_of_another_format_is_refused(make_job, folder, store):
    prepared = prepare(make_job(str(folder)), store)
    path = Path(prepared.url) / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 99}))
    with pytest.raises(SpecError, match="format 99"):
        Prepared.load(prepared.url)
    shutil.rmtree(prepared.url)
    with pytest.raises(SpecError, match="is not complete"):
        Prepared.load(prepared.url)
