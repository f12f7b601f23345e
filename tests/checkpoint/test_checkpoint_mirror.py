"""The mirror: what is complete is copied, comes back whole, and its faults never reach training."""

import gzip
import os
import shutil
import threading
import time

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.codec import Codec
from raytrain_eks.checkpoint.manifest import Damaged, committed
from raytrain_eks.checkpoint.mirror import Mirror
from raytrain_eks.checkpoint.mirroring import MirrorThread, Watched, watch
from raytrain_eks.checkpoint.restore import restore, verified
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import METRICS, Fenced, RunFolder
from raytrain_eks.checkpoint.save import Saver

CODECS = [Codec("none"), Codec("zstd"), Codec("gzip", 6), Codec("planes")]


def state(value):
    return {"w": torch.arange(20_000).float() + value, "b": torch.ones(3).bfloat16()}


def save(run, attempt, steps, last=9):
    saver = Saver(run, attempt, keep=Retention(last=last))
    for step in steps:
        saver.save(step, whole(state(step)), {"step": step})
    saver.close()


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("raytrain_eks.checkpoint.save.BLOCK", 30_000)


@pytest.fixture
def attempt(run, job):
    return run.claim(job)


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_there_and_back(run, attempt, tmp_path, codec):
    there_and_back(run, attempt, str(tmp_path / "mirror"), codec)


@pytest.mark.slow
@pytest.mark.parametrize("codec", [CODECS[0], CODECS[3]], ids=["none", "planes"])
@pytest.mark.slow
def test_there_and_back_by_s3(run, attempt, s3, codec):
    there_and_back(run, attempt, s3[0] + "/mirror", codec)


def there_and_back(run, attempt, place, codec):
    save(run, attempt, [1, 2, 3])
    run.storage.write(METRICS, b'{"step": 3}\n')
    mirror = Mirror(run, place, codec=codec, keep=Retention(last=2, best=0))
    done = mirror.sync()
    assert (done.checkpoints, done.removed) == ([3, 2], [])
    assert [each.step for each in committed(mirror.copy)] == [2, 3]
    before = dict(run.storage.files("checkpoints"))
    shutil.rmtree(run.storage.folder)
    back = Mirror(RunFolder(run.parent, run.name), place)
    assert back.bring_identity()
    with restore(run, mirror=back) as reader:
        assert (reader.step, reader.meta) == (3, {"step": 3})
        assert torch.equal(reader.full("w"), state(3)["w"])
    assert run.last_line(METRICS) == {"step": 3}
    assert verified(run, 3) is None
    assert dict(run.storage.files("checkpoints/step-00000003")) == {
        path: size for path, size in before.items() if "00003/" in path
    }
    assert run.begin().number == attempt.number + 1


@pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name)
def test_packed_blocks_are_unpacked(codec):
    block = os.urandom(5000) + bytes(5002)
    packed = codec.pack(memoryview(block))
    assert codec.unpack(packed, len(block)) == block
    with pytest.raises(ValueError):
        codec.unpack(packed[:-9], len(block))
    with pytest.raises(ValueError):
        codec.unpack(packed, len(block) - 1) if codec.name in ("none", "gzip") else codec.unpack(b"x" + packed, 10)


def test_packed_files_are_plain_gzip(run, attempt, tmp_path):
    save(run, attempt, [1])
    Mirror(run, str(tmp_path / "mirror"), codec=Codec("gzip")).sync()
    (packed,) = (tmp_path / "mirror").rglob("*.safetensors.gz")
    assert gzip.decompress(packed.read_bytes()) == next(run.storage.folder.rglob("*.safetensors")).read_bytes()


@pytest.mark.parametrize(("codec", "level"), [("lz9", None), ("gzip", 10), ("none", 1), ("zstd", 0)])
def test_codecs_that_are_none(codec, level):
    with pytest.raises(ValueError):
        Codec(codec, level)


