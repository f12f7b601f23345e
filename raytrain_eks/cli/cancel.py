"""`raytrain-eks cancel`: stop a run after a last checkpoint."""

from typing import Any

import click

from raytrain_eks.cli.outcome import Outcome
from raytrain_eks.cli.target_options import options, say, target_of


@click.command(help="Ask a RUN to save a last checkpoint and stop. `resume` goes on from there.")
@click.argument("run")
@options
@click.option("--no-wait", is_flag=True, help="Do not wait until it has stopped.")
@click.option("--now", is_flag=True, help="Do not ask for a last checkpoint; on Kubernetes its RayJob is deleted.")
def command(run: str, on: str | None, access: dict[str, Any], no_wait: bool, now: bool) -> int:
    from raytrain_eks.submit import registry
    from raytrain_eks.submit.errors import NotFound
    from raytrain_eks.submit.run_status import job_of
    from raytrain_eks.submit.start import stopped
    from raytrain_eks.submit.target import STOP_GRACE_S, Phase

    record = registry.recall(run)
    target = target_of(on, access, record)
    id, place = (record.id, record.storage) if record is not None else (None, None)
    state = job_of(run, target, storage=place, id=id)
    if state is None:
        raise NotFound(f"{target.name} has no job of `{run}`, so there is nothing to cancel")
    if state.phase.over:
        say(f"{run} does not run: its last job has {state.phase.value.lower()}")
        return Outcome.DONE
    if now:
        target.end(state.id)
        say(f"{run} was ended; its newest checkpoint stays, and `raytrain-eks resume {run}` goes on from it")
        return Outcome.DONE
    target.stop(state.id)
    if state.phase is Phase.PENDING:
        say(f"{run} had not begun and was taken back; to run it, submit its file again")
        return Outcome.DONE
    if no_wait:
        say(f"{run} was asked to stop")
        return Outcome.DONE
    say(f"{run} was asked to stop; it saves a last checkpoint, for {STOP_GRACE_S} s at most")
    if not stopped(target, state.id):
        say(f"{run} has still not stopped; see `raytrain-eks logs {run}`, or end it: raytrain-eks cancel {run} --now")
        return Outcome.TIMEOUT
    say(f"{run} has stopped; go on with: raytrain-eks resume {run}")
    return Outcome.DONE
