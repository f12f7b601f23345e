"""SIGKILL at seeded instants of real writers, at changing world sizes: nothing complete is ever lost or wrong.

Each kill is followed by a group that restores what is there (it compares every bit) and goes on; see `writers`.
"""

import os
import random
import signal
import time

import pytest
from writers import Writers

from raytrain_eks.checkpoint.manifest import committed, steps
from raytrain_eks.checkpoint.restore import verified
from raytrain_eks.checkpoint.run import RunFolder

QUICK, SEEDS, AT_OPERATIONS, FROM_OUTSIDE, MIRRORING = 10, (100, 200), 32, 26, 12
"""How many groups of ranks are killed in each test. Each test asserts of every one that a SIGKILL hit it."""


def test_a_hundred_kills():
    assert QUICK + len(SEEDS) * AT_OPERATIONS + FROM_OUTSIDE + MIRRORING >= 100


@pytest.fixture(scope="module")
def writers():
    found = Writers()
    yield found
    found.close()


@pytest.fixture
def toy(tmp_path, job):
    run = RunFolder(tmp_path / "runs", "toy")
    run.open(job)
    return run


def newest(run):
    return max((each.step for each in committed(run)), default=0)


def check_all(run):
    """Every checkpoint that exists is whole."""
    for manifest in committed(run):
        assert verified(run, manifest.step) is None


def finish(run, writers, world=2):
    """A last group ends well, and leaves nothing that belongs to no checkpoint."""
    before = newest(run)
    writers.start(run.parent.folder, world=world, steps=2)
    assert writers.wait() == [0] * world
    assert newest(run) == before + 2
    check_all(run)
    assert steps(run) == [each.step for each in committed(run)]
    for manifest in committed(run):
        names = set(os.listdir(run.storage.folder / manifest.folder))
        assert names == {file.name for file in manifest.files} | {"manifest.json"}


def at_operations(run, writers, seeds, highest):
    """Kills of one rank at its n-th change of the file system: the group does more steps than it can live to see."""
    for seed in seeds:
        dice = random.Random(seed)
        world = dice.choice([1, 2, 3])
        before = newest(run)
        choice = {"kill_rank": dice.randrange(world), "kill_at": dice.randrange(1, highest)}
        writers.start(run.parent.folder, world=world, steps=highest, **choice)
        assert writers.wait()[choice["kill_rank"]] == -signal.SIGKILL, (seed, choice)
        assert newest(run) >= before, (seed, choice)
        check_all(run)


def test_killed_at_any_change_of_the_file_system(toy, writers):
    at_operations(toy, writers, range(QUICK), highest=60)
    finish(toy, writers)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_killed_at_any_change_of_the_file_system_many_times(toy, writers, seed):
    at_operations(toy, writers, range(seed, seed + AT_OPERATIONS), highest=75)
    finish(toy, writers, world=3)


@pytest.mark.slow
def test_killed_at_any_time_from_outside(toy, writers):
    for seed in range(FROM_OUTSIDE):
        dice = random.Random(seed)
        world = dice.choice([1, 2, 3])
        before = newest(toy)
        group = writers.start(toy.parent.folder, world=world, steps=50, slow=0.001)
        time.sleep(dice.uniform(0.05, 0.6))
        victims = group if dice.random() < 0.5 else [dice.choice(group)]
        for victim in victims:
            os.kill(victim, signal.SIGKILL)
        assert -9 in writers.wait()
        assert newest(toy) >= before
        check_all(toy)
    finish(toy, writers)


@pytest.mark.slow
def test_overlapping_attempts_never_both_commit(toy, writers):
    """A group is stopped (SIGSTOP: a node that was cut off), a newer one takes over, the older wakes up again."""
    older_writers = Writers()
    try:
        for seed in range(6):
            dice = random.Random(seed)
            older = older_writers.start(toy.parent.folder, world=2, steps=200, slow=0.001)
            time.sleep(dice.uniform(0.1, 0.6))
            for rank in older:
                os.kill(rank, signal.SIGSTOP)
            frozen = newest(toy)
            writers.start(toy.parent.folder, world=dice.choice([1, 2]), steps=4)
            time.sleep(dice.uniform(0.0, 0.2))
            for rank in older:
                os.kill(rank, signal.SIGCONT)
            assert set(writers.wait()) == {0}
            assert set(older_writers.wait(20)) != {0}
            check_all(toy)
            assert newest(toy) >= frozen + 4
            # Steps after the takeover are the newer group's alone.
            numbers = [each.attempt for each in committed(toy)]
            assert numbers == sorted(numbers)
        finish(toy, writers)
    finally:
        older_writers.close()


