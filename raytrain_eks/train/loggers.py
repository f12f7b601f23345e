"""Loggers beside `metrics.jsonl`: TensorBoard, MLflow and Weights & Biases, told from the journal's thread.

They never hold up training, and a logger that fails is dropped out loud: its files are a convenience, the run is not.
"""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

log = logging.getLogger(__name__)

METRICS = ("loss", "learning_rate", "gradient_norm", "tokens_per_second", "mfu", "held_out_loss", "bits_per_byte")


class Logger(Protocol):
    """Takes the numbers of a step."""

    def add(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


class TensorBoard:
    """Event files in `tensorboard/` of the run folder."""

    def __init__(self, job: Job, folder: Path, attempt: int):
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(logdir=str(folder / "tensorboard" / f"attempt-{attempt:04d}"))

    def add(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class MLflow:
    """A file store in `mlruns/` beside the run folders; MLFLOW_TRACKING_URI overrides it. A trial's run is a child of
    its sweep's."""

    def __init__(self, job: Job, folder: Path, attempt: int):
        from raytrain_eks.train import mlflow_runs

        sweep = mlflow_runs.sweep_of(folder)
        self._mlflow = mlflow = mlflow_runs.connect(sweep or folder)
        mlflow.set_experiment(mlflow_runs.EXPERIMENT)
        above = mlflow_runs.parent(mlflow, sweep) if sweep is not None else None
        mlflow.start_run(run_name=f"{folder.name}-{attempt:04d}", parent_run_id=above)
        mlflow.log_params({name: value for name, value in _flat(job.identity()) if len(str(value)) <= 250})

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self._mlflow.log_metrics(dict(values), step=step)

    def close(self) -> None:
        self._mlflow.end_run()


class Wandb:
    """A run of the project `raytrain-eks`; offline where WANDB_MODE says so."""

    def __init__(self, job: Job, folder: Path, attempt: int):
        import wandb

        self._run = wandb.init(
            project="raytrain-eks", name=job.name, dir=str(folder), config=job.identity(), resume="allow"
        )

    def add(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


KNOWN: dict[str, tuple[str, Callable[[Job, Path, int], Logger]]] = {
    "tensorboard": ("tensorboardX", TensorBoard),
    "mlflow": ("mlflow", MLflow),
    "wandb": ("wandb", Wandb),
}
"""Name -> the module that it needs, and the logger."""


def check(job: Job) -> None:
    """Raises SpecError for a logger whose package is not installed."""
    from importlib.util import find_spec

    problems = [
        Problem(path=f"loggers.{index}", value=name, rule=f"the package {KNOWN[name][0]} is not installed here")
        for index, name in enumerate(job.loggers)
        if find_spec(KNOWN[name][0]) is None
    ]
    if problems:
        raise SpecError(problems)


class Loggers:
    """All loggers of a job; the first failure of one ends it, not the run."""

    def __init__(self, job: Job, folder: Path | None, attempt: int):
        self._loggers: dict[str, Logger] = {}
        for name in job.loggers:
            if folder is None:
                log.warning("logger %s: the storage is no folder, so it has nowhere to write", name)
                continue
            self._guarded(name, lambda name=name: self._loggers.__setitem__(name, KNOWN[name][1](job, folder, attempt)))

    def add(self, line: Mapping[str, Any]) -> None:
        """Tell the numbers of one line of metrics or of an evaluation."""
        values = {name: float(line[name]) for name in METRICS if isinstance(line.get(name), int | float)}
        if values and "step" in line:
            for name in list(self._loggers):
                self._guarded(name, lambda name=name: self._loggers[name].add(int(line["step"]), values))

    def close(self) -> None:
        """Write out what is left."""
        for name in list(self._loggers):
            self._guarded(name, lambda name=name: self._loggers[name].close())

    def _guarded(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            log.warning("logger %s is dropped, training goes on: %s", name, error)
            self._loggers.pop(name, None)


def _flat(tree: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        name = f"{path}.{key}" if path else key
        found += _flat(value, name) if isinstance(value, Mapping) else [(name, value)]
    return found
