"""`raytrain-eks checkpoints`: what a run has saved, whether it is whole, and where copies are."""

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.help_layout import Subverbs
from raytrain_eks.cli.outcome import Failure, Outcome
from raytrain_eks.cli.target_options import say, storage_of

if TYPE_CHECKING:
    from raytrain_eks.checkpoint.manifest import Manifest
    from raytrain_eks.checkpoint.mirror import Mirror
    from raytrain_eks.checkpoint.run import RunFolder

Command = TypeVar("Command", bound=Callable[..., Any])
CODECS = ("planes", "zstd", "gzip", "none")


@click.group(cls=Subverbs, help="What a run has saved: list, verify, prune, mirror, export, remove.")
def command() -> None:
    """The group itself does nothing."""


def of_run(function: Command) -> Command:
    """The argument RUN and the option --storage."""
    stored = click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders.")
    return click.argument("run", metavar="RUN")(stored(function))


def opened(name: str, storage: str | None) -> "RunFolder":
    """The run folder. Raises Failure when there is no such run."""
    from raytrain_eks.checkpoint.run import RunFolder

    run = RunFolder(storage_of(storage, None), name)
    if run.identity() is None:
        near = [entry.name for entry in run.parent.entries() if entry.is_folder and not entry.name.startswith(".")]
        known = f"runs there: {', '.join(near)}" if near else "there are no runs there; name another with --storage"
        raise Failure(f"no run `{name}` in {run.parent.url}\n  {known}", Outcome.USAGE)
    return run


def chosen(run: "RunFolder", step: int | None) -> "Manifest":
    """The complete checkpoint of a step, or the newest. Raises Failure when there is none."""
    from raytrain_eks.checkpoint.manifest import committed

    complete = committed(run)
    found = [each for each in complete if step in (None, each.step)]
    if not found:
        which = "no complete checkpoint" if step is None else f"no complete checkpoint of step {step}"
        have = ", ".join(str(each.step) for each in complete) or "none"
        raise Failure(f"`{run.name}` has {which}\n  complete: {have}", Outcome.FINDINGS)
    return found[-1]


@command.command("ls", help="The checkpoints of a run, oldest first.")
@of_run
@out.option()
def ls(run: str, storage: str | None, output: str) -> None:
    from raytrain_eks.checkpoint.manifest import inspect, quarantined
    from raytrain_eks.checkpoint.manifest import steps as all_steps

    folder = opened(run, storage)
    complete, damaged = inspect(folder)
    rows = {each.step: _row(each) for each in complete}
    for step in all_steps(folder):
        state = "damaged" if step in damaged else "incomplete"
        rows.setdefault(step, dict.fromkeys(ROW) | {"step": step, "state": state})
    listed = [rows[step] for step in sorted(rows)]
    for name in quarantined(folder):
        say(f"set aside: {name}")
    if not listed:
        say(f"`{run}` has no checkpoints")
    out.write(output, listed, table=lambda: _table(listed))


ROW = ("step", "state", "loss", "bytes", "world", "attempt", "created")


def _row(manifest: "Manifest") -> dict[str, Any]:
    about = {"step": manifest.step, "state": "complete", "loss": manifest.loss, "bytes": manifest.size}
    return about | {"world": manifest.world, "attempt": manifest.attempt, "created": manifest.created}


def _table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [f"{value:.4f}" if key == "loss" and value is not None else value for key, value in row.items()] for row in rows
    ]
    return out.aligned([name.upper() for name in ROW], cells, right=("STEP", "LOSS", "BYTES", "WORLD", "ATTEMPT"))


@command.command(
    "verify", help="Read checkpoints and compare them with what was written; exit 3 when one is not whole."
)
@of_run
@click.option("--step", type=int, multiple=True, help="Only this one; may be given again. Default: all.")
@click.option(
    "--level",
    type=click.Choice(["full", "sizes", "off"]),
    default="full",
    show_default=True,
    help="full: every block by its checksum; sizes: every file by its length; off: the manifest alone.",
)
@out.option()
def verify(run: str, storage: str | None, step: tuple[int, ...], level: Any, output: str) -> int:
    from raytrain_eks.checkpoint.manifest import inspect
    from raytrain_eks.checkpoint.restore import verified

    folder = opened(run, storage)
    complete, damaged = inspect(folder)
    rows = []
    for each in step or sorted({manifest.step for manifest in complete} | set(damaged)):
        reason = verified(folder, each, level)
        rows.append({"step": each, "whole": reason is None, "reason": reason})
    if not rows:
        raise Failure(f"`{run}` has no checkpoints to verify", Outcome.FINDINGS)
    cells = [[row["step"], "whole" if row["whole"] else "not whole", row["reason"] or ""] for row in rows]
    out.write(output, rows, table=lambda: out.aligned(("STEP", "STATE", "REASON"), cells, right=("STEP",)))
    return Outcome.DONE if all(row["whole"] for row in rows) else Outcome.FINDINGS


