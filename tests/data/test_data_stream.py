"""The stream: the same samples at any number of workers, resumed anywhere; equal shapes on every rank."""

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raytrain_eks.data.order import ROWS, WINDOW
from raytrain_eks.data.packing import IGNORED, Rows, pack
from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.data.stream import Stream, evaluation
from raytrain_eks.spec.problem import SpecError

LENGTH = 8
SIZES = np.ones(60_000, dtype=np.int32)


class Numbered:
    """Units whose every row tells its own id; no files behind it."""

    hash = "numbered"
    sequence_length = LENGTH
    pad = 0

    def __init__(self, *sources: list[int]):
        self.rows_of = [count for source in sources for count in source]
        firsts = np.cumsum([0, *map(len, sources)])
        self.units = [(int(first), len(source)) for first, source in zip(firsts, sources, strict=False)]
        self.reads = 0

    def count(self, unit: int) -> int:
        return self.rows_of[unit]

    def read(self, unit: int) -> Rows:
        self.reads += 1
        documents = [np.array([1, unit, row, *range(2, 2 + row % (LENGTH - 4))]) for row in range(self.rows_of[unit])]
        return pack(documents, length=LENGTH, pad=0, token_bytes=SIZES, together=False)


def stream(data: Numbered, **given: Any) -> Stream:
    return Stream(data, **{"seed": 1, "global_sequences": 6, "rank": 0, "world": 1, "micro": 2, **given})


def seen(steps: list[list[Any]]) -> list[int]:
    """Ids in the order of the batch, put together from what the ranks were given."""
    found = []
    for ranks in zip(*steps, strict=True):
        per_rank = []
        for step in ranks:
            rows = [row for made in step.micro_batches for row in made["input_ids"] if row[0] == 1]
            per_rank.append([int(row[1]) * ROWS + int(row[2]) for row in rows])
        mixed = [None] * sum(map(len, per_rank))
        for rank, ids in enumerate(per_rank):
            mixed[rank :: len(per_rank)] = ids
        assert mixed == ranks[0].ids
        found += mixed
    return found


units = st.lists(st.integers(0, 9), min_size=1, max_size=40).filter(any)


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(units, min_size=1, max_size=3),
    st.integers(1, 13),
    st.lists(st.tuples(st.integers(1, 5), st.integers(1, 3), st.integers(1, 4)), min_size=1, max_size=5),
)
def test_killed_anywhere_at_any_world_size_it_is_the_uninterrupted_sequence(sources, batch_size, legs):
    """Each leg is (steps until the kill, world, micro); state is carried as a checkpoint would."""
    data, weights = Numbered(*sources), [1.0 + number for number in range(len(sources))]
    total = sum(steps for steps, _, _ in legs)
    whole = stream(data, global_sequences=batch_size, weights=weights)
    expected = [sample for _ in range(total) for sample in whole.next().ids]
    whole.close()
    state, found = None, []
    for steps, world, micro in legs:
        ranks = [
            stream(data, global_sequences=batch_size, weights=weights, rank=rank, world=world, micro=micro, state=state)
            for rank in range(world)
        ]
        given = [[one.next() for _ in range(steps)] for one in ranks]
        shapes = {tuple(made["input_ids"].shape for made in step.micro_batches) for each in given for step in each}
        assert len(shapes) == 1, "every rank has the same number of batches of the same shape"
        assert {step.targets for each in given for step in each[:1]} == {
            sum(int((made["labels"] != IGNORED).sum()) for each in given for made in each[0].micro_batches)
        }
        found += seen(given)
        state = ranks[0].state()
        assert all(one.state() == state for one in ranks)
        for one in ranks:
            one.close()
    assert found == expected
    if len(sources) == 1:
        rows = sum(sources[0])
        for start in range(0, len(found) - rows + 1, rows):
            assert len(set(found[start : start + rows])) == rows, "a sample came twice in an epoch"


