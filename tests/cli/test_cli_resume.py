"""`resume`, and what `status` and `ls` say about a run of which only the folder is left."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.job import Job

VERB = [sys.executable, "-c", "from raytrain_eks.cli.main import main; main()"]
TEXT = """\
kind: Job
name: left
workers: {count: 1}
model: {config: {model_type: llama}}
tokenizer: {train: {vocab_size: 300}}
data: {train: ./texts, sequence_length: 32}
batch: {sequences: 2}
optimizer: {learning_rate: 1.0e-3}
stop: {steps: 9}
"""


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A storage with one run that somebody began and that died at step 7."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("hello")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "train.py").write_bytes(Path(__file__).with_name("small_driver.py").read_bytes())
    run = RunFolder(str(tmp_path / "runs"), "left")
    run.claim(Job.read(TEXT, "left.yaml"), text=TEXT)
    line = {"step": 7, "loss": 5.25, "tokens": 64, "step_seconds": 0.5, "attempt": 1}
    (tmp_path / "runs" / "left" / "metrics.jsonl").write_text(json.dumps(line) + '\n{"step": 8, "lo')
    return tmp_path / "runs"


def verb(runs: Path, *words: str, env: dict[str, str] | None = None) -> "subprocess.CompletedProcess[str]":
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "XDG_"))}
    given = env if env is not None else plain | {"XDG_STATE_HOME": str(runs.parent / "state")}
    return subprocess.run(
        [*VERB, *words], cwd=runs.parent, env=given | {"RAYTRAIN_STORAGE": str(runs)}, capture_output=True, text=True
    )


@pytest.mark.slow
def test_a_run_of_which_only_the_folder_is_left(runs):
    found = json.loads(verb(runs, "status", "left", "-o", "json").stdout)
    assert (found["state"], found["step"], found["loss"], found["attempt"]) == ("interrupted", 7, 5.25, 1)
    assert found["tokens_per_second"] == 128.0
    assert found["phase"] == (
        "interrupted at step 7: no job of it runs on local; `raytrain-eks resume left` goes on from its beginning"
    )
    (row,) = json.loads(verb(runs, "ls", "-o", "json").stdout)
    assert (row["run"], row["state"], row["step"], row["attempts"]) == ("left", "interrupted", 7, 1)
    assert "left  interrupted" in verb(runs, "ls").stdout
    assert verb(runs, "status").stdout == verb(runs, "ls").stdout


def test_a_finished_run_says_so(runs):
    RunFolder(str(runs), "left").write_summary({"status": "complete", "steps": 9, "attempt": 1})
    found = json.loads(verb(runs, "status", "left", "-o", "json").stdout)
    assert (found["state"], found["phase"]) == ("complete", "complete, 9 steps")


def test_a_summary_of_an_earlier_attempt_does_not_hide_an_interrupted_extension(runs):
    run = RunFolder(str(runs), "left")
    run.write_summary({"status": "complete", "steps": 5, "attempt": 1})
    run.begin()
    assert json.loads(verb(runs, "status", "left", "-o", "json").stdout)["state"] == "interrupted"


@pytest.mark.slow
def test_resume_sends_the_file_of_the_folder_and_works_where_submit_did(runs, ray_head):
    env = {name: value for name, value in ray_head.env.items() if not name.startswith("RAY_")}
    (runs.parent / "left.yaml").write_text("not what the run was begun with")
    done = verb(runs, "resume", "left", "-f", env=env)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert f"working in '{runs.parent}', nice 0, texts ['texts/a.txt']" in lines
    assert any("arguments" in line and f"--storage={runs}" in line and "/runs/left/job.yaml" in line for line in lines)
    assert lines[-1] == "left: done"
