"""A sweep from Python: `Results("s3://bucket/runs", "lr").frame()` is a pandas DataFrame.

Reading a sweep needs only its folder, whether it still runs or not; pandas is imported only to make a frame.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raytrain_eks.checkpoint.run import UNREADABLE, RunFolder, unreadable
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.tune.history import RUNS, SUMMARY, TRIALS, History, Trial
from raytrain_eks.tune.table import leaderboard

if TYPE_CHECKING:
    from pandas import DataFrame


class Results:
    """What the sweep of a name in a storage has come to; read anew at each call, so that one that runs is watched."""

    def __init__(self, storage: Storage | str, name: str):
        self.storage, self.name = Storage.of(storage), name

    @property
    def history(self) -> History:
        """Trials with their objectives, decisions and reasons. Raises FileNotFoundError where there is no sweep."""
        found = History.read(self.storage, self.name)
        if found is None:
            raise FileNotFoundError(2, f"no sweep here (no {TRIALS})", self.storage.child(self.name).url)
        return found

    def frame(self) -> "DataFrame":
        """A row for each trial in the order of creation, its id as index.

        Columns: number, state, reason, step, tokens, value (newest objective), best_value, best_step, trained_steps
        (those that a crash undid included), seconds (with its workers), starts, then one for each parameter, by path.
        """
        from pandas import DataFrame

        history = self.history
        frame = DataFrame([row(trial, history) for trial in history.trials])
        return frame.set_index("trial") if len(frame) else frame

    def metrics(self, trial: str) -> "DataFrame":
        """The step metrics of a trial (loss, learning_rate, tokens, ...), one row per step, step as index."""
        from pandas import DataFrame

        frame = DataFrame(self.run(trial).metrics())
        return frame.set_index("step") if len(frame) else frame

    def run(self, trial: str) -> RunFolder:
        """A trial's run folder: an ordinary one, with checkpoints and export."""
        return RunFolder(self.storage.child(self.name, RUNS), trial)

    def leaderboard(self, most: int = 10) -> str:
        """The best trials as text."""
        return leaderboard(self.history, most)


def row(trial: Trial, history: History) -> dict[str, Any]:
    """A trial as plain data: what `frame()` has, parameters among the columns."""
    return {key: value for key, value in entry(trial, history).items() if key != "parameters"} | trial.parameters


def entry(trial: Trial, history: History) -> dict[str, Any]:
    """A trial as plain data, parameters apart."""
    best = trial.best(history.mode)
    return {
        "trial": trial.id,
        "number": trial.number,
        "state": trial.state,
        "reason": trial.reason,
        "step": trial.step,
        "tokens": trial.tokens,
        "value": trial.value,
        "best_value": best[1] if best else None,
        "best_step": best[0] if best else None,
        "trained_steps": trial.trained,
        "seconds": round(trial.busy, 3),
        "starts": trial.starts,
        "parameters": trial.parameters,
    }


def as_data(history: History) -> dict[str, Any]:
    """The whole sweep as plain data, for `-o json|yaml`."""
    found: dict[str, Any] = {"sweep": history.name, "state": history.state, "reason": history.reason}
    found["objective"] = {"metric": history.metric, "mode": history.mode}
    found |= {"best": history.best.id if history.best is not None else None, "export": history.export}
    found |= {"trained_steps": history.trained_steps, "seconds": history.seconds, "seed": history.seed}
    return found | {"trials": [entry(trial, history) for trial in history.trials]}


def list_sweeps(storage: Storage | str, damaged: Callable[[str, str], None] = lambda name, why: None) -> list[History]:
    """Every sweep of a storage, by name; `damaged` is told the name of each that cannot be read, and why. Raises
    OSError when the storage itself cannot be read."""
    place = Storage.of(storage)
    found: list[History] = []
    for each in place.entries():
        child = place.child(each.name)
        if not each.is_folder or each.name.startswith(".") or not _is_sweep(child):
            continue
        try:
            history = History.read(place, each.name)
        except UNREADABLE as error:
            damaged(each.name, unreadable(child.url, error))
        else:
            found += [history] if history is not None else []
    return found


def _is_sweep(folder: Storage) -> bool:
    return any(folder.exists(name) for name in (TRIALS, SUMMARY))
