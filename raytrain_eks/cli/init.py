"""`raytrain-eks init job|sweep|cluster`: write a first file that validates.

Asks on a terminal for what no flag says; without a terminal, or with --yes, takes the defaults and asks nothing.
"""

from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli import init_cluster
from raytrain_eks.cli.help_layout import Subverbs
from raytrain_eks.cli.init_answers import answered, check, known, may_ask
from raytrain_eks.cli.init_file import common, place_for, where, write


@click.group(
    cls=Subverbs,
    help="Write a first cluster, job or sweep file that validates. On a terminal it asks for what no option says.",
)
def command() -> None:
    """The group itself does nothing."""


command.add_command(init_cluster.command)


@command.command("job", help=f"Write a training job. {where('jobs')}")
@common
@click.option("--model", metavar="NAME|FOLDER", help="A pretrained model; without it a small Llama from scratch.")
@click.option(
    "--data", metavar="PLACE", help="Training data: a folder, a file, s3://bucket/prefix. Default: Python's own source."
)
@click.option(
    "--format", type=click.Choice(["text", "jsonl", "parquet", "datasets"]), help="What the data is. Default: text."
)
@click.option("--sequence-length", type=click.IntRange(8), metavar="N", help="Tokens of a sequence. Default: 256.")
@click.option("--batch-tokens", metavar="COUNT", help="Tokens of the global batch: 4M. Default: 4096.")
@click.option("--learning-rate", metavar="RATE", help="The peak of the schedule. Default: 3e-3, with --model 3e-5.")
@click.option("--steps", type=click.IntRange(1), metavar="N", help="Optimizer steps of the run. Default: 150.")
@click.option("--cluster", metavar="FILE", help="The cluster file that it runs on; without it this machine.")
@click.option("--group", metavar="NAME", help="The cluster's worker group.")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes of that group.")
@click.option("--engine", type=click.Choice(["torch", "deepspeed"]), help="What runs the steps. Default: torch.")
def job(file: str | None, force: bool, yes: bool, **given: Any) -> None:
    from raytrain_eks.spec.first import FirstJob
    from raytrain_eks.spec.job import Job

    asking = may_ask(yes)
    questions = {
        "name": ("Name of the run", "first-run"),
        "model": ("Pretrained model, a hub name or folder (empty: a small one from scratch)", ""),
        "data": ("Training data, a folder or s3://bucket/prefix", "python-stdlib:"),
        "sequence_length": ("Tokens of a sequence", 256),
        "batch_tokens": ("Tokens of the global batch", "4096"),
        "learning_rate": ("Peak learning rate", "3e-5" if given["model"] else "3e-3"),
        "steps": ("Optimizer steps", 150),
    }
    answers = answered(given, questions, asking, _job_field)
    if (answers["group"] or answers["nodes"]) and not answers["cluster"]:
        raise click.UsageError("--group and --nodes are of a cluster; add --cluster FILE")
    answers["learning_rate"] = _rate(answers["learning_rate"])
    target = place_for(file, answers["name"], "jobs")
    write(target, FirstJob(**known(answers)).text(target), verb="submit", force=force, check=Job.read)


@command.command("sweep", help=f"Write a sweep, many trials of one job. {where('jobs')}")
@common
@click.option("--job", "job_file", metavar="FILE", required=True, help="The job file whose trials it makes.")
@click.option("--trials", type=click.IntRange(1), metavar="N", default=8, show_default=True, help="How many trials.")
def sweep(file: str | None, force: bool, yes: bool, name: str | None, job_file: str, trials: int) -> None:
    from raytrain_eks.spec.first import FirstSweep
    from raytrain_eks.spec.load import load
    from raytrain_eks.spec.sweep import Sweep
    from raytrain_eks.spec.sweep_job import check_with_job

    job = load(job_file, expect="Job")
    name = name or f"{job.name[:41].rstrip('-')}-sweep"
    target = place_for(file, name, "jobs")
    made = FirstSweep(name=name, job=job_file, rate=job.optimizer.learning_rate, trials=trials)

    def checked(text: str, file: str) -> None:
        check_with_job(Sweep.read(text, file), Path.cwd())

    write(target, made.text(target), verb="sweep", force=force, check=checked)


def _job_field(key: str, value: Any) -> None:
    from raytrain_eks.spec.job import Batch, Data, Job, Stop

    if key == "learning_rate":
        _rate(value)
        return
    owners = {
        "name": (Job, "name"),
        "data": (Data, "train"),
        "sequence_length": (Data, "sequence_length"),
        "batch_tokens": (Batch, "tokens"),
        "steps": (Stop, "steps"),
    }
    if key in owners:
        check(*owners[key], value)


def _rate(value: str) -> str:
    """A learning rate in the spelling that every YAML reader takes for a number. Raises a usage error."""
    from raytrain_eks.spec.write import number

    try:
        rate = float(value)
    except ValueError:
        rate = 0.0
    if not 0 < rate < float("inf"):
        raise click.UsageError(f"the learning rate must be a positive number such as 3e-4, not {value}")
    return number(rate)