@pytest.mark.slow
def test_killed_while_mirroring(toy, writers, tmp_path):
    """The mirror is killed with its run; what is complete in it is whole, and it catches up."""
    mirror = RunFolder(tmp_path / "mirror", "toy")
    for seed in range(MIRRORING):
        dice = random.Random(seed)
        writers.start(
            toy.parent.folder, world=1, steps=50, mirror=str(tmp_path / "mirror"), kill_rank=0,
            kill_at=dice.randrange(1, 200),
        )  # fmt: skip
        assert writers.wait() == [-signal.SIGKILL]
        check_all(toy)
    writers.start(toy.parent.folder, world=1, steps=2, mirror=str(tmp_path / "mirror"))
    assert writers.wait() == [0]
    from raytrain_eks.checkpoint.mirror import Mirror

    assert [each.step for each in committed(mirror)] == [each.step for each in committed(toy)][-2:]
    back = RunFolder(tmp_path / "back", "toy")
    brought = Mirror(back, str(tmp_path / "mirror"))
    brought.bring_identity()
    for step in brought.missing():
        brought.bring(step)
        assert verified(back, step) is None


def test_the_disk_is_full(tmp_path, job):
    """A small file system of its own: saves fail with the reason, training goes on, and they succeed again later."""
    import subprocess

    import torch

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.save import CheckpointFailed, Saver

    mount = tmp_path / "small"
    mount.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", mount], capture_output=True)
    if made.returncode:
        pytest.skip("no right to mount a small file system here")
    try:
        run = RunFolder(mount, "full")
        saver = Saver(run, run.claim(job), budget=3)
        saver.save(1, whole({"w": torch.ones(10**6)}), {})
        saver.wait()
        filler = mount / "filler"
        filler.write_bytes(bytes(6 * 2**20))
        for step in (2, 3):
            saver.save(step, whole({"w": torch.full((10**6,), float(step))}), {})
        saver.wait()
        assert ["No space left" in error.reason for error in saver.errors] == [True, True]
        with restore(run) as reader:
            assert reader.step == 1
        filler.unlink()
        saver.save(4, whole({"w": torch.full((10**6,), 4.0)}), {})
        saver.close()
        with restore(run) as reader:
            assert reader.step == 4
        filler.write_bytes(bytes(3 * 2**20))
        for step in (5, 6, 7):
            saver.save(step, whole({"w": torch.full((10**6,), float(step))}), {})
        saver.wait()
        with pytest.raises(CheckpointFailed, match="No space left"):
            saver.save(8, whole({"w": torch.full((10**6,), 8.0)}), {})
    finally:
        subprocess.run(["umount", "-l", mount], check=True)


def test_the_folder_turns_read_only(tmp_path, job):
    import subprocess

    import torch

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.save import CheckpointFailed, Saver

    mount = tmp_path / "ro"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", mount], capture_output=True).returncode:
        pytest.skip("no right to mount here")
    try:
        run = RunFolder(mount, "ro")
        saver = Saver(run, run.claim(job), budget=2)
        saver.save(1, whole({"w": torch.ones(10)}), {})
        saver.wait()
        subprocess.run(["mount", "-o", "remount,ro", mount], check=True)
        saver.save(2, whole({"w": torch.ones(10)}), {})
        saver.wait()
        saver.save(3, whole({"w": torch.ones(10)}), {})
        saver.wait()
        with pytest.raises(CheckpointFailed, match="Read-only file system"):
            saver.save(4, whole({"w": torch.ones(10)}), {})
        assert newest(run) == 1
    finally:
        subprocess.run(["umount", "-l", mount], check=True)
