"""`raytrain-eks apply FILE`: a cluster file, or rendered objects, into a Kubernetes cluster.

Server-side apply as field manager `raytrain-eks`, in the order of dependence, after lint; then it waits until all is
ready. Twice is once: whatever was interrupted goes on by saying it again.
Exit codes: 0 done, 1 some objects failed or never get ready, 2 wrong usage, 3 findings in the file or an object that
the API refuses, 4 the cluster is unreachable, does not allow it or lacks an operator, 5 not ready in time.
"""

import sys
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import kube_options
from raytrain_eks.cli import output as out
from raytrain_eks.cli.given import Given, given
from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.kube.apply import Result
    from raytrain_eks.kube.client import Client
    from raytrain_eks.kube.readiness import State


def duration(context: click.Context, parameter: click.Parameter, value: str) -> float:
    """Seconds of an option such as `15m`."""
    from raytrain_eks.spec.quantity import seconds

    try:
        return seconds(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} {error}") from None


@click.command(help="Bring a cluster FILE, or rendered objects, into a Kubernetes cluster. It can be repeated.")
@click.argument("file")
@kube_options.options
@click.option(
    "--dry-run",
    type=click.Choice(["client", "server"]),
    help="client: check the file, contact nothing. server: let the API do all of it and keep nothing.",
)
@click.option("--force-conflicts", is_flag=True, help="Take fields, and objects, that others own.")
@click.option("--wait/--no-wait", default=True, help="Wait until everything is ready; the default.")
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
    file: str,
    where: dict[str, Any],
    dry_run: str | None,
    force_conflicts: bool,
    wait: bool,
    timeout: float,
    yes: bool,
    output: str,
) -> int:
    found = given(file, "nothing was applied")
    for remark in found.remarks:
        click.echo(remark, err=True)
    if dry_run == "client":
        return _checked(found, output)
    with kube_options.client_of(where) as client:
        _prepare(client, found)
        if not (yes or dry_run) and sys.stdin.isatty() and not _agreed(client, found, force_conflicts):
            return Outcome.INTERRUPTED
        told = f"{len(found.bodies)} objects to {client.context} ({client.server})"
        click.echo(f"{told}; nothing is kept" if dry_run else told, err=True)
        results = _applied(client, found, output, force=force_conflicts, dry_run=dry_run is not None)
        if wait and not dry_run:
            _await(client, results, timeout)
    return Outcome.DONE


def _prepare(client: "Client", found: Given) -> None:
    from raytrain_eks.kube import presence

    runs = "{}.{}".format(*client.version())
    if found.kubernetes not in (None, runs):
        click.echo(f"warning: {client.context} runs Kubernetes {runs}, the file is for {found.kubernetes}", err=True)
    presence.require(client, found.bodies)


def _checked(found: Given, output: str) -> int:
    from raytrain_eks.kube import order
    from raytrain_eks.kube.apply import result

    results = [result(body, "checked") for body in order.in_order(found.bodies)]
    _write(results, output)
    return Outcome.DONE


def _agreed(client: "Client", found: Given, force: bool) -> bool:
    """Show what would happen, and ask. True without asking when nothing would."""
    from raytrain_eks.kube.apply import apply

    preview = list(apply(client, found.bodies, force=force, dry_run=True))
    changed = [each for each in preview if each.outcome != "unchanged"]
    if not changed:
        return True
    for each in changed:
        click.echo(line(each), err=True)
    rest = len(preview) - len(changed)
    click.echo(f"and {rest} unchanged" if rest else "", nl=bool(rest), err=True)
    return click.confirm(f"apply to {client.context} ({client.server})?", err=True)


def _applied(client: "Client", found: Given, output: str, *, force: bool, dry_run: bool) -> "list[Result]":
    from raytrain_eks.kube.apply import apply, raise_for

    results: list[Result] = []
    try:
        for each in apply(client, found.bodies, force=force, dry_run=dry_run):
            results.append(each)
            if output == "table":
                click.echo(line(each))
    finally:
        # Also of an apply that broke off: what was done is done.
        if output != "table":
            _write(results, output)
    raise_for(results)
    if any(each.kind == "RayCluster" and each.outcome == "configured" for each in results) and not dry_run:
        click.echo("note: pods that run keep the form they were started with; new ones get the new one", err=True)
    return results


def _await(client: "Client", results: "list[Result]", seconds: float) -> None:
    from raytrain_eks.kube.readiness import wait

    left = wait(client, results, seconds, say)
    if not left:
        return
    lines = [part for each, state in left for part in _why(each, state)]
    if any(state.hopeless for _, state in left):
        raise Failure("\n".join([*lines, "this does not get better by waiting"]), Outcome.FAILED)
    from raytrain_eks.train.progress import duration as written

    raise Failure("\n".join([*lines, f"not ready after {written(seconds)}; it goes on by itself"]), Outcome.TIMEOUT)


def _why(each: "Result", state: "State") -> list[str]:
    return [f"{each.key} is not ready: {state.text}", *([f"  {state.fix}"] if state.fix else [])]


def line(each: "Result") -> str:
    """An object and what became of it, on one line; a reason below it."""
    where = f" in {each.namespace}" if each.namespace else ""
    reason = "".join(f"\n  {part}" for part in each.reason.splitlines())
    return f"{each.outcome:10}  {each.key}{where}{reason}"


def _write(results: "list[Result]", output: str) -> None:
    out.write(output, [each.as_data() for each in results], table=lambda: "\n".join(map(line, results)))


def say(text: str) -> None:
    """One line of talk."""
    click.echo(text, err=True)
