"""`raytrain-eks logs`: the log of a run's newest job."""

import sys
from typing import Any

import click

from raytrain_eks.cli.target_options import options, say, storage_of, target_of


@click.command(help="The log of the driver of a RUN, which has the lines of its workers as well.")
@click.argument("run")
@options
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders, to tell runs of one name apart.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over; every line once.")
@click.option("-n", "--last", type=click.IntRange(min=1), help="Only the last lines.")
def command(
    run: str, on: str | None, access: dict[str, Any], storage: str | None, follow: bool, last: int | None
) -> int:
    from raytrain_eks.submit import registry
    from raytrain_eks.submit.errors import NotFound
    from raytrain_eks.submit.start import newest

    record = registry.recall(run)
    target = target_of(on, access, record)
    place = storage or (record.storage if record is not None else None)
    state = newest(run, target, storage=place, id=record.id if record is not None else None)
    if state is None:
        raise NotFound(f"{target.name} has no job of `{run}`\n  its folder: {storage_of(storage, record)}/{run}")
    if follow and not state.phase.over:
        from raytrain_eks.submit.follow import Follower

        for line in Follower(target, state.id, say=say).lines():
            click.echo(line)
        return 0
    write = sys.stdout.buffer.write
    for chunk in target.log(state, last=last):
        write(chunk)
    sys.stdout.buffer.flush()
    return 0
