"""Where a run is: what its folder says and what its job server says, put together into one sentence.

Either may be missing: the storage is on the cluster and this machine cannot read it, or the job's cluster is gone.
Reads only; imports neither ray nor torch.
"""

import contextlib
import re
import time
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.checkpoint.run import EVENTS, METRICS, RunFolder
from raytrain_eks.submit import progress
from raytrain_eks.submit.errors import NotFound, TargetError
from raytrain_eks.submit.follow import ending
from raytrain_eks.submit.target import RUN, STORAGE, JobState, Phase, Pod, Target
from raytrain_eks.train.goodput import ledger
from raytrain_eks.train.progress import duration

LAST_LINES = 400
"""Lines of a log in which the last progress line is looked for."""
LEDGER_LIMIT = 64 * 2**20
"""Bytes of metrics that are read for the goodput; beyond, a status would take seconds."""
_ENDED = re.compile(r"(?P<run>\S+) (?P<how>complete|stopped): (?P<steps>\d+) steps, \d+ tokens")
_COMPLETE = re.compile(r"(?P<run>\S+) is already (?P<how>complete), (?P<steps>\d+) steps: .*")
"""How a driver's log tells the end of its run."""


@dataclass(kw_only=True)
class RunStatus:
    """One screen about a run."""

    run: str
    phase: str
    """A sentence."""
    state: str
    """One word for programs: pending, running, complete, stopped, failed, interrupted, unknown."""
    storage: str | None = None
    on: str | None = None
    job: str | None = None
    attempt: int | None = None
    step: int | None = None
    steps: int | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    eta_s: float | None = None
    checkpoint: int | None = None
    """Step of the newest complete checkpoint."""
    checkpoint_age_s: float | None = None
    goodput: float | None = None
    """The part of its time, waiting for restarts included, that went into steps that count: 0 to 1."""
    mfu: float | None = None
    """Model FLOPs utilisation of the last step: 0 to 1; None where the accelerator's peak is not known."""
    why: list[str] = field(default_factory=list)
    """Why it does not run, or has failed, as far as Kubernetes tells; sentences."""
    pods: list[Pod] = field(default_factory=list)
    """Pods of the job, on targets that have pods."""
    address: str | None = None
    """Where a browser shows the job."""


def status(run: str, *, storage: str | None, target: Target, job_id: str | None) -> RunStatus:
    """Where `run` is. Raises NotFound when neither its folder nor a job of it is known."""
    found = RunStatus(run=run, phase="", state="unknown", on=target.name)
    trouble = None
    job: JobState | None = None
    try:
        job = job_of(run, target, storage=storage, id=job_id)
    except TargetError as error:
        trouble = str(error).splitlines()[0]
    place = storage or (job.metadata.get(STORAGE) if job is not None else None)
    summary = _from_folder(found, place)
    if job is not None:
        found.job, found.address = job.id, target.address(job.id)
        if not job.phase.over or found.attempt is None:
            summary = _from_log(found, target, job) or summary
        if job.phase is not Phase.SUCCEEDED:
            with contextlib.suppress(TargetError):
                details = target.details(job.id)
                found.pods, found.why = list(details.pods), list(details.why)
    if job is None and found.attempt is None and trouble is None:
        raise NotFound(
            f"no run `{run}`: {f'nothing in {place}, and ' if place else ''}{target.name} has no job of it\n"
            "  see `raytrain-eks ls`"
        )
    _judge(found, job, summary, trouble)
    return found


def facts(now: RunStatus) -> dict[str, object]:
    """What a person wants to know first, first, as name and text; None is for whoever shows it to leave out."""
    kept = None
    if now.checkpoint is not None:
        age = f", {duration(now.checkpoint_age_s)} ago" if now.checkpoint_age_s is not None else ""
        kept = f"step {now.checkpoint}{age}"
    return {
        "phase": now.phase,
        "step": f"{now.step} of {now.steps}" if now.steps else now.step,
        "loss": f"{now.loss:.4f}" if now.loss is not None else None,
        "speed": f"{now.tokens_per_second:.0f} tok/s" if now.tokens_per_second is not None else None,
        "eta": duration(now.eta_s) if now.eta_s is not None else None,
        "goodput": f"{now.goodput:.1%} of its time went into steps that count" if now.goodput else None,
        "mfu": f"{now.mfu:.1%}" if now.mfu is not None else None,
        "checkpoint": kept,
        "attempt": now.attempt,
        "folder": now.storage,
        "job": f"{now.job} on {now.on}" if now.job is not None else None,
        "dashboard": now.address,
    }


def job_of(run: str, target: Target, *, storage: str | None, id: str | None) -> JobState | None:
    """The newest job of a run on a target; jobs that others submitted are told by the name in their log."""
    if id is not None and (known := target.job(id)) is not None and not known.phase.over:
        return known
    jobs = target.jobs()
    mine = [state for state in jobs if state.run == run and storage in (None, state.metadata.get(STORAGE), "")]
    plain = [state for state in jobs if RUN not in state.metadata and _looks_like_ours(state)]
    mine += [state for state in plain if _names_run(target, state, run)]
    living = [state for state in mine if not state.phase.over]
    newest = max(living or mine, key=lambda state: state.started or 0, default=None)
    return newest if newest is not None else (target.job(id) if id is not None else None)


