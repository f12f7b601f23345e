"""Bounded memory: a data set four times the object store streams without spilling."""

import os
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.stream import Stream

STORE = 80 * 2**20
TIMES = 4


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """Parquet files with text of four times the object store, links to one file."""
    dice = random.Random(0)
    words = ["".join(dice.choices("abcdefghijklmno", k=dice.randint(2, 9))) for _ in range(2000)]
    rows = [" ".join(dice.choices(words, k=1500)) for _ in range(1000)]
    root = tmp_path / "large"
    root.mkdir()
    pq.write_table(pa.table({"text": rows}), root / "000.parquet", row_group_size=200)
    size = sum(map(len, rows))
    for number in range(1, -(-TIMES * STORE // size)):
        os.link(root / "000.parquet", root / f"{number:03d}.parquet")
    return root


@pytest.mark.slow
def test_four_times_the_object_store_streams_without_spilling(large, make_job, tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    job = make_job(
        str(large),
        top={"tokenizer": {"train": {"vocab_size": 2000, "sample": "2M"}}, "batch": {"sequences": 64}},
        format="parquet",
        sequence_length=1024,
        prepare=False,
        held_out="0%",
    )
    flying = prepare(job, tmp_path / "store")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=STORE)
    try:
        from ray._private.internal_api import memory_summary

        stream = Stream.of(flying, job, rank=0, world=1, micro=64, state=None)
        seen: set[int] = set()
        most = 0
        while (step := stream.next()).epoch == 0:
            seen.update(step.ids)
            most = max(most, resident())
        counts = ray.get(ray.get_actor(f"raytrain-packing-{flying.hash}-1").counts.remote())
        summary = memory_summary(stats_only=True)
        stream.close()
    finally:
        ray.shutdown()
    assert counts.bytes > TIMES * STORE * 0.9
    assert counts.rows - 64 <= len(seen) <= counts.rows
    assert "Spilled" not in summary
    assert most < 2**30, "two windows of packed rows, not the data set"


def resident() -> int:
    """Bytes of memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
