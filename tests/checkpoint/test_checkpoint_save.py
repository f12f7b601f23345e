"""One process saves and restores; what happens between `save()` and the file, and when it goes wrong."""

import os
import threading
import time

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import committed, read_manifest, steps
from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import Fenced
from raytrain_eks.checkpoint.save import CheckpointFailed, Saver


def state(value: float) -> dict[str, torch.Tensor]:
    return {"w": torch.full((300, 7), value), "n": torch.tensor(int(value)), "empty": torch.empty(0, 3)}


@pytest.fixture
def saver(run, job):
    with_events = Saver(run, run.claim(job), keep=Retention(last=2, best=1), tell=lambda event: events.append(event))
    events = with_events.events = []
    return with_events


def test_what_was_saved_is_restored(run, saver):
    saver.save(5, whole(state(5)), {"data": {"epoch": 1}}, loss=3.5, rank_meta={"rng": [1]})
    saver.close()
    with restore(run) as reader:
        assert (reader.step, reader.meta, reader.rank_meta(0), reader.world) == (
            5,
            {"data": {"epoch": 1}},
            {"rng": [1]},
            1,
        )
        for name, tensor in state(5).items():
            assert torch.equal(reader.full(name), tensor)
    manifest = saver.committed
    assert (manifest.loss, manifest.attempt, manifest.spec) == (3.5, 1, run.identity()["spec"])
    assert manifest.versions["torch"].startswith("2.")
    assert saver.events[0]["event"] == "checkpoint"


def test_nothing_to_restore(run, job):
    assert restore(run) is None
    run.claim(job)
    assert restore(run) is None


def test_steps_after_save_never_reach_the_file(run, saver, monkeypatch):
    go_on = threading.Event()
    write = saver._write
    monkeypatch.setattr(saver, "_write", lambda pending: (go_on.wait(10), write(pending)))
    tensors = state(1)
    saver.save(1, whole(tensors), {})
    for tensor in tensors.values():
        tensor.add_(1)
    go_on.set()
    saver.close()
    assert torch.equal(restore(run).full("w"), state(1)["w"])


def test_a_second_save_waits_for_the_first(run, saver, monkeypatch):
    write = saver._write
    monkeypatch.setattr(saver, "_write", lambda pending: (time.sleep(0.2), write(pending)))
    assert saver.save(1, whole(state(1)), {})
    assert saver.save(2, whole(state(2)), {})
    assert saver.stalled >= 0.15
    saver.close()
    assert [each.step for each in committed(run)] == [1, 2]
    assert torch.equal(restore(run, step=1).full("w"), state(1)["w"])


def test_a_second_save_is_skipped_if_so_told(run, saver, monkeypatch):
    go_on = threading.Event()
    write = saver._write
    monkeypatch.setattr(saver, "_write", lambda pending: (go_on.wait(10), write(pending)))
    saver.busy = "skip"
    assert saver.save(1, whole(state(1)), {})
    assert not saver.save(2, whole(state(2)), {})
    go_on.set()
    saver.close()
    assert steps(run) == [1]
    assert "checkpoint_skipped" in [event["event"] for event in saver.events]


def test_host_memory_does_not_grow(run, saver):
    for step in range(1, 4):
        saver.save(step, whole(state(step)), {})
        buffer = saver._buffer.memory.data_ptr()
    saver.close()
    assert saver._buffer.memory.data_ptr() == buffer


def test_the_last_and_the_best_stay(run, saver):
    for step, loss in [(1, 9.0), (2, 1.0), (3, float("nan")), (4, 5.0), (5, None)]:
        saver.save(step, whole(state(step)), {}, loss=loss)
    saver.close()
    assert [each.step for each in committed(run)] == [2, 4, 5]


def test_saving_a_step_again_replaces_it(run, saver):
    for value in (1, 2):
        saver.save(7, whole(state(value)), {})
    saver.save(8, whole(state(3)), {})
    saver.close()
    assert torch.equal(restore(run, step=7).full("w"), state(2)["w"])
    manifest = read_manifest(run, 7)
    assert {entry.name for entry in run.storage.entries(manifest.folder)} == {
        "manifest.json",
        *(file.name for file in manifest.files),
    }


def test_errors_surface_and_end_the_run_after_the_budget(run, saver, monkeypatch):
    monkeypatch.setattr(saver, "_write", lambda pending: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    saver.budget = 2
    for step in (1, 2):
        saver.save(step, whole(state(step)), {})
    saver.wait()
    assert [error.step for error in saver.errors] == [1, 2]
    assert [event["event"] for event in saver.events] == ["checkpoint_failed"] * 2
    with pytest.raises(CheckpointFailed, match=r"2 checkpoints failed in a row.*No space left"):
        saver.save(3, whole(state(3)), {})
    with pytest.raises(CheckpointFailed):
        saver.close()


def test_one_failure_is_forgiven(run, saver, monkeypatch):
    write = saver._write
    failing = [True]

    def sometimes(pending):
        if failing.pop():
            raise OSError(5, "Input/output error")
        write(pending)

    monkeypatch.setattr(saver, "_write", sometimes)
    saver.save(1, whole(state(1)), {})
    saver.wait()
    failing.append(False)
    saver.save(2, whole(state(2)), {})
    saver.close()
    assert [each.step for each in committed(run)] == [2]


def test_an_older_attempt_cannot_commit(run, job, saver):
    saver.save(1, whole(state(1)), {})
    saver.wait()
    newer = Saver(run, run.begin())
    saver.save(2, whole(state(2)), {})
    with pytest.raises(Fenced):
        saver.close()
    with pytest.raises(Fenced):
        saver.save(3, whole(state(3)), {})
    assert [each.step for each in committed(run)] == [1]
    newer.save(2, whole(state(20)), {})
    newer.close()
    assert torch.equal(restore(run).full("w"), state(20)["w"])
    left = os.listdir(run.storage.folder / "checkpoints/step-00000002")
    assert [name for name in left if name.startswith("a0001-")] == []


def test_a_commit_that_slips_in_after_the_newer_inventory_does_not_count(run, job, saver, monkeypatch):
    """The older attempt stops between its last look at the owner and its manifest; the newer begins; it goes on."""
    attempt = []
    create = run.storage.create

    def late(path, data):
        if path.endswith("manifest.json") and not attempt:
            attempt.append(run.begin())
        return create(path, data)

    monkeypatch.setattr(run.storage, "create", late)
    saver.save(1, whole(state(1)), {})
    with pytest.raises(Fenced):
        saver.close()
    assert read_manifest(run, 1) is not None
    assert committed(run) == []
    assert restore(run) is None
    newer = Saver(run, attempt[0])
    newer.save(1, whole(state(2)), {})
    newer.close()
    assert torch.equal(restore(run).full("w"), state(2)["w"])


def test_meta_must_be_json(saver):
    with pytest.raises(TypeError):
        saver.save(1, whole(state(1)), {"rng": object()})