def _looks_like_ours(state: JobState) -> bool:
    return "train.py" in state.entrypoint or "raytrain_eks.train" in state.entrypoint


def _names_run(target: Target, state: JobState, run: str) -> bool:
    """Whether a driver's log says, near its beginning, that it is an attempt of the run."""
    head = b""
    with contextlib.suppress(TargetError):
        stream = target.log(state)
        for chunk in stream:
            head += chunk
            if len(head) > 256 * 1024:
                stream.close()
                break
    wanted = (f"run {run}, ", f"{run} is already complete")
    return any(line.startswith(wanted) for line in head.decode("utf-8", "replace").splitlines())


def _from_folder(found: RunStatus, place: str | None) -> dict[str, Any] | None:
    """What the run's folder says; None where it cannot be read or there is no summary."""
    if place is None:
        return None
    folder = RunFolder(place, found.run)
    try:
        if folder.identity() is None:
            return None
        found.storage = folder.url
        found.attempt = max(folder.attempts(), default=0)
        last = folder.last_line(METRICS) or {}
        found.step = last.get("step")
        found.mfu = last.get("mfu")
        found.goodput = _goodput(folder)
        # A loss that is not finite is a word there.
        found.loss = last["loss"] if isinstance(last.get("loss"), int | float) else None
        if last.get("step_seconds"):
            found.tokens_per_second = round(last["tokens"] / last["step_seconds"], 1)
        from raytrain_eks.checkpoint.manifest import MANIFEST, committed

        if checkpoints := committed(folder):
            newest = checkpoints[-1]
            found.checkpoint = newest.step
            if (when := folder.storage.modified(f"{newest.folder}/{MANIFEST}")) is not None:
                found.checkpoint_age_s = max(time.time() - when, 0.0)
        summary = folder.summary()
        # A summary of an earlier attempt says nothing about one that extends the run.
        return summary if summary is not None and summary.get("attempt", 0) >= found.attempt else None
    except OSError:
        return None


def _goodput(folder: RunFolder) -> float | None:
    """None for a run that is too long to be read for it, and for one whose lines are not a trainer's."""
    if (folder.storage.size(METRICS) or 0) > LEDGER_LIMIT:
        return None
    with contextlib.suppress(KeyError, TypeError):
        return ledger(folder.lines(METRICS), folder.lines(EVENTS))["goodput"]
    return None


def _from_log(found: RunStatus, target: Target, job: JobState) -> dict[str, Any] | None:
    """The last progress line of a driver: it knows the steps of the whole run and how long they take. Of one that is
    over, what it said at its end, in the words of a summary."""
    last, summary = None, None
    rest = b""
    with contextlib.suppress(TargetError):
        for chunk in target.log(job, last=LAST_LINES):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"step ") and (told := progress.parse(line.decode("utf-8", "replace"))):
                    last = told
                elif job.phase.over and line.startswith(found.run.encode()):
                    summary = _end(found.run, line.decode("utf-8", "replace")) or summary
    if last is not None:
        found.step, found.steps, found.loss = last.step, last.steps, last.loss
        found.tokens_per_second, found.eta_s = last.tokens_per_second, last.eta_s if not job.phase.over else None
    return summary


def _end(run: str, line: str) -> dict[str, Any] | None:
    match = _ENDED.fullmatch(line) or _COMPLETE.fullmatch(line)
    return {"status": match["how"], "steps": int(match["steps"])} if match and match["run"] == run else None


def _judge(found: RunStatus, job: JobState | None, summary: dict[str, Any] | None, trouble: str | None) -> None:
    """The state in a word and in a sentence."""
    at = ""
    if found.step is not None:
        at = f" at step {found.step}" + (f" of {found.steps}" if found.steps else "")
    resume = f"; `raytrain-eks resume {found.run}` goes on from " + (
        f"the checkpoint of step {found.checkpoint}"
        if found.checkpoint is not None
        else "its beginning"
        if found.attempt is not None
        else "its newest checkpoint"
    )
    finished = (summary or {}).get("status")
    if job is not None and job.phase is Phase.PENDING:
        found.state, found.phase = "pending", f"waiting to start: {job.message or 'the job server has it'}"
    elif job is not None and job.phase is Phase.RUNNING:
        found.state = "running"
        found.phase = f"training,{at}" if at else "running: data and workers are being prepared"
    elif finished == "complete":
        found.state, found.phase = "complete", f"complete, {(summary or {}).get('steps')} steps"
    elif job is not None and job.phase is Phase.FAILED:
        found.state, found.phase = "failed", f"{ending(job)}{at}{resume}"
    elif finished == "stopped" or (job is not None and job.phase is Phase.STOPPED):
        found.state, found.phase = "stopped", f"stopped{at}{resume}"
    elif job is not None and job.phase is Phase.SUCCEEDED:
        found.state, found.phase = "complete", "complete: its last job is done"
    elif trouble is not None:
        by_folder = f"; by its folder it is{at or ' not begun'}" if found.attempt is not None else ""
        found.state, found.phase = "unknown", trouble + by_folder
    else:
        found.state, found.phase = "interrupted", f"interrupted{at}: no job of it runs on {found.on}{resume}"