@command.command("prune", help="Delete what retention lets go, and what attempts that died left behind.")
@of_run
@click.option("--last", type=click.IntRange(1), help="How many of the newest stay. Default: the job's checkpoint.keep.")
@click.option("--best", type=click.IntRange(0), help="How many of the best stay. Default: the job's.")
@click.option("--every", type=click.IntRange(1), help="Steps that are a multiple of this stay. Default: the job's.")
@click.option("--stopped", is_flag=True, help="The run is not running: take what its last attempt left as well.")
def prune(run: str, storage: str | None, last: int | None, best: int | None, every: int | None, stopped: bool) -> None:
    from raytrain_eks.checkpoint.retention import Retention
    from raytrain_eks.checkpoint.retention import prune as prune_run
    from raytrain_eks.spec.job import Job

    folder = opened(run, storage)
    job = Job.read(folder.storage.read("job.yaml").decode(), f"{folder.url}/job.yaml").checkpoint
    keep = Retention(
        last=last or job.keep,
        best=job.keep_best if best is None else best,
        every=every or job.keep_every,
    )
    # A token that no save has: all files of the newest attempt may be a save in progress.
    newest = None if stopped else (max(folder.attempts(), default=0), "")
    for step in prune_run(folder, keep, newest=newest, say=say):
        click.echo(f"step-{step:08d}")


@command.command("rm", help="Delete checkpoints of a run.")
@of_run
@click.argument("steps", metavar="STEP...", type=int, nargs=-1, required=True)
@click.option("--force", is_flag=True, help="Also the newest, the best, and one that is being read.")
def rm(run: str, storage: str | None, steps: tuple[int, ...], force: bool) -> None:
    from raytrain_eks.checkpoint.manifest import committed
    from raytrain_eks.checkpoint.manifest import steps as all_steps
    from raytrain_eks.checkpoint.retention import Retention, delete, reading

    folder = opened(run, storage)
    if unknown := [step for step in steps if step not in all_steps(folder)]:
        have = ", ".join(map(str, all_steps(folder))) or "none"
        raise Failure(f"`{run}` has no checkpoint of step {unknown[0]}\n  there are: {have}", Outcome.USAGE)
    kept = (Retention(last=1, best=1).stay(committed(folder)) | reading(folder)) & set(steps)
    if kept and not force:
        which = ", ".join(map(str, sorted(kept)))
        raise Failure(
            f"step {which} is the newest, the best, or being read\n  --force deletes it anyway", Outcome.USAGE
        )
    for step in steps:
        delete(folder, step)
        click.echo(f"step-{step:08d}")


def mirror_of(run: "RunFolder", place: str, codec: Any, level: int | None, keep: int) -> "Mirror":
    """The mirror of a run. Raises Failure for a codec that has no such level."""
    from raytrain_eks.checkpoint.codec import Codec
    from raytrain_eks.checkpoint.mirror import Mirror
    from raytrain_eks.checkpoint.retention import Retention

    try:
        packed = Codec(codec, level)
    except ValueError as error:
        raise Failure(str(error), Outcome.USAGE) from None
    return Mirror(run, place, codec=packed, keep=Retention(last=keep, best=1), say=say)


@command.command("sync", help="Copy a run's complete checkpoints to a mirror, or bring the newest back from one.")
@of_run
@click.option("--to", metavar="PLACE", help="The mirror. Default: the job's checkpoint.mirror.")
@click.option("--back", is_flag=True, help="Bring the run and its newest checkpoint back from the mirror.")
@click.option("--codec", type=click.Choice(CODECS), default="planes", show_default=True, help="How data is packed.")
@click.option("--level", type=int, help="The codec's level. Default: 1, for gzip 6.")
@click.option("--keep", type=click.IntRange(1), default=5, show_default=True, help="Newest that stay in the mirror.")
def sync(run: str, storage: str | None, to: str | None, back: bool, codec: str, level: int | None, keep: int) -> None:
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.spec.job import Job

    folder = RunFolder(storage_of(storage, None), run) if back and to else opened(run, storage)
    if to is None:
        job = Job.read(folder.storage.read("job.yaml").decode(), f"{folder.url}/job.yaml")
        if (to := job.checkpoint.mirror) is None:
            raise Failure(f"where to? `{run}` names no checkpoint.mirror\n  name one with --to", Outcome.USAGE)
    mirror = mirror_of(folder, to, codec, level, keep)
    if back:
        _bring_back(mirror)
        return
    done = mirror.sync()
    for step in done.checkpoints:
        click.echo(f"step-{step:08d}")
    removed = f", let {len(done.removed)} old ones go" if done.removed else ""
    say(f"{mirror.copy.url}: {len(done.checkpoints)} new, {done.sent / 1e6:.1f} MB sent{removed}")


