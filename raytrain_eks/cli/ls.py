"""`raytrain-eks ls`: the runs of a storage folder, or those that a target has jobs of."""

import contextlib
import time
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import options, storage_of, target_of

if TYPE_CHECKING:
    from raytrain_eks.submit.target import Target

HEADINGS = ("RUN", "STATE", "STEP", "LOSS", "CHECKPOINT", "ATTEMPTS", "CREATED")


@click.command(help="The runs of a storage folder; with --on those that a cluster has jobs of.")
@options
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")
@out.option()
def command(on: str | None, access: dict[str, Any], storage: str | None, output: str) -> int:
    if on is not None and on != "local":
        show_jobs(target_of(on, access), storage, output)
    else:
        show(storage_of(storage, None), output)
    return 0


def show_jobs(target: "Target", storage: str | None, output: str) -> None:
    """The newest job of every run on a target, by name."""
    from raytrain_eks.submit.target import STORAGE
    from raytrain_eks.train.progress import duration

    newest = {
        (state.run, state.metadata.get(STORAGE)): state
        for state in target.jobs()
        if state.run is not None and storage in (None, state.metadata.get(STORAGE))
    }
    rows: list[dict[str, object]] = [
        {
            "run": run,
            "state": state.phase.value.lower(),
            "job": state.id,
            "storage": place,
            "started": None if state.started is None else int(state.started),
        }
        for (run, place), state in sorted(newest.items(), key=lambda each: (each[0][0] or "", each[0][1] or ""))
    ]
    if not rows:
        click.echo(f"{target.name} has no jobs of runs", err=True)

    def table() -> str:
        now = time.time()
        cells = [
            [*list(row.values())[:4], f"{duration(now - state.started)} ago" if state.started else None]
            for row, state in zip(rows, (newest[(row["run"], row["storage"])] for row in rows), strict=True)  # type: ignore[index]
        ]
        return out.aligned(("RUN", "STATE", "JOB", "STORAGE", "STARTED"), cells)

    out.write(output, rows, table=table)


def show(storage: str, output: str) -> None:
    """All runs of a storage, by name."""
    from raytrain_eks.checkpoint.run import list_runs

    living = running(storage)
    rows: list[dict[str, object]] = []
    for run in list_runs(storage):
        if run.damaged:
            click.echo(f"{run.name}: {run.damaged}", err=True)
        rows.append(
            {
                "run": run.name,
                "state": "running" if run.name in living else str(run.ended or "interrupted"),
                "step": run.step,
                "loss": run.loss if isinstance(run.loss, int | float) else None,
                "checkpoint": run.checkpoint,
                "attempts": run.attempts,
                "created": run.created,
            }
        )
    if not rows:
        click.echo(f"no runs in {storage}", err=True)
    out.write(output, rows, table=lambda: _table(rows))


def _table(rows: list[dict[str, object]]) -> str:
    cells = [
        [f"{cell:.4f}" if key == "loss" and cell is not None else cell for key, cell in row.items()] for row in rows
    ]
    return out.aligned(HEADINGS, cells, right=("STEP", "LOSS", "CHECKPOINT", "ATTEMPTS"))


def running(storage: str) -> set[str]:
    """Runs of this storage that a job of this machine's Ray works on; none when there is no Ray."""
    from raytrain_eks.submit.errors import TargetError
    from raytrain_eks.submit.local import Local
    from raytrain_eks.submit.target import STORAGE

    with contextlib.suppress(TargetError):
        return {
            state.run or ""
            for state in Local().jobs()
            if not state.phase.over and state.metadata.get(STORAGE) == storage
        }
    return set()
