"""Taking over another trial's checkpoint: whole or not at all, once, and held against the donor's own retention."""

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import Damaged, committed
from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.retention import Retention, being_read, prune
from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.checkpoint.save import Saver
from raytrain_eks.spec.job import Job
from raytrain_eks.tune.clone import lineage, take_over


@pytest.fixture
def runs(tmp_path):
    """A donor with checkpoints of steps 10, 20 and 30, and a run that is at step 20, of other values."""
    from world import JOB

    made = []
    for name, steps, value in (("t0001", (10, 20, 30), 1.0), ("t0002", (10, 20), 2.0)):
        run = RunFolder(str(tmp_path), name)
        attempt = run.claim(Job.parse(JOB | {"name": name}))
        saver = Saver(run, attempt, keep=Retention(last=9), tell=lambda event: None)
        for step in steps:
            saver.save(step, whole({"weight": torch.full((4, 3), value * step)}), {"step": step}, loss=None)
            saver.wait()
        saver.close()
        made.append(run)
    return made


def state(run: RunFolder) -> tuple[int, float]:
    with restore(run) as reader:
        return reader.step, float(reader.full("weight")[0, 0])


def test_the_copy_is_the_only_checkpoint_and_is_found_by_later_attempts(runs):
    donor, run = runs
    assert take_over(run, donor, 10, 1)
    assert state(run) == (10, 10.0)
    assert [each.step for each in committed(run)] == [10]
    run.begin()
    assert state(run) == (10, 10.0)
    assert state(donor) == (30, 30.0)
    assert lineage(run) == [{"donor": "t0001", "step": 10}]


def test_a_clone_is_made_once_and_the_next_one_again(runs):
    donor, run = runs
    assert take_over(run, donor, 10, 1)
    assert not take_over(run, donor, 20, 1)
    assert state(run) == (10, 10.0)
    assert take_over(run, donor, 30, 2)
    assert state(run) == (30, 30.0)
    assert len(lineage(run)) == 2


def test_a_copy_that_a_crash_left_half_made_is_made_again(runs, monkeypatch):
    donor, run = runs
    write = type(run.storage).write

    def dies(self, path, data):
        if path.endswith("manifest.json"):
            raise KeyboardInterrupt
        write(self, path, data)

    monkeypatch.setattr(type(run.storage), "write", dies)
    with pytest.raises(KeyboardInterrupt):
        take_over(run, donor, 20, 1)
    monkeypatch.undo()
    assert committed(run) == []
    assert take_over(run, donor, 20, 1)
    assert state(run) == (20, 20.0)


def test_a_checkpoint_that_is_gone_is_never_cloned(runs):
    donor, run = runs
    with pytest.raises(Damaged, match="t0001 has no whole checkpoint of step 15"):
        take_over(run, donor, 15, 1)
    assert state(run) == (20, 40.0)


def test_a_held_one_outlives_the_donor_s_retention(runs):
    donor, run = runs
    with being_read(donor, 10):
        assert prune(donor, Retention(last=1, best=0), say=lambda text: None) == [20]
        assert take_over(run, donor, 10, 1)
    assert prune(donor, Retention(last=1, best=0), say=lambda text: None) == [10]
