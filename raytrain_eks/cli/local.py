"""`raytrain-eks local`: the Ray of this machine."""

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.help_layout import Subverbs
from raytrain_eks.cli.outcome import Outcome
from raytrain_eks.cli.target_options import say


@click.group(cls=Subverbs, help="The Ray of this machine, which `--on local` starts by itself.")
def command() -> None:
    pass


@command.command(help="Whether it runs, where, and which jobs it has.")
@out.option()
def status(output: str) -> int:
    from raytrain_eks.submit.head import LocalHead

    local = LocalHead()
    head = local.remembered()
    why = local.broken(head) if head is not None else "it was not started"
    facts: dict[str, object] = {"running": why is None, "reason": why}
    jobs: list[str] = []
    if head is not None:
        jobs = [state.run or state.id for state in local.running(head)] if why is None else []
        facts |= {"dashboard": head.url, "ray": head.ray, "python": head.python, "cpus": head.cpus, "jobs": jobs}
        facts |= {"token_file": str(local.token_file), "log": str(local.log)}
    shown = facts | {"running": "yes" if why is None else "no", "jobs": ", ".join(jobs) or None}
    out.write(output, facts, table=lambda: out.pairs(shown))
    return Outcome.DONE


@command.command(help="Start it, unless it runs already.")
def start() -> int:
    from raytrain_eks.submit.head import LocalHead

    head = LocalHead().ensure(say)
    click.echo(head.url)
    return Outcome.DONE


@command.command(help='What a shell needs for Ray\'s own tools: eval "$(raytrain-eks local env)"; ray job list')
def env() -> int:
    import shlex

    from raytrain_eks.submit.errors import NotFound
    from raytrain_eks.submit.head import FIXED, LocalHead

    local = LocalHead()
    head = local.alive()
    if head is None:
        raise NotFound("no local Ray is running\n  start it: raytrain-eks local start")
    variables = {name: FIXED[name] for name in ("RAY_AUTH_MODE", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")}
    variables |= {"RAY_AUTH_TOKEN_PATH": str(local.token_file)}
    variables |= {"RAY_ADDRESS": head.gcs, "RAY_API_SERVER_ADDRESS": head.url}
    for name, value in variables.items():
        click.echo(f"export {name}={shlex.quote(value)}")
    return Outcome.DONE


@command.command(help="End it. Jobs that run on it are a reason not to.")
@click.option("--force", is_flag=True, help="Also when jobs run: they are killed, their checkpoints stay.")
def stop(force: bool) -> int:
    from raytrain_eks.submit.errors import Busy, TargetError
    from raytrain_eks.submit.head import LocalHead

    local = LocalHead()
    head = local.alive()
    if head is not None and not force:
        try:
            jobs = sorted(state.run or state.id for state in local.running(head))
        except TargetError:
            jobs = []
        if jobs:
            first = f"raytrain-eks cancel {jobs[0]}"
            raise Busy(f"the local Ray still runs {', '.join(jobs)}\n  {first} saves it first; --force ends it at once")
    say("the local Ray has ended" if local.stop() else "no local Ray was running")
    return Outcome.DONE
