"""`raytrain-eks sweep ls|results|report`: what became of a sweep, from its folder alone."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Failure, Outcome
from raytrain_eks.cli.target_options import storage_of

if TYPE_CHECKING:
    from raytrain_eks.submit.registry import Record
    from raytrain_eks.tune.history import History

HEADINGS = ("SWEEP", "STATE", "TRIALS", "OVER", "BEST", "OBJECTIVE", "METRIC")
_STORED = click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")


@click.command("ls", help="The sweeps of a storage folder.")
@_STORED
@out.option()
def ls(storage: str | None, output: str) -> int:
    from raytrain_eks.tune.results import list_sweeps

    place = storage_of(storage, None)
    found = list_sweeps(place, damaged=lambda name, why: click.echo(f"{name}: {why}", err=True))
    if not found:
        click.echo(f"no sweeps in {place}", err=True)
    rows = [_row(history) for history in found]
    table = partial(out.aligned, HEADINGS, [list(row.values()) for row in rows], right=("TRIALS", "OVER", "OBJECTIVE"))
    out.write(output, rows, table=table)
    return 0


def _row(history: "History") -> dict[str, object]:
    from raytrain_eks.tune.record import ENDS

    best = history.best
    value = best.value if best is not None else None
    return {
        "sweep": history.name,
        "state": history.state,
        "trials": len(history.trials),
        "over": sum(trial.state in ENDS for trial in history.trials),
        "best": best.id if best is not None else None,
        "value": round(value, 6) if value is not None else None,
        "metric": history.metric,
    }


@click.command("results", help="The trials of the sweep NAME, best first, with the reasons of those that failed.")
@click.argument("name")
@_STORED
@click.option("--top", type=click.IntRange(min=1), metavar="N", help="Only the N best.")
@out.option()
def results(name: str, storage: str | None, top: int | None, output: str) -> int:
    from raytrain_eks.tune.results import as_data

    history = opened(name, storage)
    data = as_data(history)
    order = [trial.id for trial in history.ranked()][:top]
    by_id = {trial["trial"]: trial for trial in data["trials"]}
    data["trials"] = [by_id[trial] for trial in order]
    out.write(output, data, table=partial(_ranked, history, top))
    return 0


def _ranked(history: "History", top: int | None) -> str:
    """The leaderboard, then what failed: a trial without an objective has no rank."""
    from raytrain_eks.tune import table

    failed = [trial for trial in history.trials if trial.state in ("failed", "diverged")]
    why = [f"{trial.id} {trial.state}: {table.shown_reason(trial) or 'no reason was given'}" for trial in failed]
    parts = [
        table.summary(history),
        table.leaderboard(history, top or len(history.trials)),
        *(why if top is None else []),
    ]
    return "\n".join(part for part in parts if part)


@click.command("report", help="Write the HTML report of the sweep NAME; it opens with no network. Prints its place.")
@click.argument("name")
@_STORED
@click.option("--to", type=click.Path(path_type=Path, dir_okay=False), help="Write it to this file instead.")
def report(name: str, storage: str | None, to: Path | None) -> int:
    from raytrain_eks.checkpoint.storage import Storage
    from raytrain_eks.tune.report import html, losses, write

    history = opened(name, storage)
    place = Storage.of(storage_of(storage, _record(name)))
    if to is None:
        click.echo(write(place, name))
        return 0
    to.write_text(html(history, losses(place, history)), encoding="utf-8")
    click.echo(str(to))
    return 0


def opened(name: str, storage: str | None) -> "History":
    """The sweep. Raises Failure when there is none of that name."""
    from raytrain_eks.checkpoint.storage import Storage
    from raytrain_eks.spec.problem import nearest
    from raytrain_eks.tune.history import History
    from raytrain_eks.tune.results import list_sweeps

    place = Storage.of(storage_of(storage, _record(name)))
    found = None if not name or "/" in name or name.startswith(".") else History.read(place, name)
    if found is None:
        known = [history.name for history in list_sweeps(place)]
        guess = nearest(name, known)
        there = (
            f"sweeps there: {', '.join(known)}" if known else "there are no sweeps there; name another with --storage"
        )
        raise Failure(
            f"no sweep `{name}` in {place.url}\n  " + (f"did you mean `{guess}`? " if guess else "") + there,
            Outcome.USAGE,
        )
    return found


def _record(name: str) -> "Record | None":
    """Where the sweep was submitted to from here, if it was."""
    from raytrain_eks.submit import registry

    return registry.recall(name)


VERBS: dict[str, click.Command] = {"ls": ls, "results": results, "report": report}
"""What `raytrain-eks sweep` offers beside running a file."""
