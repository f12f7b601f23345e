"""`raytrain-eks submit`: run a job file on a target."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.target_options import options, say, target_of

if TYPE_CHECKING:
    from raytrain_eks.submit.assemble import JobFile
    from raytrain_eks.submit.start import Wish
    from raytrain_eks.submit.target import Target


@click.command(
    help="Run a job FILE on this machine, a Ray cluster or Kubernetes. The same file again goes on where it stopped."
)
@click.argument("file", type=click.Path(path_type=Path))
@options
@click.option("-f", "--follow", is_flag=True, help="Show log and progress; end with the job's exit code.")
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders; overrides the file's.")
@click.option("--resume", is_flag=True, help="Go on with the run even if the file has changed.")
@click.option("--tiny", is_flag=True, help="A dry run: the same job in small, as NAME-tiny, on any CPU.")
@click.option("--working-dir", type=click.Path(path_type=Path), help="What travels with the job. Default: this folder.")
@click.option(
    "--max-upload", default="100Mi", show_default=True, metavar="SIZE", help="Limit of the working directory."
)
@click.option("--cluster", metavar="NAME", help="With --on eks: run in this RayCluster instead of one of its own.")
@click.option(
    "--code",
    type=click.Choice(["auto", "configmap", "storage", "image"]),
    help="With --on eks: how the working directory gets there. Default: auto, in a ConfigMap when it fits.",
)
@click.option(
    "--dry-run",
    is_flag=False,
    flag_value="client",
    type=click.Choice(["client", "server"]),
    help="With --on eks: print the RayJob and make nothing; `server` lets the API check it.",
)
@out.option()
def command(
    file: Path,
    on: str | None,
    access: dict[str, Any],
    follow: bool,
    storage: str | None,
    resume: bool,
    tiny: bool,
    working_dir: Path | None,
    max_upload: str,
    cluster: str | None,
    code: str | None,
    dry_run: str | None,
    output: str,
) -> int:
    from raytrain_eks.submit.assemble import JobFile
    from raytrain_eks.submit.start import Wish

    limit = size(max_upload)
    here = Path.cwd()
    wish = Wish(folder=here, working_dir=working_dir or here, storage=storage, resume=resume, limit=limit)
    job_file = JobFile.read(file)
    target = target_of(on, access | {"cluster": cluster, "code": code})
    if tiny:
        job_file = job_file.dry_run(target)
    if dry_run is not None:
        from raytrain_eks.cli.submit_objects import show as show_objects

        show_objects(job_file, target, wish, on_server=dry_run == "server", output=output)
        return 0
    return run(job_file, target, wish, follow=follow, output=output)


def size(text: str) -> int:
    """Bytes of `--max-upload`. Raises a usage error."""
    from raytrain_eks.spec.quantity import parse

    try:
        found = int(parse(text))
    except (ValueError, ArithmeticError) as error:
        raise click.UsageError(f"--max-upload: {error}") from None
    if found <= 0:
        raise click.UsageError("--max-upload: must be more than nothing")
    return found


def run(file: "JobFile", target: "Target", wish: "Wish", *, follow: bool, output: str) -> int:
    """Start the job, and follow when asked to; the exit code."""
    from raytrain_eks.submit.start import start

    started = start(file, target, wish, say)
    name, id = started.run, started.id
    facts: dict[str, object] = {"run": name, "job": id, "on": started.on}
    facts |= {"storage": started.storage, "address": started.address}
    if not follow:
        say(f"{name} was submitted as {id}; follow it: raytrain-eks logs {name} -f, see it: raytrain-eks status {name}")
        out.write(output, facts, table=lambda: name)
        return 0
    from raytrain_eks.cli.following import follow as show

    say(f"{name} was submitted as {id} on {target.name}; Ctrl-C leaves it running")
    screen = None
    if file.sweep is not None:
        from raytrain_eks.cli.sweep_screen import SweepScreen

        screen = SweepScreen(name)
    code, state = show(target, id, name, screen)
    facts |= {"state": state.phase.value.lower() if state is not None else None, "exit_code": code}
    out.write(output, facts, table=lambda: "")
    return code
