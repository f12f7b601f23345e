"""The sweep as Ray Tune sees it: a searcher, a scheduler and a stopper that all ask the conductor.

Tune places legs, reserves the workers of each whole (placement groups), reuses driver processes and notices when one
dies. Its own state is not kept: what is to be known after a crash lies in the sweep's journal.
"""

import contextlib
import json
import logging
import os
import tempfile
from dataclasses import asdict
from typing import Any

from ray import tune
from ray.tune.schedulers import FIFOScheduler
from ray.tune.search import Searcher

from raytrain_eks.tune.conductor import Conductor
from raytrain_eks.tune.ranks import Needs
from raytrain_eks.tune.trial import TrialDriver

QUIET = {
    # Tune's own loggers and tables; trials have their metrics, and the sweep its journal.
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
    # A snapshot of Tune's state that nobody reads.
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
    # A driver that winds a run up may take its time.
    "TUNE_FORCE_TRIAL_CLEANUP_S": "120",
}


class _Here:
    """An object of this process: Tune takes snapshots of itself, and nothing of this may be in them."""

    def __reduce__(self) -> Any:
        return object, ()

    def __deepcopy__(self, memo: Any) -> Any:
        return self


class Legs(_Here, Searcher):
    """Gives Tune the conductor's legs, as trials of its own."""

    def __init__(self, conductor: Conductor, needs: Needs, most: int):
        super().__init__()
        self.conductor, self.most = conductor, most
        self._needs = json.dumps(asdict(needs))
        self.names: dict[str, str] = {}
        """Tune's id of a leg -> the trial."""

    def suggest(self, trial_id: str) -> Any:
        """The next leg; None when there is none now."""
        leg = self.conductor.next() if len(self.conductor.live) < self.most else None
        if leg is None:
            return Searcher.FINISHED if self.conductor.done else None
        self.names[trial_id] = leg.trial
        return {"leg": json.dumps(asdict(leg)), "needs": self._needs}

    def on_trial_complete(self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False) -> None:
        """A leg that Tune gave up: its driver has died."""
        name = self.names.pop(trial_id, None)
        if name is not None and name in self.conductor.live:
            self.conductor.lost(name, "the process that drives it has died")

    def save(self, checkpoint_path: str) -> None:
        """Nothing: the journal has it."""

    def restore(self, checkpoint_path: str) -> None:
        """Nothing: the journal has it."""


class Word(_Here, FIFOScheduler):
    """Takes what trials tell to the conductor, and its word back."""

    def __init__(self, conductor: Conductor, after: Any):
        super().__init__()
        self.conductor, self.after = conductor, after

    def on_trial_result(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> str:
        """News of a leg that goes on."""
        self._take(trial, result)
        return str(FIFOScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Any, result: dict[str, Any]) -> None:
        """The last news of a leg."""
        self._take(trial, result)

    def _take(self, trial: Any, result: dict[str, Any]) -> None:
        told = json.loads(result["told"])
        name = told["trial"]
        if name not in self.conductor.live:
            return
        for news in told["news"]:
            if not self.conductor.heard(name, news) and told["outcome"] is None:
                # Calls of one caller arrive in order: it is there before the next `step`.
                trial.temporary_state.ray_actor.word.remote(False)
        if told["outcome"] is not None:
            self.conductor.finished(name, told["outcome"])
        self.after()


def run(conductor: Conductor, needs: Needs, most: int, after: Any = lambda: None) -> None:
    """Let Ray Tune work until the conductor is done. `after` is called after each result."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    bundles = [{}, *[{key: amount for key, amount in needs.each.items() if amount} for _ in range(needs.workers)]]
    trainable = tune.with_resources(TrialDriver, tune.PlacementGroupFactory(bundles, strategy="PACK"))
    with tempfile.TemporaryDirectory(prefix="raytrain-tune-") as folder, contextlib.chdir(os.getcwd()):
        tuner = tune.Tuner(
            trainable,
            tune_config=tune.TuneConfig(
                search_alg=Legs(conductor, needs, most),
                scheduler=Word(conductor, after),
                num_samples=-1,
                reuse_actors=True,
                trial_name_creator=lambda trial: f"leg_{trial.trial_id}",
                trial_dirname_creator=lambda trial: f"leg_{trial.trial_id}",
            ),
            run_config=tune.RunConfig(
                name="legs",
                storage_path=folder,
                verbose=0,
                failure_config=tune.FailureConfig(max_failures=0),
                checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
            ),
        )
        # It looks for the files of the loggers that are off, and says that they are not there.
        logging.getLogger("ray.tune.analysis.experiment_analysis").setLevel(logging.ERROR)
        tuner.fit()
