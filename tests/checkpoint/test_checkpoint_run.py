"""The run folder: who it is, who owns it, what it says; all without torch and ray."""

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from raytrain_eks.checkpoint.run import METRICS, RunFolder, list_runs
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError


def test_the_light_modules_import_neither_torch_nor_ray():
    modules = ["storage", "folder", "run", "manifest", "retention", "verify", "mirror", "mirroring", "codec"]
    code = ";".join(f"import raytrain_eks.checkpoint.{module}" for module in modules)
    code += ";import sys;print([m for m in ('torch','ray','boto3','pyarrow','numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_first_claim_makes_the_run_and_the_second_goes_on(run, job):
    first, second = run.claim(job), run.claim(job)
    assert (first.number, first.is_first) == (1, True)
    assert (second.number, second.is_first) == (2, False)
    assert first.run_id == second.run_id
    assert Job.read(run.storage.read("job.yaml").decode(), "job.yaml") == job


def test_the_newest_attempt_owns_the_run(run, job):
    first = run.claim(job)
    assert run.owned_by(first)
    second = run.begin()
    assert not run.owned_by(first)
    assert run.owned_by(second)


def test_attempts_taken_at_the_same_time_have_different_numbers(run, job):
    run.claim(job)
    with ThreadPoolExecutor(8) as pool:
        numbers = [attempt.number for attempt in pool.map(lambda _: run.begin(), range(16))]
    assert sorted(numbers) == list(range(2, 18))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 7}, {"seed"}),
        ({"precision": "fp32", "seed": 1}, {"precision", "seed"}),
        ({"optimizer": {"learning_rate": 0.003, "betas": [0.9, 0.99]}}, {"optimizer.betas"}),
    ],
)
def test_another_identity_is_refused_with_the_fields_that_differ(run, job, change, named):
    run.claim(job)
    other = Job.parse(job.written() | change)
    with pytest.raises(SpecError) as raised:
        run.claim(other)
    assert {problem.path for problem in raised.value.problems} == named
    assert all("--resume" in (problem.fix or "") for problem in raised.value.problems)
    assert run.attempts() == [1]
    run.claim(other, accept_changes=True)
    assert run.differences(other) == []
    assert run.identity()["changed"]


def test_what_does_not_change_the_result_may_differ(run, job):
    run.claim(job)
    extended = Job.parse(job.written() | {"stop": {"steps": 20}, "workers": {"count": 1}, "checkpoint": {"every": 5}})
    assert run.claim(extended).number == 2


def test_beginning_a_run_that_is_not_there_is_an_error(run):
    with pytest.raises(FileNotFoundError):
        run.begin()


def test_a_copied_run_folder_is_the_same_run(run, job, tmp_path):
    first = run.claim(job)
    shutil.copytree(run.storage.folder, tmp_path / "elsewhere" / "small")
    shutil.rmtree(run.storage.folder)
    assert RunFolder(tmp_path / "elsewhere", "small").claim(job).run_id == first.run_id


def test_metrics_of_overlapping_attempts_count_once(run, job):
    run.claim(job)
    lines = [{"step": s, "attempt": 1, "loss": 1.0} for s in (1, 2, 3)]
    lines += [{"step": s, "attempt": 2, "loss": 2.0} for s in (2, 3)]
    appender = run.storage.appender(METRICS)
    for line in lines:
        appender.write(json.dumps(line).encode() + b"\n")
    appender.write(b'{"step": 4, "att')
    appender.close()
    assert [line["loss"] for line in run.metrics()] == [1.0, 2.0, 2.0]
    assert run.last_line(METRICS) == lines[-1]
    again = run.storage.appender(METRICS)
    again.write(b'{"step": 4, "attempt": 3, "loss": 3.0}\n')
    again.close()
    assert run.last_line(METRICS)["step"] == 4


def test_list_runs_reads_what_is_there(run, job):
    run.claim(job)
    run.write_summary({"steps": 10})
    (run.parent.folder / "no-run").mkdir()
    (found,) = list_runs(run.parent)
    assert (found.name, found.attempts, found.step, found.summary) == ("small", 1, None, {"steps": 10})


@pytest.mark.parametrize(
    ("text", "why"),
    [("{", "run.json: is not JSON"), ("{}", "not those of a run"), ('{"identity": [1]}', "not those of a run")],
)
def test_a_damaged_run_does_not_hide_the_others(run, job, text, why):
    run.claim(job)
    folder = run.parent.folder
    (folder / "bad").mkdir()
    (folder / "bad" / "run.json").write_text(text)
    (folder / "loop").symlink_to("loop")
    (folder / "nowhere").symlink_to("gone")
    bad, small = list_runs(run.parent)
    assert (bad.name, small.name, small.damaged) == ("bad", "small", None)
    assert why in bad.damaged


def test_a_storage_that_does_not_answer_is_no_damaged_run(run, job, monkeypatch):
    run.claim(job)

    def silent(self, path, *more):
        raise OSError(5, "no answer", path)

    monkeypatch.setattr(type(run.storage), "read", silent)
    with pytest.raises(OSError, match="no answer"):
        list_runs(run.parent)
