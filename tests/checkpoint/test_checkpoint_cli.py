"""`raytrain-eks checkpoints`, as a person calls it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch

from raytrain_eks.checkpoint.chunk import whole
from raytrain_eks.checkpoint.manifest import committed, steps
from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.retention import Retention
from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.checkpoint.save import Saver
from raytrain_eks.cli.main import main


@pytest.fixture
def cli(run, monkeypatch, capsys):
    """Call a verb on the test's storage: exit code, stdout, stderr."""
    monkeypatch.setenv("RAYTRAIN_STORAGE", run.parent.url)

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["checkpoints", *map(str, arguments)])
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return call


@pytest.fixture
def full(run, job):
    """Checkpoints of steps 1 to 5, the best being that of step 2."""
    appender = run.storage.appender("events.jsonl")
    saver = Saver(
        run, run.claim(job), keep=Retention(last=9), tell=lambda e: appender.write(json.dumps(e).encode() + b"\n")
    )
    for step in range(1, 6):
        saver.save(step, whole({"w": torch.full((100,), float(step))}), {}, loss=abs(step - 2))
    saver.close()
    appender.close()
    return run


def damage(run, step):
    os.truncate(next((run.storage.folder / f"checkpoints/step-{step:08d}").glob("*.safetensors")), 10)


def test_ls(full, cli):
    (full.storage.folder / "checkpoints/step-00000006").mkdir()
    damage(full, 5)
    restore(full).close()
    code, out, err = cli("ls", "small", "-o", "json")
    rows = json.loads(out)
    assert code == 0
    assert [(row["step"], row["state"], row["loss"]) for row in rows] == [
        (1, "complete", 1), (2, "complete", 0), (3, "complete", 1), (4, "complete", 2), (6, "incomplete", None),
    ]  # fmt: skip
    assert err == "set aside: step-00000005.bad-1\n"
    code, out, _ = cli("ls", "small")
    assert out.splitlines()[0].split() == ["STEP", "STATE", "LOSS", "BYTES", "WORLD", "ATTEMPT", "CREATED"]


@pytest.mark.parametrize("verb", [["ls"], ["verify"], ["prune"], ["rm"], ["sync"], ["export", "--to", "x"]])
def test_a_run_that_is_not_there(full, cli, verb):
    code, out, err = cli(verb[0], "smal", *(["1"] if verb == ["rm"] else []), *verb[1:])
    assert (code, out) == (2, "")
    assert err.startswith(f"no run `smal` in {full.parent.url}\n  runs there: small")


def test_verify(full, cli):
    assert cli("verify", "small")[0] == 0
    damage(full, 4)
    code, out, _ = cli("verify", "small", "-o", "json")
    assert code == 3
    assert [row["step"] for row in json.loads(out) if not row["whole"]] == [4]
    assert "has 10 bytes" in json.loads(out)[3]["reason"]
    assert cli("verify", "small", "--step", 3)[0] == 0
    assert cli("verify", "small", "--step", 4, "--level", "off")[0] == 0
    assert steps(full) == [1, 2, 3, 4, 5]


def test_prune_takes_the_jobs_own_rule_and_leaves_a_save_in_progress(full, cli):
    for attempt in (1, 2):
        path = (
            full.storage.folder / f"checkpoints/step-0000000{5 + attempt}/a000{attempt}-0123456789ab-r00000.safetensors"
        )
        path.parent.mkdir()
        path.write_bytes(b"x")
    full.begin()
    code, out, _ = cli("prune", "small", "--last", 2)
    assert (code, out) == (0, "step-00000001\nstep-00000003\n")
    assert steps(full) == [2, 4, 5, 7]
    cli("prune", "small", "--stopped")
    assert steps(full) == [2, 4, 5]


def test_rm_spares_the_newest_the_best_and_what_is_read(full, cli):
    reader = restore(full, step=3)
    for step in (2, 3, 5):
        code, _, err = cli("rm", "small", step)
        assert code == 2
        assert "--force" in err
    reader.close()
    assert cli("rm", "small", 3, 1)[:2] == (0, "step-00000003\nstep-00000001\n")
    assert cli("rm", "small", 5, "--force")[0] == 0
    assert steps(full) == [2, 4]
    assert "no checkpoint of step 9" in cli("rm", "small", 9)[2]


def test_sync_there_and_back(full, cli, tmp_path):
    place = tmp_path / "mirror"
    code, out, err = cli("sync", "small", "--to", place, "--codec", "gzip", "--keep", 2)
    assert (code, out) == (0, "step-00000005\nstep-00000004\nstep-00000002\n")
    assert "3 new" in err
    shutil.rmtree(full.storage.folder)
    assert cli("sync", "small", "--to", place, "--back")[:2] == (0, "step-00000005\n")
    assert [each.step for each in committed(full)] == [5]
    assert "nothing that is newer" in cli("sync", "small", "--to", place, "--back")[2]


def test_sync_without_a_mirror_or_with_a_wrong_level(full, cli, tmp_path):
    code, _, err = cli("sync", "small")
    assert (code, "name one with --to" in err) == (2, True)
    assert "gzip has no level 11" in cli("sync", "small", "--to", tmp_path, "--codec", "gzip", "--level", 11)[2]


def test_interval(full, cli):
    code, out, _ = cli("interval", "small", "--accelerators", 1024)
    assert code == 0
    assert "sqrt(2 C M)" in out


def test_the_configuration_of_the_guide_is_taken(full, cli, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        f"""
checkpoint:
  local_path: {full.parent.url}
  remote_path: {tmp_path}/remote
  sync_interval: 300  # seconds
  max_checkpoints: 2  # keep last N checkpoints
  compression: true
  compression_level: 6
  auto_resume: true
  resume_from_latest: true
"""
    )
    code, _, err = cli("watch", "--config", config, "--once")
    assert code == 0
    assert "small: mirrored: steps [5, 4, 2]" in err
    assert list((tmp_path / "remote").rglob("*.safetensors.gz"))
    config.write_text(
        f"checkpoint: {{local_path: {tmp_path}, remote_path: x, compresion: gzip, compression_level: 40}}"
    )
    code, _, err = cli("watch", "--config", config)
    assert code == 3
    assert "did you mean `compression`?" in err


@pytest.mark.slow
def test_the_sidecar_is_a_program_that_ends_well(full, job, tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(f"checkpoint: {{local_path: {full.parent.url}, remote_path: {tmp_path}/m, sync_interval: 0.1}}")
    arguments = ["checkpoints", "watch", "--config", str(config)]
    code = "import sys; from raytrain_eks.cli.main import main; main(sys.argv[1:])"
    process = subprocess.Popen([sys.executable, "-c", code, *arguments], stderr=subprocess.PIPE, text=True)
    copy = RunFolder(tmp_path / "m", "small")
    end = time.monotonic() + 600
    while len(committed(copy)) < 5 and time.monotonic() < end:
        time.sleep(0.05)
    saver = Saver(full, full.claim(job), keep=Retention(last=9))
    saver.save(6, whole({"w": torch.zeros(3)}), {})
    saver.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0
    assert [each.step for each in committed(copy)][-1] == 6
    assert "Traceback" not in process.stderr.read()