def test_resuming_after_many_samples_reads_no_more_than_at_the_start():
    sources = [50] * 1000
    late = Numbered(sources)
    resumed = stream(late, state={"data": "numbered", "seed": 1, "sources": [[20, 31, 17]], "drawn": [1_025_617]})
    assert resumed.next().epoch == 20
    resumed.close()
    assert late.reads <= 2 * WINDOW


def test_no_more_than_two_windows_are_read_ahead_of_a_slow_loop():
    data = Numbered([50] * 1000)
    slow = stream(data)
    slow.next()
    time.sleep(0.3)
    assert data.reads <= 2 * WINDOW
    slow.close()


def test_what_cannot_be_shared_out_is_padded_with_empty_rows():
    ranks = [stream(Numbered([9]), global_sequences=5, rank=rank, world=3, micro=2).next() for rank in range(3)]
    real = [[int(row[0] == 1) for made in step.micro_batches for row in made["input_ids"]] for step in ranks]
    assert real == [[1, 1], [1, 1], [1, 0]]
    empty = ranks[2].micro_batches[0]
    assert (empty["labels"][1] == IGNORED).all()
    assert (empty["segment_ids"][1] == 0).all()


def test_an_error_of_reading_reaches_the_loop_every_time():
    class Broken(Numbered):
        def read(self, unit: int) -> Rows:
            raise OSError(5, "disk on fire")

    broken = stream(Broken([3]))
    for _ in range(2):
        with pytest.raises(OSError, match="disk on fire"):
            broken.next()
    broken.close()


@pytest.mark.parametrize(
    ("change", "words"), [({"data": "other"}, "written with data other"), ({"seed": 9}, "written with seed 9")]
)
def test_a_state_of_other_data_is_refused(change, words):
    state = {"data": "numbered", "seed": 1, "sources": [[0, 0, 0]], "drawn": [0]} | change
    with pytest.raises(SpecError, match=words):
        stream(Numbered([3]), state=state)


@pytest.fixture
def prepared(make_job, folder: Path, tmp_path: Path) -> Prepared:
    return prepare(make_job(str(folder), held_out="25%"), tmp_path / "store")


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(world=st.integers(1, 4), micro=st.integers(1, 3))
def test_the_evaluation_is_the_same_at_any_number_of_workers(prepared, world, micro):
    whole = evaluation(prepared, rank=0, world=1, micro=1, sequences=10)
    parts = [evaluation(prepared, rank=rank, world=world, micro=micro, sequences=10) for rank in range(world)]
    assert len({(len(part), part.sequences, part.targets, part.bytes) for part in parts}) == 1
    rows = sorted(row.tolist() for part in parts for made in part for row in made["input_ids"])
    filled = [row for row in rows if set(row) != {prepared.pad}]
    assert filled == sorted(made["input_ids"][0].tolist() for made in whole)
    learnt = sum(int((made["labels"] != IGNORED).sum()) for part in parts for made in part)
    assert learnt == whole.targets > 0
    assert whole.bytes > whole.targets


def test_held_out_text_is_not_trained_on(prepared):
    tokenizer = prepared.tokenizer()

    def titles(rows: list[Any]) -> set[str]:
        return set(re.findall(r"# file \d+", " ".join(tokenizer.decode(row) for row in rows)))

    trained = titles([row for unit in range(len(prepared.train.rows)) for row in prepared.read(unit).tokens])
    held = evaluation(prepared, rank=0, world=1, micro=1, sequences=999)
    evaluated = titles([row for made in held for row in made["input_ids"]])
    assert len(evaluated) == prepared.index["held_out_files"] > 1
    assert not trained & evaluated
    assert len(trained | evaluated) == 40


def test_the_number_of_steps_of_an_epoch_rounds_up(prepared):
    rows = prepared.sequences
    assert prepared.steps(1, rows) == 1
    assert prepared.steps(1, rows - 1) == 2
    assert prepared.steps(2.5, rows) == 3