def _bring_back(mirror: "Mirror") -> None:
    from raytrain_eks.checkpoint.manifest import Damaged

    if mirror.copy.identity() is None:
        raise Failure(f"{mirror.copy.parent.url} has no mirror of `{mirror.run.name}`", Outcome.FINDINGS)
    mirror.bring_identity()
    for step in reversed(mirror.missing()):
        try:
            mirror.bring(step)
        except Damaged as error:
            say(f"step {step} of the mirror is not whole: {error}")
            continue
        click.echo(f"step-{step:08d}")
        return
    say(f"{mirror.copy.url} has nothing that is newer")


@command.command("watch", help="Mirror all runs of a folder, over and over, until SIGTERM: a sidecar.")
@click.option(
    "--config",
    "file",
    metavar="FILE",
    required=True,
    type=click.Path(exists=True, dir_okay=False),
    help="A YAML file: `checkpoint` with local_path, remote_path, sync_interval and more.",
)
@click.option("--once", is_flag=True, help="One pass only.")
def watch(file: str, once: bool) -> None:
    import signal

    from raytrain_eks.checkpoint.mirroring import watch as watch_runs
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.checkpoint.storage import Storage
    from raytrain_eks.spec.load import content_of, text_of
    from raytrain_eks.spec.mirror import Watch

    settings = Watch.read(text_of(content_of(file), file), file).checkpoint
    storage, stop = Storage.of(settings.local_path), threading.Event()

    def make(name: str) -> "Mirror":
        run = RunFolder(storage, name)
        level, keep = settings.compression_level, settings.max_checkpoints
        return mirror_of(run, settings.remote_path, settings.codec, level, keep)

    def tell(name: str, event: dict[str, Any]) -> None:
        words = (f"{key} {value}" for key, value in event.items() if key != "event")
        say(f"{name}: {event['event'].replace('_', ' ')}: {', '.join(words)}")

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    if once:
        stop.set()
    say(f"mirroring runs of {storage.url} to {settings.remote_path}")
    resume = settings.auto_resume
    latest = settings.resume_from_latest
    watch_runs(storage, make, every=settings.sync_interval, resume=resume, latest=latest, stop=stop, tell=tell)


@command.command("export", help="Write the model of a checkpoint as a Hugging Face folder.")
@of_run
@click.option("--step", type=int, help="Of this checkpoint. Default: the newest.")
@click.option("--to", metavar="FOLDER", required=True, help="A folder that is not there yet.")
@click.option("--tokenizer", metavar="FOLDER", help="The tokenizer. Default: the one that the run used.")
def export(run: str, storage: str | None, step: int | None, to: str, tokenizer: str | None) -> None:
    import os
    from pathlib import Path

    folder = opened(run, storage)
    manifest = chosen(folder, step)
    target = Path(to)
    if target.exists():
        raise Failure(f"{target} is there already\n  name a new folder, or move that one away", Outcome.USAGE)
    # transformers imports DeepSpeed where it is installed, which else looks for a device and says so on stdout.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    from raytrain_eks.train.export import export_checkpoint

    export_checkpoint(folder, manifest.step, target, tokenizer=tokenizer, say=say)
    click.echo(str(target))


@command.command("interval", help="Suggest how often to save, from what saves cost this run and how often nodes fail.")
@of_run
@click.option("--accelerators", type=click.IntRange(1), required=True, help="Of the whole job.")
@click.option("--hours", type=float, help="Mean hours between failures of one accelerator. Default: Llama 3's 50,675.")
def interval(run: str, storage: str | None, accelerators: int, hours: float | None) -> None:
    from statistics import median

    from raytrain_eks.checkpoint.run import EVENTS
    from raytrain_eks.plan.checkpoint_interval import ACCELERATOR_HOURS, suggest

    folder = opened(run, storage)
    saves = [line for line in folder.lines(EVENTS) if line.get("event") == "checkpoint" and line.get("stalled")]
    if not saves:
        raise Failure(f"`{run}` has saved nothing yet, so what a save costs is not known", Outcome.FINDINGS)
    stall, durable = (median(float(line[name]) for line in saves) for name in ("stalled", "took"))
    click.echo(
        suggest(
            stall=max(stall, 1e-6),
            durable=durable,
            accelerators=accelerators,
            accelerator_hours=hours or ACCELERATOR_HOURS,
        )
    )
