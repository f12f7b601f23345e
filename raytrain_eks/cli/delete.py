"""`raytrain-eks delete FILE|NAME`: what a cluster file made, out of a Kubernetes cluster, in reverse order.

Storage stays unless `--storage`, and so do other people's things. NAME takes everything that carries the label of that
cluster file, wherever the file is. Twice is once.
Exit codes: 0 done, 1 jobs run on it, or an object failed, 2 wrong usage, 3 problems in the file, 4 the cluster is
unreachable or does not allow it, 5 something was not gone in time, 130 the answer was no.
"""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import given as files
from raytrain_eks.cli import kube_options
from raytrain_eks.cli import output as out
from raytrain_eks.cli.apply import duration, say
from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client
    from raytrain_eks.kube.delete import Removed
    from raytrain_eks.kube.removal import Step


@click.command(help="Take what a cluster FILE, or the one called NAME, made out of a Kubernetes cluster.")
@click.argument("target", metavar="FILE|NAME")
@kube_options.options
@click.option("--storage", is_flag=True, help="Storage as well: claims, volumes, classes, file systems. Data is lost.")
@click.option("--dry-run", is_flag=True, help="Say what would go and what would stay; touch nothing.")
@click.option("--force", is_flag=True, help="Also when RayJobs run on it: they end, their checkpoints stay.")
@click.option("--wait/--no-wait", default=True, help="Wait until everything is gone; the default.")
@click.option(
    "--timeout",
    default="15m",
    show_default=True,
    metavar="TIME",
    callback=duration,
    help="How long to wait, as 90s or 15m; exit 5 then.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask, on a terminal.")
@out.option()
def command(
    target: str,
    where: dict[str, Any],
    storage: bool,
    dry_run: bool,
    force: bool,
    wait: bool,
    timeout: float,
    yes: bool,
    output: str,
) -> int:
    from raytrain_eks.kube import removal

    found = _found(target)
    with kube_options.client_of(where) as client:
        client.version()
        steps = removal.plan(client, found.bodies, found.cluster, storage=storage, say=say)
        if not steps:
            say(f"{client.context} has nothing of a cluster file called {found.cluster}")
        going = [step for step in steps if step.verb == "delete"]
        if dry_run:
            out.write(output, [_as_data(step) for step in steps], table=lambda: "\n".join(map(_planned, steps)))
            return Outcome.DONE
        jobs = removal.running_jobs(client, steps) if going and not force else []
        asked = going and not yes and sys.stdin.isatty()
        if jobs and not asked:
            end = "raytrain-eks cancel RUN saves a last checkpoint first; --force ends them at once"
            raise Failure(f"{', '.join(jobs)} still run on it, nothing was deleted\n  {end}", Outcome.FAILED)
        if asked and not _agreed(client, steps, jobs):
            return Outcome.INTERRUPTED
        _carry_out(client, steps, output, wait=wait, seconds=timeout)
    return Outcome.DONE


def _found(target: str) -> files.Given:
    """The file's objects, or none and a name whose objects the cluster is asked for."""
    if target == "-" or (target and Path(target).exists()):
        return files.read(files.documents(target), target)
    if "/" in target or target.endswith((".yaml", ".yml", ".json")) or not target:
        raise Failure(f"{target or 'FILE'}: no such file", Outcome.USAGE)
    if not re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", target):
        raise Failure(f"{target}: neither a file nor the name of a cluster file", Outcome.USAGE)
    return files.Given([], target)


def _agreed(client: "Client", steps: "list[Step]", jobs: list[str]) -> bool:
    for step in steps:
        if step.verb != "absent":
            click.echo(_planned(step), err=True)
    if jobs:
        click.echo(f"RayJobs that run on it end: {', '.join(jobs)}", err=True)
    return click.confirm(f"delete from {client.context} ({client.server})?", err=True)


def _carry_out(client: "Client", steps: "list[Step]", output: str, *, wait: bool, seconds: float) -> None:
    from raytrain_eks.kube.delete import delete

    results: list[Removed] = []
    try:
        for each in delete(client, steps, seconds=seconds, wait=wait, say=say):
            results.append(each)
            if output == "table":
                click.echo(_line(each.outcome, each.step, each.reason))
    finally:
        # Also of a delete that broke off: what is gone is gone.
        if output != "table":
            out.write(output, [each.as_data() for each in results], table=str)
    bad = [each for each in results if each.outcome in ("failed", "stuck")]
    if bad:
        what = "not gone in time" if bad[0].outcome == "stuck" else "not deleted"
        names = ", ".join(each.step.key for each in bad)
        raise Failure(f"{names}: {what}; repeat the command to go on", bad[0].code or Outcome.FAILED)


def _planned(step: "Step") -> str:
    return _line({"delete": "deletes", "keep": "keeps"}.get(step.verb, step.verb), step, step.reason)


def _line(word: str, step: "Step", reason: str) -> str:
    namespace = step.body["metadata"].get("namespace")
    where = f" in {namespace}" if namespace else ""
    first, *rest = (reason or "").splitlines() or [""]
    head = f"{word:10}  {step.key}{where}" + (f": {first}" if first else "")
    return "\n".join([head, *(f"  {part}" for part in rest)])


def _as_data(step: "Step") -> dict[str, Any]:
    body = step.body
    names = {key: body["metadata"].get(key) for key in ("namespace", "name")}
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        **names,
        "plan": step.verb,
        "reason": step.reason or None,
    }
