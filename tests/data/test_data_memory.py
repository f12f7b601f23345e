"""Bounded memory: a data set four times the object store streams without spilling."""

import itertools
import json
import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.stream import Stream

STORE = 80 * 2**20
TIMES = 4
WORDS = ["x" + "".join(letters) for letters in itertools.islice(itertools.product("abcdefghijklmno", repeat=5), 70_000)]


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Parquet files with text of four times the object store, links to one file."""
    dice = random.Random(0)
    rows = [" ".join(dice.choices(WORDS, k=1300)) for _ in range(1000)]
    root = tmp_path / "large"
    root.mkdir()
    pq.write_table(pa.table({"text": rows}), root / "000.parquet", row_group_size=200)
    size = sum(map(len, rows))
    for number in range(1, -(-TIMES * STORE // size)):
        os.link(root / "000.parquet", root / f"{number:03d}.parquet")
    return root


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    """One token for each word: fast, and with so many of them that a token takes four bytes."""
    special = ["<|eos|>", "<|pad|>"]
    made = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(special + WORDS)}, unk_token="<|pad|>")
    )
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.add_special_tokens(special)
    folder = tmp_path / "tokenizer"
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": special[0], "pad_token": special[1]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_four_times_the_object_store_streams_without_spilling(large, tokenizer, make_job, tmp_path, monkeypatch):
    import ray
    from ray._private.internal_api import memory_summary

    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    top = {"tokenizer": {"name": str(tokenizer)}, "batch": {"sequences": 64}}
    fields = {"format": "parquet", "sequence_length": 1024, "prepare": False, "held_out": "0%"}
    job = make_job(str(large), top=top, **fields)
    flying = prepare(job, tmp_path / "store")
    before = resident()
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=STORE)
    try:
        stream = Stream.of(flying, job, rank=0, world=1, micro=64, state=None)
        seen: set[int] = set()
        most = 0
        while (step := stream.next()).epoch == 0:
            seen.update(step.ids)
            most = max(most, resident())
        counts = ray.get(ray.get_actor(f"raytrain-packing-{flying.hash}-1").counts.remote())
        stream.close()
        # By address: other tests' clusters may run on this machine.
        summary = memory_summary(ray.get_runtime_context().gcs_address, stats_only=True)
    finally:
        ray.shutdown()
    assert counts.bytes > TIMES * STORE * 0.8
    assert counts.tokens * 4 > 2 * STORE, "what is packed is larger than the store as well"
    assert counts.rows - 64 <= len(seen) <= counts.rows
    assert "Plasma memory usage" in summary
    assert "Spilled" not in summary
    assert most - before < 2**29, "two windows of packed rows, not the data set"


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
