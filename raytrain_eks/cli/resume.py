"""`raytrain-eks resume`: go on with a run from its last complete checkpoint."""

from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import options, target_of


@click.command(help="Go on with a RUN from its last complete checkpoint, with the job file that its folder holds.")
@click.argument("run")
@options
@click.option("-f", "--follow", is_flag=True, help="Show log and progress; end with the job's exit code.")
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")
@click.option("--working-dir", type=click.Path(path_type=Path), help="What travels with the job. Default: as before.")
@click.option(
    "--max-upload", default="100Mi", show_default=True, metavar="SIZE", help="Limit of the working directory."
)
@out.option()
def command(
    run: str,
    on: str | None,
    access: dict[str, Any],
    follow: bool,
    storage: str | None,
    working_dir: Path | None,
    max_upload: str,
    output: str,
) -> int:
    from raytrain_eks.cli.submit import run as submit
    from raytrain_eks.cli.submit import size
    from raytrain_eks.submit import registry
    from raytrain_eks.submit.start import Wish, again, place_of_run

    limit = size(max_upload)
    record = registry.recall(run)
    target = target_of(on, access, record)
    place = place_of_run(run, storage, record, target)
    job_file, folder, before = again(run, target, place, record)
    wish = Wish(folder=folder, working_dir=working_dir or before, storage=place, limit=limit)
    return submit(job_file, target, wish, follow=follow, output=output)
