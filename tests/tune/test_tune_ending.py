"""What a driver says at the end of a sweep, and what the end leaves: report, leaderboard, MLflow."""

import pytest
import sweep_lines

from raytrain_eks.tune.ending import close


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


@pytest.mark.slow
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
