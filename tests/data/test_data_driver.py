"""Preparing from the command line: what is said, and with which exit code."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from raytrain_eks.cli.main import main as cli
from raytrain_eks.data.driver import main

JOB = """
kind: Job
name: small
model: {{config: {{model_type: llama}}}}
tokenizer: {{train: {{vocab_size: 300}}}}
data: {{train: {train}, sequence_length: 32, prepare: false}}
batch: {{sequences: 4}}
optimizer: {{learning_rate: 1.0e-3}}
stop: {{steps: 10}}
"""


@pytest.fixture
def job_file(folder: Path, tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(train=folder))
    return path


def test_the_program_prints_what_was_prepared_and_checks_whether_it_is(job_file, folder, tmp_path, capsys):
    given = [str(job_file), "--storage", str(tmp_path / "store")]
    assert main([*given, "--check"]) == 1
    assert "not prepared" in capsys.readouterr().out
    assert main(given) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["train"]["rows"] > 0
    assert (Path(printed["url"]) / "index.json").is_file(), "also where runs pack while they train"
    assert main([*given, "--check"]) == 0
    (folder / "part1" / "new.txt").write_text("one more file\n")
    assert main([*given, "--check"]) == 1


def test_the_verb_does_the_same(job_file, tmp_path, capsys):
    given = ["prepare", str(job_file), "--storage", str(tmp_path / "store")]
    codes = []
    for more in (["--check"], ["-o", "json"], ["--check"]):
        with pytest.raises(SystemExit) as caught:
            cli([*given, *more])
        codes.append(caught.value.code)
    assert codes == [1, 0, 0]
    assert "raytrain-eks prepare" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("train", "code", "words"),
    [
        ("/nowhere/at/all", 3, "there is nothing at /nowhere/at/all"),
        ("[]", 3, "data.train"),
    ],
)
def test_a_mistake_is_one_clear_message(tmp_path, capsys, train, code, words):
    path = tmp_path / "job.yaml"
    path.write_text(JOB.format(train=train))
    assert main([str(path), "--storage", str(tmp_path / "store")]) == code
    printed = capsys.readouterr()
    assert words in printed.err
    assert "Traceback" not in printed.err


def test_storage_that_cannot_be_written_is_named(job_file, tmp_path, capsys):
    (tmp_path / "file").write_text("not a folder")
    assert main([str(job_file), "--storage", str(tmp_path / "file")]) == 3
    assert str(tmp_path / "file") in capsys.readouterr().err


def test_the_script_of_jobs_is_the_program(root, job_file, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["prepare.py", str(job_file), "--storage", str(tmp_path / "store"), "--check"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_path(str(root / "jobs" / "prepare.py"), run_name="__main__")
    assert caught.value.code == 1
