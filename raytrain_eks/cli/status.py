"""`raytrain-eks status`: where a run is, on one screen."""

import time
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import options, storage_of, target_of

if TYPE_CHECKING:
    from raytrain_eks.submit.run_status import RunStatus

OVER = ("complete", "stopped", "failed", "interrupted")


@click.command(help="Where a RUN is: phase, step, loss, speed, last checkpoint. Without RUN: every run.")
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

    record = registry.recall(run)
    while True:
        found = status(
            run,
            storage=storage_of(storage, record),
            target=target_of(on, access, record),
            job_id=record.id if record is not None else None,
        )
        if watch and out.colored() and output == "table":
            click.clear()
        out.write(output, asdict(found), table=partial(screen, found))
        if not watch or found.state in OVER:
            return 0
        time.sleep(2)


def screen(found: "RunStatus") -> str:
    """What a person wants to know first, first."""
    from raytrain_eks.submit.run_status import facts

    return out.pairs({"run": found.run} | facts(found))
