"""`raytrain-eks sweep`: run a sweep file on a target, and look at what became of sweeps."""

from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.help_layout import Subverbs
from raytrain_eks.cli.sweep_report import VERBS
from raytrain_eks.cli.target_options import options, target_of


class Sweeps(Subverbs):
    """Its first word is a verb, or else the file of a sweep that is to run."""

    def resolve_command(self, context: click.Context, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            return "run", self.commands["run"], args
        return super().resolve_command(context, args)

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        # An option in front belongs to running a file, but for those that ask for help.
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(context, args)


@click.group(
    cls=Sweeps,
    help="Run a sweep FILE: many trials of one job, the best of them kept. `sweep FILE` is short for `sweep run FILE`.",
)
def command() -> None:
    """The group itself does nothing."""


@command.command("run", help="Run a sweep FILE. The same file again, or `resume NAME`, goes on where it stopped.")
@click.argument("file", type=click.Path(path_type=Path))
@options
@click.option("-f", "--follow", is_flag=True, help="Show the trials; end with the sweep's exit code.")
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of sweeps and runs; overrides the file's.")
@click.option("--resume", is_flag=True, help="Go on with the sweep even if the file has changed.")
@click.option("--working-dir", type=click.Path(path_type=Path), help="What travels with it. Default: this folder.")
@click.option(
    "--max-upload", default="100Mi", show_default=True, metavar="SIZE", help="Limit of the working directory."
)
@out.option()
def run(
    file: Path,
    on: str | None,
    access: dict[str, Any],
    follow: bool,
    storage: str | None,
    resume: bool,
    working_dir: Path | None,
    max_upload: str,
    output: str,
) -> int:
    from raytrain_eks.cli import submit
    from raytrain_eks.spec.problem import Problem, SpecError
    from raytrain_eks.submit.assemble import JobFile
    from raytrain_eks.submit.start import Wish

    limit, here = submit.size(max_upload), Path.cwd()
    sweep_file = JobFile.read(file)
    if sweep_file.sweep is None:
        fix = f"`raytrain-eks submit {file}` runs a job; `raytrain-eks init sweep --job {file}` makes a sweep of it"
        raise SpecError([Problem(path="kind", rule="must be Sweep; this file is a Job", fix=fix, file=str(file))])
    wish = Wish(folder=here, working_dir=working_dir or here, storage=storage, resume=resume, limit=limit)
    return submit.run(sweep_file, target_of(on, access), wish, follow=follow, output=output)


for _name, _verb in VERBS.items():
    command.add_command(_verb, _name)
