"""Damage of every kind is found, named and set aside, and the checkpoint before it is taken."""

import os
import re
import shutil
import subprocess

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import Damaged, committed, quarantined, steps
from raytrain_eks.checkpoint.restore import restore, verified
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.checkpoint.save import Saver


@pytest.fixture
def two(run, job):
    """A run with checkpoints of steps 1 and 2."""
    saver = Saver(run, run.claim(job), keep=Retention(last=5))
    for step in (1, 2):
        saver.save(step, whole({"w": torch.full((10_000,), float(step)), "v": torch.arange(10)}), {})
    saver.close()
    return run


def data_file(run, step=2):
    (file,) = (run.storage.folder / f"checkpoints/step-{step:08d}").glob("*.safetensors")
    return file


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a flipped bit in the data": (lambda run: flip(data_file(run), -5), r"safetensors is not what was written"),
    "a flipped bit in the header": (lambda run: flip(data_file(run), 9), r"safetensors is not what was written"),
    "a truncated file": (lambda run: os.truncate(data_file(run), 1000), r"has 1000 bytes, \d+ were written"),
    "a file that grew": (lambda run: os.truncate(data_file(run), 90_000), r"has 90000 bytes"),
    "a deleted file": (lambda run: data_file(run).unlink(), r"safetensors is missing"),
    "a deleted record": (lambda run: data_file(run).with_suffix(".json").unlink(), r"json is missing"),
    "a flipped bit in a record": (lambda run: flip(data_file(run).with_suffix(".json"), 40), r"json is not what was"),
    "a flipped bit in the manifest": (lambda run: flip(data_file(run).parent / "manifest.json", 60), r"manifest"),
    "a torn manifest": (lambda run: os.truncate(data_file(run).parent / "manifest.json", 100), r"manifest.*torn"),
    "an empty manifest": (lambda run: os.truncate(data_file(run).parent / "manifest.json", 0), r"manifest.*torn"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_set_aside_out_loud_and_the_one_before_is_taken(two, kind):
    damage, reason = DAMAGE[kind]
    damage(two)
    said = []
    with restore(two, say=said.append) as reader:
        assert reader.step == 1
        assert torch.equal(reader.full("w"), torch.full((10_000,), 1.0))
    assert len(said) == 1
    assert said[0].startswith("checkpoint of step 2 is not whole and is set aside as step-00000002.bad-1: ")
    assert re.search(reason, said[0])
    assert quarantined(two) == ["step-00000002.bad-1"]
    assert (two.storage.folder / "checkpoints/step-00000002.bad-1/quarantine.json").exists()
    assert [each.step for each in committed(two)] == [1]


def test_a_checkpoint_without_a_manifest_does_not_exist(two):
    (data_file(two).parent / "manifest.json").unlink()
    with restore(two) as reader:
        assert reader.step == 1
    assert quarantined(two) == []


@pytest.mark.parametrize(("level", "found"), [("full", True), ("sizes", False), ("off", False)])
def test_how_much_is_checked(two, level, found):
    flip(data_file(two), -5)
    with restore(two, verify=level) as reader:
        assert reader.step == (1 if found else 2)


def test_sizes_find_a_truncated_file(two):
    os.truncate(data_file(two), 1000)
    with restore(two, verify="sizes") as reader:
        assert reader.step == 1


def test_all_bad_is_nothing(two):
    for step in (1, 2):
        flip(data_file(two, step), -5)
    assert restore(two) is None
    assert len(quarantined(two)) == 2


def test_the_same_step_can_be_set_aside_twice(two, job):
    flip(data_file(two), -5)
    restore(two).close()
    saver = Saver(two, two.begin())
    saver.save(2, whole({"w": torch.zeros(3)}), {})
    saver.close()
    flip(data_file(two), -5)
    restore(two).close()
    assert quarantined(two) == ["step-00000002.bad-1", "step-00000002.bad-2"]


def test_a_step_that_was_asked_for_is_taken_or_refused(two):
    with restore(two, step=1) as reader:
        assert reader.step == 1
    with pytest.raises(Damaged, match="no complete checkpoint of step 7; there are: 1, 2"):
        restore(two, step=7)
    flip(data_file(two), -5)
    with pytest.raises(Damaged, match="step 2 is not whole"):
        restore(two, step=2)
    assert quarantined(two) == []


def test_verified_says_what_is_wrong_and_touches_nothing(two):
    assert verified(two, 2) is None
    flip(data_file(two), -5)
    assert "is not what was written" in verified(two, 2)
    assert "no manifest" in verified(two, 3)
    assert steps(two) == [1, 2]


def test_storage_that_fails_is_an_error_and_no_damage(two, monkeypatch):
    def fails(*arguments):
        raise OSError(5, "Input/output error", "there")

    monkeypatch.setattr("raytrain_eks.checkpoint.restore.check_files", fails)
    with pytest.raises(OSError, match="Input/output"):
        restore(two)
    assert quarantined(two) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="root mounts a read-only file system; another user's chmod is enough")
def test_a_read_only_folder_is_read(two, tmp_path):
    flip(data_file(two), -5)
    mount = tmp_path / "ro"
    mount.mkdir()
    if subprocess.run(["mount", "--bind", "-o", "ro", two.parent.folder, mount], capture_output=True).returncode:
        pytest.skip("no right to mount here")
    subprocess.run(["mount", "-o", "remount,ro,bind", mount], check=True, capture_output=True)
    try:
        said = []
        with restore(RunFolder(mount, "small"), say=said.append) as reader:
            assert reader.step == 1
        assert "could not be set aside" in said[1]
    finally:
        subprocess.run(["umount", mount], check=True)


def test_a_moved_run_goes_on(two, job, tmp_path):
    shutil.move(two.storage.folder, tmp_path / "moved" / "small")
    moved = RunFolder(tmp_path / "moved", "small")
    saver = Saver(moved, moved.claim(job), keep=Retention(last=5))
    with restore(moved) as reader:
        assert reader.step == 2
    saver.save(3, whole({"w": torch.zeros(3)}), {})
    saver.close()
    assert [each.step for each in committed(moved)] == [1, 2, 3]
    # No stored file names the place where it was written.
    for path, _ in moved.storage.files():
        assert str(tmp_path).encode() not in moved.storage.read(path)


def test_a_clock_that_goes_backwards_changes_nothing(two, job, monkeypatch):
    monkeypatch.setattr("time.time", lambda: 1000.0)
    monkeypatch.setattr("time.gmtime", lambda *_: __import__("time").localtime(0))
    saver = Saver(two, two.claim(job), keep=Retention(last=2))
    saver.save(3, whole({"w": torch.zeros(3)}), {})
    saver.close()
    assert [each.step for each in committed(two)] == [2, 3]
    with restore(two) as reader:
        assert reader.step == 3
