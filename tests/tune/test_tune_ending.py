"""What a driver says while a sweep runs and at its end, and what the end leaves: report, leaderboard, MLflow."""

import json
import threading

import pytest
import sweep_lines

from raytrain_eks.tune.ending import close
from raytrain_eks.tune.telling import Telling


def test_the_end_leaves_a_report_and_says_the_leaderboard(tmp_path):
    sweep_lines.write(tmp_path, "lr", sweep_lines.halving(), {"state": "completed"})
    said: list[str] = []
    close(str(tmp_path), "lr", said.append)
    assert said[0].startswith("sweep lr: 2 completed")
    assert said[2].split()[:2] == ["1", "t0002"]
    assert said[-1] == f"report: {tmp_path}/lr/report.html"
    assert (tmp_path / "lr" / "report.html").exists()


def test_a_report_that_cannot_be_written_spoils_nothing(tmp_path):
    folder = sweep_lines.write(tmp_path, "lr", sweep_lines.halving())
    (folder / "report.html").mkdir()
    said: list[str] = []
    close(str(tmp_path), "lr", said.append)
    assert said[-1].startswith("the report is left out: ")


def test_the_end_closes_the_parent_run_of_mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    from raytrain_eks.train import mlflow_runs

    folder = sweep_lines.write(tmp_path, "lr", sweep_lines.halving(), {"state": "completed"})
    run_id = mlflow_runs.parent(mlflow_runs.connect(folder), folder)
    close(str(tmp_path), "lr", lambda text: None)
    run = mlflow.MlflowClient().get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags["best.trial"] == "t0002"
    assert run.data.metrics["trials"] == 8
    mlflow.set_tracking_uri(None)


def test_news_are_told_while_the_sweep_runs(tmp_path):
    lines = sweep_lines.halving(2)
    folder = sweep_lines.write(tmp_path, "lr", lines[:2])
    said: list[str] = []
    began = threading.Event()

    def say(text: str) -> None:
        said.append(text)
        began.set()

    with Telling(str(tmp_path), "lr", say, every=0.01):
        assert began.wait(timeout=60)
        with (folder / "trials.jsonl").open("a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines[2:]))
    assert said[0].startswith("trial t0001  step 0  running  optimizer.learning_rate=")
    assert said[-1].startswith("trial t0002  step 40  held_out_loss ")
    assert said[-1].endswith("  completed")
    assert len(said) == len(set(said))
