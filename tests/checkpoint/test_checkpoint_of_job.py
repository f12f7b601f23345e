"""A job's `checkpoint:` section does what it says."""

import json
import shutil
import threading
import time

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import committed
from raytrain_eks.checkpoint.of_job import bring_back, mirror_of, restored, retention, saver_of
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.job import Checkpoint


def test_without_a_mirror(run, job):
    section = Checkpoint(keep=2, keep_best=0, keep_every=3)
    assert retention(section) == Retention(2, 0, 3)
    assert mirror_of(run, section) is None
    assert not bring_back(run, section)
    attempt = run.claim(job)
    saver = saver_of(run, section, attempt=attempt, tell=lambda event: None)
    for step in range(1, 7):
        saver.save(step, whole({"w": torch.full((4,), float(step))}), {})
    saver.close()
    assert [each.step for each in committed(run)] == [3, 5, 6]
    with restored(run, section, attempt=attempt) as reader:
        assert reader.step == 6


def test_a_run_whose_node_is_lost_comes_back_from_its_mirror(run, job, tmp_path):
    section = Checkpoint(mirror=str(tmp_path / "mirror"), mirror_keep=1, mirror_codec="planes")
    events = []
    saver = saver_of(run, section, attempt=run.claim(job), tell=events.append)
    for step in (1, 2, 3):
        saver.save(step, whole({"w": torch.full((4,), float(step))}), {})
    saver.close()
    assert [each.step for each in committed(RunFolder(tmp_path / "mirror", run.name))] == [3]
    assert "mirrored" in {event["event"] for event in events}
    shutil.rmtree(run.storage.folder)
    assert bring_back(run, section)
    attempt = run.claim(job)
    assert attempt.number == 2
    with restored(run, section, attempt=attempt) as reader:
        assert torch.equal(reader.full("w"), torch.full((4,), 3.0))
    json.dumps(events)


@pytest.mark.slow
def test_a_run_folder_that_is_gone_and_a_mirror_that_does_not_answer(run, s3):
    url, faults = s3
    faults.always()
    with pytest.raises(OSError, match="ServiceUnavailable"):
        bring_back(run, Checkpoint(mirror=url))


def test_a_mirror_that_hangs_does_not_hold_up_saving(run, job, tmp_path, monkeypatch):
    from raytrain_eks.checkpoint.mirror import Mirror

    go_on = threading.Event()
    sync = Mirror.sync
    monkeypatch.setattr(Mirror, "sync", lambda self: (go_on.wait(20), sync(self))[1])
    section = Checkpoint(mirror=str(tmp_path / "mirror"))
    saver = saver_of(run, section, attempt=run.claim(job), tell=lambda event: None)
    began = time.monotonic()
    for step in (1, 2, 3):
        saver.save(step, whole({"w": torch.ones(4)}), {})
    saver.wait()
    assert [each.step for each in committed(run)] == [1, 2, 3]
    assert time.monotonic() - began < 15
    go_on.set()
    saver.close()
    assert [each.step for each in committed(RunFolder(tmp_path / "mirror", run.name))] == [1, 2, 3]