@pytest.mark.slow
def test_an_unpacked_mirror_is_a_run(run, attempt, s3, job):
    place = s3[0]
    save(run, attempt, [1, 2])
    Mirror(run, place, codec=Codec("none")).sync()
    there = RunFolder(place, run.name)
    newer = there.claim(job)
    assert newer.run_id == attempt.run_id
    with restore(there) as reader:
        assert torch.equal(reader.full("w"), state(2)["w"])
    save(there, newer, [3], last=2)
    assert [each.step for each in committed(there)] == [2, 3]


@pytest.mark.slow
def test_only_what_is_new_is_sent(run, attempt, s3):
    url, faults = s3
    save(run, attempt, [1, 2])
    mirror = Mirror(run, url, keep=Retention(last=2, best=0))
    mirror.sync()
    for again in (mirror, Mirror(run, url, keep=Retention(last=2, best=0))):
        faults.requests.clear()
        done = again.sync()
        assert (done.checkpoints, done.files, done.sent) == ([], 0, 0)
        assert [method for method, _ in faults.requests if method in ("PUT", "POST", "DELETE")] == []
    save(run, attempt, [3])
    done = mirror.sync()
    assert (done.checkpoints, done.removed) == ([3], [1])


@pytest.mark.slow
def test_an_upload_that_broke_off_goes_on(run, attempt, s3):
    url, faults = s3
    save(run, attempt, [1])
    faults.choose = lambda method, path: "503" if method == "PUT" and "manifest" in path else None
    with pytest.raises(OSError, match="ServiceUnavailable"):
        Mirror(run, url).sync()
    assert committed(RunFolder(url, run.name)) == []
    faults.never()
    faults.requests.clear()
    assert Mirror(run, url).sync().checkpoints == [1]
    assert [path for method, path in faults.requests if method == "PUT" and "safetensors" in path] == []


@pytest.mark.slow
def test_faults_of_every_kind_are_ridden_out(run, attempt, s3):
    url, faults = s3
    save(run, attempt, [1, 2])
    faults.often(seed=3, probability=0.15, kinds=["503", "SlowDown", "reset", "truncate", "lost"])
    Mirror(run, url).sync()
    shutil.rmtree(run.storage.folder)
    back = Mirror(run, url)
    back.bring_identity()
    back.bring(2)
    assert len({kind for *_, kind in faults.injected}) >= 4
    faults.never()
    with restore(run) as reader:
        assert torch.equal(reader.full("w"), state(2)["w"])


