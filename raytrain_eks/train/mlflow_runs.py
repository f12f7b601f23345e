"""Where MLflow's runs of ours go, and which run is whose parent.

A run of a sweep lies in `<sweep>/trials/<trial>/`; its MLflow runs are children of the sweep's, whose id is in
`<sweep>/mlflow.json`. Whichever trial comes first makes that run: the file is created exclusively, so that two that
start at once agree.
"""

import json
import os
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.folder import Folder

EXPERIMENT = "raytrain-eks"
PARENT = "mlflow.json"
"""In a sweep's folder: the id of its MLflow run."""
TRIALS = "trials"
STORE = "mlruns"
URI = "MLFLOW_TRACKING_URI"


def sweep_of(run: Path) -> Path | None:
    """The sweep's folder when the run folder is that of a trial."""
    sweep = run.parent.parent
    return sweep if run.parent.name == TRIALS and (sweep / "trials.jsonl").exists() else None


def connect(home: Path) -> Any:
    """MLflow's module, its tracking URI set: $MLFLOW_TRACKING_URI, or plain files in `mlruns/` beside the folder
    `home`, a run's or a sweep's. Raises ImportError without MLflow."""
    if not os.environ.get(URI):
        # MLflow 3 wants to be told that plain files are meant.
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    import mlflow

    if not os.environ.get(URI):
        mlflow.set_tracking_uri((home.parent / STORE).as_uri())
    return mlflow


def parent(mlflow: Any, sweep: Path) -> str:
    """The id of the sweep's MLflow run, made now if there is none."""
    folder = Folder(sweep)
    if (known := _known(sweep)) is not None:
        return known
    client = mlflow.MlflowClient()
    experiment = mlflow.set_experiment(EXPERIMENT).experiment_id
    made = client.create_run(experiment, run_name=sweep.name, tags={"raytrain.sweep": sweep.name}).info.run_id
    if folder.create(PARENT, json.dumps({"run_id": made}).encode()):
        return str(made)
    # Another trial was faster.
    client.delete_run(made)
    return _known(sweep) or str(made)


def finish(sweep: Path, *, done: bool, metrics: dict[str, float], parameters: dict[str, Any], report: Path) -> None:
    """Close the sweep's MLflow run with the best trial's objective and parameters, and the report as its artifact.

    Nothing where no trial was logged to MLflow.
    """
    if (run_id := _known(sweep)) is None:
        return
    client = connect(sweep).MlflowClient()
    for name, value in metrics.items():
        client.log_metric(run_id, name, value)
    for name, value in parameters.items():
        client.set_tag(run_id, f"best.{name}", str(value)[:250])
    if report.exists():
        client.log_artifact(run_id, str(report))
    client.set_terminated(run_id, "FINISHED" if done else "FAILED")


def _known(sweep: Path) -> str | None:
    try:
        found = json.loads((sweep / PARENT).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found.get("run_id") if isinstance(found, dict) else None
