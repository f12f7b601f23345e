"""From a job file to a submission: what is refused before anything starts, and what is sent."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.submit import assemble
from raytrain_eks.submit.assemble import JobFile
from raytrain_eks.submit.errors import Busy, TooLarge
from raytrain_eks.submit.target import RUN, STORAGE, JobState, Phase

TEXT = """\
kind: Job
name: tiny
workers: {count: 1}
model: {config: {model_type: llama}}
tokenizer: {train: {vocab_size: 300}}
data:
  train: ./texts
  sequence_length: 32
batch: {sequences: 2}
optimizer: {learning_rate: 1.0e-3}
stop: {steps: 2}
"""

MODEL = "{config: {model_type: llama}}\ntokenizer: {train: {vocab_size: 300}}\n"


class Place:
    """A target as far as checks look at it."""

    name = "local"

    def __init__(self, *, shares_files: bool = True, jobs: tuple[JobState, ...] = ()):
        self.shares_files, self._jobs = shares_files, jobs

    def check(self, job: Any) -> Iterator[Problem]:
        if job.workers.count > 4:
            yield Problem(path="workers.count", rule="this machine has 4 CPUs")

    def jobs(self) -> list[JobState]:
        return list(self._jobs)


@pytest.fixture
def person(tmp_path) -> Path:
    """Where the person is: a job file, and texts to train on."""
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("hello")
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs" / "tiny.yaml").write_text(TEXT)
    return tmp_path


def read(person: Path, text: str = TEXT, name: str = "jobs/tiny.yaml") -> JobFile:
    (person / name).write_text(text)
    return JobFile.read(person / name)


def refused(person: Path, text: str, storage: str = "runs", **options: Any) -> str:
    file = read(person, text)
    with pytest.raises(SpecError) as caught:
        assemble.check(file, Place(), str(person / storage), folder=person, resume=False, **options)
    return str(caught.value)


def test_a_good_file_is_not_refused(person):
    assemble.check(read(person), Place(), str(person / "runs"), folder=person, resume=False)


def test_every_problem_comes_at_once_with_its_place(person):
    text = TEXT.replace("count: 1", "count: 9").replace("./texts", "./nowhere")
    message = refused(person, text)
    assert "tiny.yaml:3:18  workers.count = 9" in message
    assert "tiny.yaml:7:10  data.train = ./nowhere" in message
    assert str(person / "nowhere") in message
    assert message.endswith("2 problems")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("./texts", "./empty"), "the folder is empty"),
        ((MODEL, "{name: ./model}\n"), "there is no such folder"),
        ((MODEL, "{name: ./texts}\n"), "no config.json"),
        (("./texts", "[{path: ./texts}, {path: ./gone}]"), "data.train.1.path"),
    ],
)
def test_what_is_not_there_is_told(person, change, words):
    (person / "empty").mkdir(exist_ok=True)
    assert words in refused(person, TEXT.replace(*change))


def test_storage_that_is_no_folder_is_told(person):
    (person / "file").write_text("x")
    assert "not writable" in refused(person, TEXT, storage="file/runs")


def test_another_file_under_the_same_name_is_refused_here_already(person):
    from raytrain_eks.checkpoint.run import RunFolder

    RunFolder(str(person / "runs"), "tiny").open(read(person).job)
    message = refused(person, TEXT.replace("1.0e-3", "2.0e-3"))
    assert "optimizer.learning_rate = 0.002" in message
    assert "tiny.yaml:10:28" in message
    changed = read(person, TEXT.replace("1.0e-3", "2.0e-3"))
    assemble.check(changed, Place(), str(person / "runs"), folder=person, resume=True)
    assemble.check(
        read(person, TEXT.replace("steps: 2", "steps: 9")), Place(), str(person / "runs"), folder=person, resume=False
    )


@pytest.mark.parametrize(
    ("given", "preset", "written", "expected"),
    [
        (None, None, None, "{home}/raytrain-eks/runs"),
        (None, "{person}/preset", None, "{person}/preset"),
        (None, "{person}/preset", "here/runs", "{person}/here/runs"),
        ("there", "{person}/preset", "here/runs", "{person}/there"),
        ("s3://b/p", None, None, "s3://b/p"),
        ("/abs", None, None, "/abs"),
    ],
)
def test_storage_on_this_machine_is_absolute(person, monkeypatch, given, preset, written, expected):
    monkeypatch.setenv("XDG_DATA_HOME", str(person / "home"))
    monkeypatch.delenv("RAYTRAIN_STORAGE", raising=False)
    if preset:
        monkeypatch.setenv("RAYTRAIN_STORAGE", preset.format(person=person))
    job = read(person, TEXT + (f"storage: {written}\n" if written else "")).job
    found = assemble.storage_for(job, Place(), given=given, folder=person)
    assert found == expected.format(person=person, home=person / "home")


@pytest.mark.parametrize(("given", "words"), [(None, "all its nodes share"), ("runs", "must be absolute")])
def test_a_cluster_is_told_where_runs_go(person, monkeypatch, given, words):
    monkeypatch.setenv("RAYTRAIN_STORAGE", "/a/path/of/this/machine")
    with pytest.raises(SpecError, match=words):
        assemble.storage_for(read(person).job, Place(shares_files=False), given=given, folder=person)
    monkeypatch.setenv("RAYTRAIN_STORAGE", "s3://b/p")
    if given is None:
        assert (
            assemble.storage_for(read(person).job, Place(shares_files=False), given=None, folder=person) == "s3://b/p"
        )


def send(person: Path, file: JobFile, **options: Any):
    given = {"folder": person, "working_dir": person, "resume": False, "limit": 10**6} | options
    return assemble.assemble(file, Place(), str(person / "runs"), **given)


def test_the_job_file_travels_as_it_was_checked(person):
    file = read(person)
    (person / "jobs" / "tiny.yaml").write_text("changed meanwhile")
    found = send(person, file)
    assert found.job_file == "jobs/tiny.yaml"
    assert {each.name: each.content for each in found.package.files}["jobs/tiny.yaml"] == TEXT.encode()
    assert found.id.startswith("tiny-")
    assert found.script is None
    assert found.metadata == {RUN: "tiny", STORAGE: str(person / "runs")}


def test_a_job_file_from_elsewhere_or_with_a_name_nobody_can_carry_travels_too(person, tmp_path_factory):
    outside = tmp_path_factory.mktemp("outside") / "tiny.yaml"
    outside.write_text(TEXT)
    assert send(person, JobFile.read(outside)).job_file == ".raytrain/job.yaml"
    assert send(person, read(person, name="back\\slash.yaml")).job_file == ".raytrain/job.yaml"
    assert send(person, read(person, name="it's $(x).yaml")).job_file == "it's $(x).yaml"


def test_an_ignored_job_file_travels_too(person):
    (person / ".gitignore").write_text("*.yaml\n")
    assert [file.name for file in send(person, read(person)).package.files][1:] == ["jobs/tiny.yaml", "texts/a.txt"]


def test_an_own_driver_is_run(person):
    (person / "jobs" / "train.py").write_text("")
    assert send(person, read(person), resume=True).script == "jobs/train.py"
    assert send(person, read(person), resume=True).options == (f"--storage={person / 'runs'}", "--resume")


def test_a_folder_that_is_too_large_is_refused(person):
    (person / "texts" / "big").write_bytes(b"x" * 2000)
    with pytest.raises(TooLarge, match="texts/big"):
        send(person, read(person), limit=1500)


@pytest.mark.parametrize(
    ("phase", "storage", "busy"),
    [
        (Phase.RUNNING, "{}/runs", True),
        (Phase.PENDING, "{}/runs", True),
        (Phase.FAILED, "{}/runs", False),
        (Phase.RUNNING, "/x", False),
    ],
)
def test_a_run_that_runs_is_not_started_twice(person, phase, storage, busy):
    metadata = {RUN: "tiny", STORAGE: storage.format(person)}
    target = Place(jobs=(JobState(id="tiny-1", phase=phase, metadata=metadata),))
    submission = send(person, read(person))
    if not busy:
        assemble.refuse_twice(submission, target)
        return
    with pytest.raises(Busy, match="runs already, as tiny-1"):
        assemble.refuse_twice(submission, target)


def test_a_file_that_is_no_job_is_refused(person):
    with pytest.raises(SpecError, match="kind"):
        read(person, "kind: Sonata\n")
