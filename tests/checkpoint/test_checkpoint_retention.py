"""What stays, what goes, and that a crash half-way leaves whole checkpoints."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import Manifest, committed, steps
from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.retention import Retention, being_read, collect, prune, reading
from raytrain_eks.checkpoint.save import Saver


def listed(losses):
    return [Manifest(step, 1, "t", 1, (), {}, loss, "", "", {}, "") for step, loss in losses.items()]


@pytest.mark.parametrize(
    ("keep", "losses", "stay"),
    [
        (Retention(3, 0), {1: None, 2: None, 3: None, 4: None}, {2, 3, 4}),
        (Retention(1, 1), {1: 0.5, 2: 0.9, 3: 0.8}, {1, 3}),
        (Retention(1, 2), {1: 0.5, 2: float("nan"), 3: 0.8, 4: None}, {1, 3, 4}),
        (Retention(1, 1), {1: 0.5, 2: 0.5, 3: 0.8}, {2, 3}),
        (Retention(1, 0, every=10), {5: None, 10: None, 15: None, 20: None, 25: None}, {10, 20, 25}),
        (Retention(0, 0), {1: 0.5}, {1}),
        (Retention(2, 2), {}, set()),
    ],
)
def test_what_stays(keep, losses, stay):
    assert keep.stay(listed(losses)) == stay


@given(st.integers(0, 4), st.integers(0, 4), st.dictionaries(st.integers(1, 99), st.none() | st.floats(), min_size=1))
def test_the_newest_and_the_best_always_stay(last, best, losses):
    stay = Retention(last, best).stay(listed(losses))
    assert max(losses) in stay
    measured = [loss for loss in losses.values() if loss is not None and loss == loss]
    if best and measured:
        assert any(losses[step] == min(measured) for step in stay)


@pytest.fixture
def full(run, job):
    """A run with checkpoints of steps 1 to 5."""
    saver = Saver(run, run.claim(job), keep=Retention(last=10))
    for step in range(1, 6):
        saver.save(step, whole({"w": torch.full((100,), float(step))}), {})
    saver.close()
    return run


def test_pruning(full):
    assert prune(full, Retention(last=2, best=0), say=print) == [1, 2, 3]
    assert steps(full) == [4, 5]


def test_one_that_is_read_stays_until_it_is_closed(full):
    reader = restore(full, step=1)
    assert reading(full) == {1}
    assert prune(full, Retention(last=1, best=0), say=print) == [2, 3, 4]
    assert reader.full("w")[0] == 1
    reader.close()
    assert prune(full, Retention(last=1, best=0), say=print) == [1]


def test_a_reader_of_an_older_attempt_is_forgotten(full):
    reader = restore(full, step=1, attempt=full.begin())
    assert reading(full) == {1}
    full.begin()
    assert reading(full) == set()
    reader.close()


@pytest.mark.parametrize(("age", "is_read"), [(-1e6, True), (10, True), (3599, True), (4000, False)])
def test_a_dead_reader_is_forgotten_and_a_clock_that_went_back_is_harmless(full, age, is_read):
    with being_read(full, 2):
        (lease,) = (full.storage.folder / "checkpoints/reading").iterdir()
        now = full.storage.modified(f"checkpoints/reading/{lease.name}")
        os.utime(lease, (now - age, now - age))
        assert reading(full) == ({2} if is_read else set())


@pytest.mark.parametrize("after", range(6))
def test_a_crash_during_pruning(full, monkeypatch, after):
    """Dies at the n-th deletion: what is complete then is whole, and the next pruning clears the rest."""

    class Killed(BaseException):
        pass

    left = [after]

    def dying(function):
        def call(*arguments):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return function(*arguments)

        return call

    monkeypatch.setattr(full.storage, "remove", dying(full.storage.remove))
    monkeypatch.setattr(full.storage, "remove_tree", dying(full.storage.remove_tree))
    with pytest.raises(Killed):
        prune(full, Retention(last=1, best=0), say=print)
    monkeypatch.undo()
    for manifest in committed(full):
        with restore(full, step=manifest.step) as reader:
            assert reader.full("w")[0] == manifest.step
    prune(full, Retention(last=1, best=0), say=print)
    assert steps(full) == [5]


def test_orphans_of_dead_attempts_go_and_a_save_in_progress_stays(full):
    folder = full.storage.folder / "checkpoints"
    second = full.begin().number
    for name in [
        "step-00000009/a0001-0123456789ab-r00000.safetensors",  # a dead attempt
        "step-00000005/a0001-0123456789ab-r00001.json",  # beside a complete one
        f"step-00000010/a{second:04d}-aaaaaaaa0001-r00000.safetensors",  # an earlier save of ours that failed
        f"step-00000011/a{second:04d}-aaaaaaaa0003-r00000.safetensors",  # our next save
        f"step-00000012/a{second:04d}-bbbbbbbb0001-r00000.safetensors",  # another group of this attempt
        "step-00000013/notes.txt",  # somebody's
    ]:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"x")
    assert collect(full, newest=(second, "aaaaaaaa0002"), say=print) == 3
    assert steps(full) == [1, 2, 3, 4, 5, 11, 12, 13]
    assert collect(full, newest=None, say=print) == 2
    assert steps(full) == [1, 2, 3, 4, 5, 13]


def test_half_written_files_of_the_dead_go_and_those_of_a_save_in_progress_stay(full):
    folder = full.storage.folder / "checkpoints"
    token = committed(full)[-1].token
    later = f"{token[:8]}{int(token[8:], 16) + 1:04x}"
    dead = ["a0001-0123456701ab-r00000.safetensors", f"a0001-{token}-r00001.json", "manifest.json"]
    alive = [f"a0001-{later}-r00001.safetensors", "a0002-0123456701ab-r00000.safetensors"]
    (folder / "step-00000006").mkdir()
    (folder / "step-00000007").mkdir()
    for step in (4, 6):
        for name in dead + alive:
            (folder / f"step-{step:08d}" / f".tmp-{name}.0123456789ab").write_bytes(b"half")
    newest = (1, token)
    # Files of another worker group of the same attempt may be alive, so they stay until a newer attempt.
    assert collect(full, newest=newest, say=print) == 4
    assert {len(full.storage.leftovers(f"checkpoints/step-{step:08d}")) for step in (4, 6)} == {3}
    assert steps(full) == [1, 2, 3, 4, 5, 6]
    assert collect(full, newest=None, say=print) == 6
    assert steps(full) == [1, 2, 3, 4, 5]


def test_what_became_complete_after_the_look_stays(full, monkeypatch):
    """A process that was stopped between looking and deleting, or a person who prunes while a run trains."""
    before = committed(full)[:3]
    monkeypatch.setattr("raytrain_eks.checkpoint.retention.committed", lambda run: before)
    collect(full, newest=None, say=print)
    assert [each.step for each in committed(full)] == [1, 2, 3, 4, 5]


def test_an_attempt_that_is_fenced_deletes_nothing(full):
    newest = (max(full.attempts()), committed(full)[-1].token)
    full.begin()
    assert prune(full, Retention(last=1, best=0), newest=newest, say=print) == []
    assert steps(full) == [1, 2, 3, 4, 5]
