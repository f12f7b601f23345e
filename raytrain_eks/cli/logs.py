"""`raytrain-eks logs`: the log of a run's newest job, or of one of its ranks."""

import sys
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli.target_options import options, say, target_of

if TYPE_CHECKING:
    from raytrain_eks.submit.target import Target


@click.command(help="The log of the driver of a RUN, which has the lines of its workers as well.")
@click.argument("run")
@options
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders, to tell runs of one name apart.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the job is over; every line once.")
@click.option("--last", type=click.IntRange(min=1), help="Only the last lines.")
@click.option("--rank", type=click.IntRange(min=0), help="What one worker process itself wrote, while its node is up.")
def command(
    run: str,
    on: str | None,
    access: dict[str, Any],
    storage: str | None,
    follow: bool,
    last: int | None,
    rank: int | None,
) -> int:
    from raytrain_eks.submit import registry
    from raytrain_eks.submit.errors import NotFound
    from raytrain_eks.submit.ranks import RankView
    from raytrain_eks.submit.start import newest, place_of_run

    record = registry.recall(run)
    target = target_of(on, access, record)
    place = storage or (record.storage if record is not None else None)
    state = newest(run, target, storage=place, id=record.id if record is not None else None)
    if state is None:
        folder = place_of_run(run, storage, record, target)
        raise NotFound(f"{target.name} has no job of `{run}`" + (f"\n  its folder: {folder}/{run}" if folder else ""))
    source: Target | RankView = target
    if rank is not None:
        source = RankView(target, run, rank, storage=place_of_run(run, storage, record, target))
    if follow and not state.phase.over:
        from raytrain_eks.submit.follow import Follower

        for line in Follower(source, state.id, say=say).lines():
            click.echo(line)
        return 0
    write = sys.stdout.buffer.write
    for chunk in source.log(state, last=last):
        write(chunk)
    sys.stdout.buffer.flush()
    return 0