@pytest.mark.parametrize("codec", CODECS[:2], ids=lambda codec: codec.name)
def test_damage_in_the_mirror_is_found_and_the_one_before_is_brought(run, attempt, tmp_path, codec):
    save(run, attempt, [1, 2])
    Mirror(run, str(tmp_path / "m"), codec=codec).sync()
    (packed,) = (tmp_path / "m" / run.name / "checkpoints/step-00000002").glob("*.safetensors*")
    content = bytearray(packed.read_bytes())
    content[len(content) // 2] ^= 1
    packed.write_bytes(content)
    shutil.rmtree(run.storage.folder)
    mirror = Mirror(run, str(tmp_path / "m"))
    mirror.bring_identity()
    with pytest.raises(Damaged):
        mirror.bring(2)
    said = []
    with restore(run, mirror=mirror, say=said.append) as reader:
        assert reader.step == 1
    assert "step 2 is not whole" in said[0]


def test_a_damaged_checkpoint_is_not_mirrored(run, attempt, tmp_path):
    save(run, attempt, [1, 2])
    file = next((run.storage.folder / "checkpoints/step-00000002").glob("*.safetensors"))
    os.truncate(file, 50_000)
    said = []
    assert Mirror(run, str(tmp_path / "m"), say=said.append).sync().checkpoints == [1]
    assert "step 2 is not whole and is not mirrored" in said[0]


def test_the_mirror_heals_a_damaged_run(run, attempt, tmp_path):
    save(run, attempt, [1, 2])
    mirror = Mirror(run, str(tmp_path / "m"))
    mirror.sync()
    os.truncate(next((run.storage.folder / "checkpoints/step-00000002").glob("*.safetensors")), 50_000)
    with restore(run, mirror=mirror) as reader:
        assert reader.step == 1
    with restore(run, mirror=mirror) as reader:
        assert reader.step == 2


@pytest.mark.slow
def test_a_mirror_that_does_not_answer(run, attempt, s3):
    url, faults = s3
    mirror = Mirror(run, url)
    save(run, attempt, [1])
    mirror.sync()
    faults.always()
    said = []
    with restore(run, mirror=mirror, say=said.append) as reader:
        assert reader.step == 1
    assert "does not answer and is passed over" in said[0]
    shutil.rmtree(run.storage.folder / "checkpoints")
    with pytest.raises(OSError, match="ServiceUnavailable"):
        restore(run, mirror=mirror)


def test_an_old_copy_of_a_run_does_not_overwrite_a_newer_one(run, attempt, tmp_path):
    save(run, attempt, [1])
    shutil.copytree(run.storage.folder, tmp_path / "old" / run.name)
    run.begin()
    Mirror(run, str(tmp_path / "m")).sync()
    with pytest.raises(Fenced, match="newer attempt"):
        Mirror(RunFolder(tmp_path / "old", run.name), str(tmp_path / "m")).sync()


def test_another_run_of_the_name_does_not_overwrite(run, attempt, job, tmp_path):
    Mirror(run, str(tmp_path / "m")).sync()
    other = RunFolder(tmp_path / "others", run.name)
    other.claim(job)
    with pytest.raises(Fenced, match="another run of the name"):
        Mirror(other, str(tmp_path / "m")).sync()


@pytest.mark.slow
def test_an_outage_is_loud_and_caught_up_with_and_training_goes_on(run, attempt, s3, monkeypatch):
    url, faults = s3
    monkeypatch.setattr(Watched, "pause", 0.02)
    events = []
    thread = MirrorThread(Mirror(run, url), events.append, every=60)
    faults.always("reset")
    saver = Saver(run, attempt, after_commit=thread.wake)
    for step in (1, 2, 3):
        saver.save(step, whole(state(step)), {})
    saver.close()
    end = time.monotonic() + 600
    while sum(event["event"] == "mirror_failed" for event in events) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    faults.never()
    assert thread.close()
    failed = [event for event in events if event["event"] == "mirror_failed"]
    assert len(failed) >= 2
    assert failed[-1]["tries"] == len(failed)
    assert "mirror_caught_up" in [event["event"] for event in events]
    assert [each.step for each in committed(RunFolder(url, run.name))] == [1, 2, 3]
    assert saver.errors == []


@pytest.mark.slow
def test_closing_does_not_wait_for_ever(run, attempt, s3, monkeypatch):
    url, faults = s3
    monkeypatch.setattr(Watched, "pause", 0.02)
    faults.always("503")
    events = []
    thread = MirrorThread(Mirror(run, url), events.append, every=60)
    assert not thread.close(patience=0.5)


def test_the_sidecar_brings_back_and_mirrors_every_run(run, attempt, job, tmp_path):
    save(run, attempt, [1, 2])
    place = str(tmp_path / "m")
    Mirror(run, place).sync()
    shutil.rmtree(run.storage.folder)
    other = RunFolder(run.parent, "other")
    save(other, other.claim(job), [7])
    (run.parent.folder / "no-run").mkdir()
    stop, events = threading.Event(), []
    arguments = {"every": 0.05, "resume": True, "stop": stop, "tell": lambda name, event: events.append((name, event))}
    thread = threading.Thread(
        target=watch, args=(run.parent, lambda name: Mirror(RunFolder(run.parent, name), place)), kwargs=arguments
    )
    thread.start()
    copy = RunFolder(place, "other")
    end = time.monotonic() + 600
    while not committed(copy) and time.monotonic() < end:
        time.sleep(0.02)
    save(other, other.begin(), [8])
    stop.set()
    thread.join(20)
    assert [each.step for each in committed(copy)] == [7, 8]
    with restore(run) as reader:
        assert reader.step == 2
    assert [name for name, event in events if event["event"] == "brought_back"] == [run.name]
