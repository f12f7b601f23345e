"""The end of a sweep: its report, its leaderboard, and the MLflow run that its trials' runs belong to.

All of it is told from the sweep's folder, and none of it may spoil the sweep: what fails is said, and passed over.
"""

from collections.abc import Callable

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.train import mlflow_runs
from raytrain_eks.tune.history import History
from raytrain_eks.tune.report import REPORT, write
from raytrain_eks.tune.table import leaderboard, summary


def close(storage: Storage | str, name: str, say: Callable[[str], None]) -> None:
    """Write `report.html`, say the leaderboard, close the MLflow run; called once all else of the sweep is written."""
    place = Storage.of(storage)
    history = History.read(place, name)
    if history is None:
        return
    for text in [summary(history), *leaderboard(history).splitlines()]:
        say(text)
    _try("the report", lambda: say(f"report: {write(place, name)}"), say)
    _try("MLflow", lambda: _mlflow(place, history), say)


def _mlflow(storage: Storage, history: History) -> None:
    folder = storage.child(history.name).folder
    if folder is None:
        return
    best = history.best
    value = best.value if best is not None else None
    mlflow_runs.finish(
        folder,
        done=history.state in ("completed", "complete", "stopped"),
        metrics={f"best_{history.metric}": value, "trials": len(history.trials)} if value is not None else {},
        parameters={"trial": best.id, **best.parameters} if best is not None else {},
        report=folder / REPORT,
    )


def _try(what: str, work: Callable[[], None], say: Callable[[str], None]) -> None:
    try:
        work()
    except Exception as error:
        say(f"{what} is left out: {type(error).__name__}: {error}")
