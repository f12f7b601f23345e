"""The loggers run for real: event files of TensorBoard, MLflow's file store with parents and children, W&B offline."""

import json
import threading
from pathlib import Path

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train import loggers, mlflow_runs

pytestmark = pytest.mark.slow

LINES = [{"step": step, "loss": 5.0 - step, "learning_rate": 1e-3, "tokens": 512, "attempt": 1} for step in (1, 2, 3)]
HELD = {"event": "evaluated", "step": 3, "held_out_loss": 2.5, "bits_per_byte": None}


def job_of(*names: str, name: str = "first") -> Job:
    return Job.parse(
        {
            "name": name,
            "model": {"config": {"model_type": "llama"}},
            "tokenizer": {"name": "x"},
            "data": {"train": "x", "sequence_length": 64},
            "batch": {"sequences": 8},
            "optimizer": {"learning_rate": 1e-3},
            "stop": {"steps": 3},
            "loggers": list(names),
        }
    )


def log(folder: Path, *names: str, attempt: int = 1) -> None:
    """What the worker does with its loggers during a run."""
    folder.mkdir(parents=True, exist_ok=True)
    told = loggers.Loggers(job_of(*names, name=folder.name), folder, attempt)
    for line in [*LINES, HELD]:
        told.add(line)
    told.close()


@pytest.fixture
def mlflow(monkeypatch):
    """MLflow without what another test told it."""
    module = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    yield module
    module.set_tracking_uri(None)


def runs(mlflow, store: Path):
    client = mlflow.MlflowClient(tracking_uri=store.as_uri())
    experiment = client.get_experiment_by_name("raytrain-eks")
    return client, client.search_runs([experiment.experiment_id])


def test_tensorboard_writes_its_event_files(tmp_path):
    log(tmp_path / "first", "tensorboard")
    (file,) = (tmp_path / "first" / "tensorboard" / "attempt-0001").iterdir()
    content = file.read_bytes()
    assert all(name in content for name in (b"loss", b"learning_rate", b"held_out_loss"))
    assert b"bits_per_byte" not in content


def test_mlflow_has_the_run_with_its_steps(tmp_path, mlflow):
    log(tmp_path / "first", "mlflow")
    client, (run,) = runs(mlflow, tmp_path / "mlruns")
    assert (run.info.run_name, run.info.status) == ("first-0001", "FINISHED")
    history = client.get_metric_history(run.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(1, 4.0), (2, 3.0), (3, 2.0)]
    assert run.data.metrics["held_out_loss"] == 2.5
    assert run.data.params["optimizer.learning_rate"] == "0.001"
    assert "mlflow.parentRunId" not in run.data.tags


def test_the_trials_of_a_sweep_are_children_of_one_run(tmp_path, mlflow):
    sweep = tmp_path / "lr"
    (sweep / "trials").mkdir(parents=True)
    (sweep / "trials.jsonl").write_text("")
    for trial, attempt in (("t0001", 1), ("t0002", 1), ("t0001", 2)):
        log(sweep / "trials" / trial, "mlflow", attempt=attempt)
    client, found = runs(mlflow, tmp_path / "mlruns")
    by_name = {run.info.run_name: run for run in found}
    assert set(by_name) == {"lr", "t0001-0001", "t0002-0001", "t0001-0002"}
    above = by_name["lr"].info.run_id
    children = [run for run in found if run.data.tags.get("mlflow.parentRunId") == above]
    assert len(children) == 3
    assert by_name["lr"].info.status == "RUNNING"
    (sweep / "report.html").write_text("<p>")
    mlflow_runs.finish(
        sweep, done=True, metrics={"best_eval_loss": 2.0}, parameters={"trial": "t0002"}, report=sweep / "report.html"
    )
    ended = client.get_run(above)
    assert (ended.info.status, ended.data.metrics) == ("FINISHED", {"best_eval_loss": 2.0})
    assert ended.data.tags["best.trial"] == "t0002"
    assert [each.path for each in client.list_artifacts(above)] == ["report.html"]


def test_trials_that_start_at_once_agree_on_their_parent(tmp_path, mlflow):
    sweep = tmp_path / "lr"
    sweep.mkdir()
    mlflow_runs.connect(sweep)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(mlflow_runs.parent(mlflow, sweep))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert set(found) == {json.loads((sweep / "mlflow.json").read_text())["run_id"]}
    _, left = runs(mlflow, tmp_path / "mlruns")
    assert [run.info.run_id for run in left] == found[:1]


def test_a_sweep_that_was_not_logged_is_not_finished_in_mlflow(tmp_path):
    mlflow_runs.finish(tmp_path, done=True, metrics={}, parameters={}, report=tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_wandb_writes_its_offline_run(tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    log(tmp_path / "first", "wandb")
    (folder,) = (tmp_path / "first" / "wandb").glob("offline-run-*")
    (file,) = folder.glob("run-*.wandb")
    content = file.read_bytes()
    assert all(name in content for name in (b"loss", b"held_out_loss", b"raytrain-eks"))


def test_a_logger_that_fails_is_dropped_and_the_others_go_on(tmp_path, monkeypatch, caplog):
    class Broken:
        def __init__(self, job, folder, attempt):
            pass

        def add(self, step, values):
            raise OSError("no space left")

        def close(self):
            raise AssertionError("it was dropped")

    monkeypatch.setitem(loggers.KNOWN, "wandb", ("json", Broken))
    log(tmp_path / "first", "wandb", "tensorboard")
    assert [record.getMessage() for record in caplog.records] == [
        "logger wandb is dropped, training goes on: no space left"
    ]
    assert list((tmp_path / "first" / "tensorboard" / "attempt-0001").iterdir())


def test_a_logger_whose_package_is_missing_is_refused_by_name(monkeypatch):
    monkeypatch.setitem(loggers.KNOWN, "wandb", ("no_such_package", loggers.Wandb))
    with pytest.raises(SpecError, match="no_such_package is not installed here"):
        loggers.check(job_of("tensorboard", "wandb"))
