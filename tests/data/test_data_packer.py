"""Packing while training runs: the same samples in the same order as prepared data, from any position."""

import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from raytrain_eks.data.packer import OnTheFly
from raytrain_eks.data.packing import from_table, to_table
from raytrain_eks.data.prepare import prepare
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.data.stream import Stream, evaluation
from raytrain_eks.spec.problem import SpecError


@pytest.fixture
def both(make_job, folder: Path, tmp_path: Path) -> tuple[Any, Prepared, Prepared]:
    """A job, and its data packed on the fly and prepared."""
    job = make_job(str(folder), prepare=False)
    flying = prepare(job, tmp_path / "flying")
    return job, flying, prepare(make_job(str(folder)), tmp_path / "prepared")


def steps(data: Prepared, job: Any, count: int, **given: Any) -> tuple[list[Any], dict[str, Any]]:
    stream = Stream.of(data, job, **{"rank": 0, "world": 1, "micro": 2, "state": None, **given})
    found = [stream.next() for _ in range(count)]
    stream.close()
    return found, stream.state()


def plain(found: list[Any]) -> list[Any]:
    """Everything that a step holds, to compare."""
    return [
        (step.epoch, step.ids, step.targets, [{key: made[key].tolist() for key in made} for made in step.micro_batches])
        for step in found
    ]


def test_both_ways_give_the_same_samples_and_states(both):
    job, flying, prepared = both
    assert flying.on_the_fly
    assert not prepared.on_the_fly
    assert flying.hash == prepared.hash
    count = prepared.sequences * 5 // 8
    ours, state = steps(flying, job, count)
    theirs, expected = steps(prepared, job, count)
    assert plain(ours) == plain(theirs)
    assert state == expected
    assert ours[-1].epoch == 2


def test_a_run_may_change_from_one_way_to_the_other(both):
    job, flying, prepared = both
    whole, _ = steps(prepared, job, 9)
    begun, state = steps(flying, job, 4)
    rest, _ = steps(prepared, job, 5, state=json.loads(json.dumps(state)))
    assert plain(begun + rest) == plain(whole)


def test_the_evaluation_is_the_same_both_ways(both):
    _, flying, prepared = both
    found = [evaluation(data, rank=0, world=1, micro=1, sequences=8) for data in (flying, prepared)]
    assert found[0].targets == found[1].targets > 0
    assert [made["input_ids"].tolist() for made in found[0]] == [made["input_ids"].tolist() for made in found[1]]


def test_sources_that_moved_are_found_again_and_not_packed_again(both, make_job, folder, tmp_path):
    job, flying, _ = both
    whole, _ = steps(flying, job, 6)
    moved = folder.rename(tmp_path / "moved")
    found = prepare(make_job(str(moved), prepare=False), tmp_path / "flying")
    assert found.url == flying.url
    assert plain(steps(found, job, 6)[0]) == plain(whole)


def test_sources_that_went_away_while_training_end_it_with_their_names(both, folder, tmp_path):
    job, flying, _ = both
    folder.rename(tmp_path / "gone")
    with pytest.raises(SpecError, match=r"cannot be read(.|\n)*No such file or directory"):
        steps(flying, job, 1)


def test_prepared_data_that_is_there_is_used(make_job, folder, tmp_path):
    prepare(make_job(str(folder)), tmp_path)
    assert not prepare(make_job(str(folder), prepare=False), tmp_path).on_the_fly


def test_the_length_of_an_epoch_is_not_known(both):
    _, flying, _ = both
    with pytest.raises(SpecError, match=r"stop\.epochs = 1(.|\n)*data\.prepare is false"):
        flying.steps(1, 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """A small Ray."""
    import ray
    from ray import cloudpickle

    # Workers cannot import a test module.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "disabled")
        ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=100 * 2**20)
        yield ray
        ray.shutdown()


class Rank:
    """A worker of training: it holds a CPU while it reads."""

    def __init__(self, url: str, job: Any, rank: int, world: int):
        self.stream = Stream.of(Prepared.load(url), job, rank=rank, world=world, micro=1, state=None)

    def next(self) -> Any:
        step = self.stream.next()
        return step.ids, step.targets, [made["input_ids"].tolist() for made in step.micro_batches]


@pytest.mark.slow
def test_two_ranks_that_hold_all_cpus_are_served_by_one_packing(both, cluster):
    job, flying, prepared = both
    ray = cluster
    ranks = [ray.remote(num_cpus=1)(Rank).remote(flying.url, job, rank, 2) for rank in range(2)]
    found = [ray.get([rank.next.remote() for rank in ranks], timeout=900) for _ in range(12)]
    expected, _ = steps(prepared, job, 12, world=1, micro=1)
    for mine, step in zip(found, expected, strict=True):
        rows = [made["input_ids"].tolist() for made in step.micro_batches]
        assert [one[0] for one in mine] == [step.ids] * 2
        assert [one[2] for one in mine] == [rows[0::2], rows[1::2]]
    actor = ray.get_actor(f"raytrain-packing-{flying.hash}-2")
    counts = ray.get(actor.counts.remote())
    assert counts.documents == prepared.train.counts.documents
    for rank in ranks:
        ray.kill(rank)


@pytest.mark.slow
def test_bad_files_over_the_budget_end_the_run_with_their_names(make_job, folder, tmp_path, cluster):
    for number in range(3):
        (folder / "part0" / f"latin{number}.txt").write_bytes(b"caf\xe9\n" * number + b"\xe9\n")
    job = make_job(str(folder), prepare=False, bad_rows="4%", held_out="0%")
    flying = prepare(job, tmp_path / "store")
    rows = OnTheFly(flying, rank=0, world=1, bad_rows=Decimal("0.04"))
    with pytest.raises(SpecError, match=r"3 of 43 files and rows cannot be read(.|\n)*latin0.txt: not UTF-8"):
        rows.read(0)


def test_rows_are_the_same_from_the_store_and_from_a_file(both):
    _, flying, prepared = both
    rows = OnTheFly(flying, rank=0, world=1, bad_rows=Decimal(1)).read(0)
    assert to_table(rows).equals(to_table(prepared.read(0)))
    assert from_table(to_table(rows)).tokens.tolist() == rows.tokens.tolist()
