"""A run folder on S3, without a folder anywhere: saved, fenced, damaged, restored."""

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import committed, quarantined, steps
from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import EVENTS, Fenced, RunFolder, list_runs
from raytrain_eks.checkpoint.save import CheckpointFailed, Saver

pytestmark = pytest.mark.slow


def state(value):
    return {"w": torch.full((5000, 3), float(value))}


@pytest.fixture
def there(s3):
    url, faults = s3
    return RunFolder(f"{url}/runs", "small"), faults


def test_saved_pruned_and_restored(there, job):
    run, _ = there
    saver = Saver(run, run.claim(job), keep=Retention(last=2, best=0))
    for step in (1, 2, 3):
        saver.save(step, whole(state(step)), {"step": step})
    saver.close()
    assert [each.step for each in committed(run)] == steps(run) == [2, 3]
    with restore(run) as reader:
        assert reader.meta == {"step": 3}
        assert torch.equal(reader.full("w"), state(3)["w"])
        assert torch.equal(reader.box("w", (10, 1), (30, 2)), state(3)["w"][10:40, 1:3])
    appender = run.storage.appender(EVENTS)
    appender.write(b'{"event": "x"}\n')
    appender.close()
    assert run.last_line(EVENTS) == {"event": "x"}
    (found,) = list_runs(run.parent)
    assert (found.name, found.checkpoint) == ("small", 3)


def test_what_was_checked_is_not_read_again(there, job):
    run, faults = there
    saver = Saver(run, run.claim(job))
    saver.save(1, whole(state(1)), {})
    saver.close()
    faults.requests.clear()
    with restore(run) as reader:
        assert torch.equal(reader.full("w"), state(1)["w"])
        assert torch.equal(reader.box("w", (10, 1), (30, 2)), state(1)["w"][10:40, 1:3])
    assert sum(method == "GET" and "safetensors" in path for method, path in faults.requests) == 1


def test_an_older_attempt_is_fenced(there, job):
    run, _ = there
    older = Saver(run, run.claim(job))
    older.save(1, whole(state(1)), {})
    older.wait()
    newer = Saver(run, run.claim(job))
    older.save(2, whole(state(2)), {})
    with pytest.raises(Fenced):
        older.close()
    newer.save(2, whole(state(20)), {})
    newer.close()
    with restore(run) as reader:
        assert torch.equal(reader.full("w"), state(20)["w"])


def test_damage_is_set_aside(there, job):
    run, _ = there
    saver = Saver(run, run.claim(job))
    for step in (1, 2):
        saver.save(step, whole(state(step)), {})
    saver.close()
    (file,) = saver.committed.data
    path = f"checkpoints/step-00000002/{file.name}"
    content = bytearray(run.storage.read(path))
    content[-1] ^= 1
    run.storage.write(path, bytes(content))
    said = []
    with restore(run, say=said.append) as reader:
        assert reader.step == 1
    assert quarantined(run) == ["step-00000002.bad-1"]
    assert steps(run) == [1]


@pytest.mark.parametrize("kind", ["503", "reset", "lost", "truncate"])
def test_one_fault_in_each_few_requests_is_not_noticed(there, job, kind):
    run, faults = there
    attempt = run.claim(job)
    faults.often(seed=1, probability=0.2, kinds=[kind])
    saver = Saver(run, attempt)
    for step in (1, 2):
        saver.save(step, whole(state(step)), {})
    saver.close()
    assert saver.errors == []
    with restore(run) as reader:
        assert torch.equal(reader.full("w"), state(2)["w"])
    assert faults.injected


def test_an_outage_fails_saves_out_loud_and_training_goes_on_until_the_budget(there, job):
    run, faults = there
    events = []
    saver = Saver(run, run.claim(job), budget=2, tell=events.append)
    faults.always("SlowDown")
    saver.save(1, whole(state(1)), {})
    saver.wait()
    faults.never()
    saver.save(2, whole(state(2)), {})
    saver.wait()
    faults.always("SlowDown")
    for step in (3, 4):
        saver.save(step, whole(state(step)), {})
        saver.wait()
    with pytest.raises(CheckpointFailed, match="SlowDown"):
        saver.save(5, whole(state(5)), {})
    faults.never()
    assert [each.step for each in committed(run)] == [2]
    assert [event["event"] for event in events] == ["checkpoint_failed", "checkpoint"] + 2 * ["checkpoint_failed"]
