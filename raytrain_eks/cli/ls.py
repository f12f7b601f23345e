"""`raytrain-eks ls`: the runs of a storage folder."""

import contextlib

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import storage_of

HEADINGS = ("RUN", "STATE", "STEP", "LOSS", "CHECKPOINT", "ATTEMPTS", "CREATED")


@click.command(help="The runs of a storage folder.")
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")
@out.option()
def command(storage: str | None, output: str) -> int:
    show(storage_of(storage, None), output)
    return 0


def show(storage: str, output: str) -> None:
    """All runs of a storage, by name."""
    from raytrain_eks.checkpoint.run import list_runs

    living = running(storage)
    rows: list[dict[str, object]] = []
    for run in list_runs(storage):
        ended = str((run.summary or {}).get("status", "interrupted"))
        rows.append(
            {
                "run": run.name,
                "state": "running" if run.name in living else ended,
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
