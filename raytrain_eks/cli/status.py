"""`raytrain-eks status`: where a run or a sweep is, on one screen."""

import contextlib
import shutil
import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import options, storage_of, target_of

if TYPE_CHECKING:
    from raytrain_eks.submit.registry import Record
    from raytrain_eks.submit.run_status import RunStatus
    from raytrain_eks.submit.target import Target
    from raytrain_eks.tune.history import History

OVER = ("complete", "stopped", "failed", "interrupted")


@click.command(
    help="Where a RUN or a sweep is: phase, step, loss, last checkpoint; its trials. Without RUN: every run."
)
@click.argument("run", required=False)
@options
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")
@click.option("-w", "--watch", is_flag=True, help="Again every 2 seconds, until the run is over.")
@out.option()
def command(
    run: str | None, on: str | None, access: dict[str, Any], storage: str | None, watch: bool, output: str
) -> int:
    if run is None:
        from raytrain_eks.cli.ls import show

        show(storage_of(storage, None), output)
        return 0
    from raytrain_eks.submit import registry
    from raytrain_eks.submit.run_status import status
    from raytrain_eks.submit.start import place_of_run

    record = registry.recall(run)
    target = target_of(on, access, record)
    place = place_of_run(run, storage, record, target)
    if place is not None and _sweep(place, run) is not None:
        return _watch_sweep(run, place, target, record, watch, output)
    while True:
        found = status(
            run,
            storage=place,
            # The Ray of this machine may be another one by now.
            target=target_of(on, access, record) if target.shares_files else target,
            job_id=record.id if record is not None else None,
        )
        if watch and out.colored() and output == "table":
            click.clear()
        out.write(output, asdict(found), table=partial(screen, found))
        if not watch or found.state in OVER:
            return 0
        time.sleep(2)


def _sweep(place: str, name: str) -> "History | None":
    """The sweep of that name; None where there is none, or its storage cannot be read from here."""
    from raytrain_eks.tune.history import History

    with contextlib.suppress(OSError):
        return History.read(place, name)
    return None


def _watch_sweep(name: str, place: str, target: "Target", record: "Record | None", watch: bool, output: str) -> int:
    """The trials of a sweep; again until it is over when they are watched."""
    from raytrain_eks.tune.results import as_data
    from raytrain_eks.tune.table import table

    while True:
        history = _sweep(place, name)
        if history is None:
            return 0
        phase, over = _driver(history, target, place, record)
        live = out.colored() and output == "table"
        if watch and live:
            click.clear()
        size = shutil.get_terminal_size()
        rows = table(history, size.columns - 1, max(size.lines - 4, 5)) if live else table(history)
        out.write(output, as_data(history) | {"phase": phase}, table=partial("{}\n{}".format, phase, rows))
        if not watch or over:
            return 0
        time.sleep(2)


def _driver(history: "History", target: "Target", place: str, record: "Record | None") -> tuple[str, bool]:
    """What the sweep's driver does, as a sentence, and whether the sweep is over."""
    from raytrain_eks.submit.errors import TargetError
    from raytrain_eks.submit.follow import ending
    from raytrain_eks.submit.run_status import job_of

    if history.state != "running":
        return history.state + (f": {history.reason}" if history.reason else ""), True
    again = f"`raytrain-eks resume {history.name}` goes on with it"
    try:
        job = job_of(history.name, target, storage=place, id=record.id if record is not None else None)
    except TargetError as error:
        return f"{str(error).splitlines()[0]}; by its folder it is not over", True
    if job is None:
        return f"interrupted: no job of it runs on {target.name}; {again}", True
    return (f"{ending(job)}; {again}", True) if job.phase.over else (f"running as {job.id} on {target.name}", False)


def screen(found: "RunStatus") -> str:
    """What a person wants to know first, first."""
    from raytrain_eks.submit.run_status import facts

    told = out.pairs({"run": found.run} | facts(found) | {"why": "\n     ".join(found.why[1:]) or None})
    if not found.pods:
        return told
    rows = [(pod.name, pod.role, pod.phase, pod.node, pod.restarts or None, pod.why) for pod in found.pods]
    return f"{told}\n\n" + out.aligned(("POD", "ROLE", "PHASE", "NODE", "RESTARTS", "WHY"), rows, right=("RESTARTS",))
