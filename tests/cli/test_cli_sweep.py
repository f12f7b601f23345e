"""`raytrain-eks sweep`: its words, and what is wrong is said before anything starts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.submit.assemble import JobFile

JOB = """\
kind: Job
name: base
workers: {count: 1}
model: {config: {model_type: llama, hidden_size: 64}}
tokenizer: {train: {vocab_size: 512}}
data: {train: ./texts, sequence_length: 32}
batch: {sequences: 4}
optimizer: {learning_rate: 1.0e-3}
stop: {steps: 90}
"""
SWEEP = """\
kind: Sweep
name: lr
job: job.yaml
space: {optimizer.learning_rate: {kind: loguniform, low: 1.0e-4, high: 1.0e-2}}
scheduler: {kind: asha}
trials: 4
storage: ./runs
"""


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, *capsys.readouterr()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("hello")
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    return tmp_path


def test_what_travels_has_its_job_in_place_and_the_sweep_s_own_driver(folder):
    from raytrain_eks.submit.assemble import assemble
    from raytrain_eks.submit.local import Local

    file = JobFile.read(Path("sweep.yaml"))
    assert (file.job.name, file.job.storage, file.sweep.number) == ("lr", "./runs", 4)
    assert b"job.yaml" not in file.content
    assert b"hidden_size: 64" in file.content
    about = {"folder": folder, "working_dir": folder, "resume": False, "limit": 10**6}
    found = assemble(file, Local(), str(folder / "runs"), **about)
    assert (found.run, found.script, found.job_file) == ("lr", "-m raytrain_eks.tune", "sweep.yaml")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "sweep.py").write_text("")
    assert assemble(file, Local(), str(folder / "runs"), **about).script == "jobs/sweep.py"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("learning_rate: {kind", "learning_rat: {kind", ["sweep.yaml:4:33", "did you mean `optimizer.learning_rate`?"]),
        ("low: 1.0e-4", "low: 1.0", ["the range is empty"]),
        ("job: job.yaml", "job: jobs.yaml", ["sweep.yaml:3:6", "there is no such file"]),
        ("kind: Sweep", "kind: Job", ["unknown field"]),
    ],
)
def test_a_mistake_is_named_and_nothing_starts(capsys, folder, old, new, words):
    path = folder / "sweep.yaml"
    path.write_text(SWEEP.replace(old, new))
    code, _, said = run(capsys, "sweep", "sweep.yaml", "--on", "local")
    assert code == 3
    assert all(word in said for word in words), said
    assert not (folder / "state").exists() or not list((folder / "state").rglob("head.json"))


def test_a_job_s_data_and_workers_are_looked_at_as_for_a_job(capsys, folder):
    (folder / "job.yaml").write_text(JOB.replace("./texts", "./gone").replace("count: 1", "count: 999"))
    code, _, said = run(capsys, "sweep", "sweep.yaml", "--on", "local")
    assert code == 3
    assert "job.workers.count" in said
    assert "there is no such file or folder" in said


def test_a_job_file_is_no_sweep_and_a_sweep_has_no_dry_run(capsys):
    code, _, said = run(capsys, "sweep", "job.yaml")
    assert (code, "this file is a Job" in said, "init sweep --job job.yaml" in said) == (3, True, True)
    code, _, said = run(capsys, "submit", "sweep.yaml", "--tiny")
    assert (code, "a sweep has no dry run" in said) == (3, True)


def test_another_sweep_of_the_name_is_refused_with_the_fields_that_differ(capsys, folder):
    from raytrain_eks.tune.folder import SweepFolder

    SweepFolder(str(folder / "runs"), "lr").open(JobFile.read(Path("sweep.yaml")).sweep)
    assert (folder / "runs" / "lr" / "sweep.yaml").read_text().startswith("kind: Sweep")
    (folder / "sweep.yaml").write_text(SWEEP.replace("high: 1.0e-2", "high: 2.0e-2"))
    code, _, said = run(capsys, "sweep", "sweep.yaml", "--on", "local")
    assert code == 3
    assert "space.optimizer.learning_rate.high" in said
    assert "--resume" in said


def test_init_writes_one_that_validates(capsys, folder):
    assert run(capsys, "init", "sweep", "new.yaml", "--job", "job.yaml")[0] == 0
    assert "low: 0.0001, high: 0.003" in (folder / "new.yaml").read_text()
    code, shown, _ = run(capsys, "validate", "new.yaml", "-o", "json")
    (found,) = json.loads(shown)
    assert (code, found["kind"], found["name"], found["valid"]) == (0, "Sweep", "base-sweep", True)


def test_ls_shows_a_sweep_among_the_runs(capsys, folder):
    from raytrain_eks.tune.folder import SweepFolder

    sweep = SweepFolder(str(folder / "runs"), "lr")
    sweep.open(JobFile.read(Path("sweep.yaml")).sweep)
    sweep.write_summary(
        {"state": "complete", "trained_steps": 200, "best": "t0002", "trials": [{"trial": "t0002", "value": 2.5}]}
    )
    code, shown, _ = run(capsys, "ls", "--storage", str(folder / "runs"), "-o", "json")
    (row,) = json.loads(shown)
    assert (code, row["run"], row["state"], row["step"], row["loss"]) == (0, "lr", "complete", 200, 2.5)


def test_the_door_stays_light():
    program = (
        "import sys\nfrom raytrain_eks.cli.main import main\n"
        "try:\n    main(['validate', 'sweep.yaml'])\nexcept SystemExit as ended:\n    assert not ended.code\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'ray', 'torch', 'optuna', 'numpy', 'pyarrow'}))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown.splitlines()[-1] == "[]"
