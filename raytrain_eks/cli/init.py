"""`raytrain-eks init job|sweep|cluster`: write a first file that validates.

Asks on a terminal for what no flag says; without a terminal, or with --yes, takes the defaults and asks nothing.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli.outcome import Failure, Outcome

Option = Callable[[Any], Any]


@click.group(help="Write a first cluster, job or sweep file that validates.")
def command() -> None:
    """The group itself does nothing."""


def _common(function: Any) -> Any:
    for option in (
        click.option("-y", "--yes", is_flag=True, help="Ask nothing: take the default of what no flag says."),
        click.option("--force", is_flag=True, help="Overwrite the file."),
        click.option("--name", help="The name."),
        click.argument("file", required=False),
    ):
        function = option(function)
    return function


@command.command("job", help="Write a job FILE (default: jobs/NAME.yaml, or NAME.yaml), - for stdout.")
@_common
@click.option("--model", metavar="NAME|FOLDER", help="A pretrained model; without it a small Llama from scratch.")
@click.option("--data", metavar="PLACE", help="Training data: a folder, a file, s3://bucket/prefix.")
@click.option("--format", type=click.Choice(["text", "jsonl", "parquet", "datasets"]), help="What the data is.")
@click.option("--sequence-length", type=click.IntRange(8), help="Tokens of a sequence.")
@click.option("--batch-tokens", metavar="COUNT", help="Tokens of the global batch: 4096, 4M.")
@click.option("--learning-rate", metavar="RATE", help="The peak of the schedule: 3e-4.")
@click.option("--steps", type=click.IntRange(1), help="Optimizer steps of the run.")
@click.option("--cluster", metavar="FILE", help="The cluster file that it runs on; without it this machine.")
@click.option("--group", metavar="NAME", help="The cluster's worker group.")
@click.option("--nodes", type=click.IntRange(1), help="Nodes of that group.")
@click.option("--engine", type=click.Choice(["torch", "deepspeed"]), help="What runs the steps.")
def job(file: str | None, force: bool, yes: bool, **given: Any) -> None:
    from raytrain_eks.spec.first import FirstJob
    from raytrain_eks.spec.job import Job

    asking = _may_ask(yes)
    questions = {
        "name": ("Name of the run", "first-run"),
        "model": ("Pretrained model, a hub name or folder (empty: a small one from scratch)", ""),
        "data": ("Training data, a folder or s3://bucket/prefix", "python-stdlib:"),
        "sequence_length": ("Tokens of a sequence", 256),
        "batch_tokens": ("Tokens of the global batch", "4096"),
        "learning_rate": ("Peak learning rate", "3e-5" if given["model"] else "3e-3"),
        "steps": ("Optimizer steps", 150),
    }
    answers = _answers(given, questions, asking, _job_field)
    if (answers["group"] or answers["nodes"]) and not answers["cluster"]:
        raise click.UsageError("--group and --nodes are of a cluster; add --cluster FILE")
    answers["learning_rate"] = _rate(answers["learning_rate"])
    target = _target(file, answers["name"], "jobs")
    _write(target, FirstJob(**_known(answers)).text(target), Job, force)


@command.command("sweep", help="Write a sweep FILE (default: jobs/NAME.yaml, or NAME.yaml), - for stdout.")
@_common
@click.option("--job", "job_file", metavar="FILE", required=True, help="The job file whose trials it makes.")
@click.option("--trials", type=click.IntRange(1), default=8, show_default=True, help="How many trials.")
def sweep(file: str | None, force: bool, yes: bool, name: str | None, job_file: str, trials: int) -> None:
    from raytrain_eks.spec.first import FirstSweep
    from raytrain_eks.spec.load import load
    from raytrain_eks.spec.sweep import Sweep
    from raytrain_eks.spec.sweep_job import check_with_job

    job = load(job_file, expect="Job")
    name = name or f"{job.name[:41].rstrip('-')}-sweep"
    target = _target(file, name, "jobs")
    made = FirstSweep(name=name, job=job_file, rate=job.optimizer.learning_rate, trials=trials)
    _write(target, made.text(target), Sweep, force, also=lambda sweep: check_with_job(sweep, Path.cwd()))


@command.command("cluster", help="Write a cluster FILE (default: cluster_specs/NAME.yaml, or NAME.yaml), - for stdout.")
@_common
@click.option("--region", help="The AWS region. Default: $AWS_REGION.")
@click.option("--eks", metavar="NAME", help="The EKS cluster's name. Default: the same name.")
@click.option("--zone", help="The availability zone: EFA and FSx for Lustre need one.")
@click.option("--instance", metavar="TYPE", help="The workers' EC2 type: p4d.24xlarge.")
@click.option("--gpus", metavar="NAME:COUNT", help="Instead of a type: H100:8, the smallest type that has them.")
@click.option("--existing-nodes", is_flag=True, help="CPU workers on nodes that exist already, e.g. kind on a laptop.")
@click.option("--nodes", metavar="N|MIN:MAX", help="How many nodes.")
@click.option("--capacity", type=click.Choice(["on-demand", "spot"]), help="How the nodes are bought.")
@click.option("--image", help="The image of head and workers.")
@click.option("--queue", type=click.Choice(["volcano", "kueue"]), help="Who decides when a job starts.")
def cluster(file: str | None, force: bool, yes: bool, existing_nodes: bool, **given: Any) -> None:
    from raytrain_eks.plan.cluster import resolve
    from raytrain_eks.spec.cluster import Cluster
    from raytrain_eks.spec.first import FirstCluster

    chosen = [given["instance"], given["gpus"], existing_nodes or None]
    if sum(one is not None for one in chosen) > 1:
        raise click.UsageError("give one of --instance, --gpus and --existing-nodes")
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-west-2"
    questions: dict[str, tuple[str, Any]] = {"name": ("Name of the cluster", "first"), "region": ("AWS region", region)}
    asking = _may_ask(yes)
    if not any(chosen):
        if not asking:
            raise click.UsageError("say what the workers are: --instance TYPE, --gpus H100:8, or --existing-nodes")
        questions["instance"] = ("Workers: an EC2 type or GPUs as H100:8 (empty: nodes that exist already)", "")
    questions["nodes"] = ("Nodes, as 4 or 0:16", "0:4")
    answers = _answers(given, questions, asking, _cluster_field)
    if answers["instance"] and ":" in answers["instance"]:
        answers["gpus"], answers["instance"] = answers["instance"], None
    answers["nodes"] = _range(answers["nodes"])
    answers = _answers(answers, *_about_nodes(answers, asking))
    if answers["queue"] == "kueue":
        answers["nodes"] = (answers["nodes"][1],) * 2  # Kueue admits a fixed number of pods
    target = _target(file, answers["name"], "cluster_specs")
    text = FirstCluster(**_known(answers)).text(target)
    _write(target, text, Cluster, force, also=resolve)


def _about_nodes(answers: dict[str, Any], asking: bool) -> tuple[dict[str, tuple[str, Any]], bool, Any]:
    """Questions that depend on the type of the nodes, whether to ask them, and how to check the answers.

    Raises a usage error for what the type needs, no flag says and nobody can be asked for.
    """
    if not (answers["instance"] or answers["gpus"]):
        return {}, asking, _cluster_field
    needed = _needed(answers)
    questions = {
        "eks": (f"The EKS cluster's name (empty: {answers['name']})", ""),
        "zone": (f"Availability zone ({needed.get('zone', 'empty: any')})", ""),
    }
    if "image" in needed:
        questions["image"] = (f"Image ({needed['image']})", "")
    for key, why in needed.items():
        if not asking and not answers[key]:
            example = {"zone": f"{answers['region']}a", "image": "REGISTRY/IMAGE:TAG"}[key]
            raise click.UsageError(f"{why}: add --{key}, such as {example}")

    def check(key: str, value: Any) -> None:
        if key in needed and not value:
            raise ValueError(needed[key])
        _cluster_field(key, value)

    return questions, asking, check


def _needed(answers: dict[str, Any]) -> dict[str, str]:
    """Flag -> why the type of the nodes needs it; nothing for a type that is not known, which is said later."""
    from raytrain_eks import catalog
    from raytrain_eks.spec.problem import SpecError

    try:
        type = answers["instance"]
        found = catalog.instance(type) if type else catalog.resolve_gpus(answers["gpus"], path="gpus")[0].instance
    except SpecError:
        return {}
    needed = {}
    if found.efa and found.accelerators and answers["nodes"][1] > 1:
        needed["zone"] = "EFA works within one availability zone"
    if found.vendor == "aws":
        needed["image"] = "Neuron needs an image that is built on AWS's Neuron image"
    return needed


def _may_ask(yes: bool) -> bool:
    return not yes and sys.stdin.isatty() and sys.stderr.isatty()


def _answers(
    given: dict[str, Any], questions: dict[str, tuple[str, Any]], asking: bool, check: Callable[[str, Any], None]
) -> dict[str, Any]:
    """Flags, then answers, then defaults; an empty answer is None. An answer that is not valid is asked for again."""
    answers = dict(given)
    for key, (question, default) in questions.items():
        if answers.get(key) is not None:
            continue
        answers[key] = default if not asking else _asked(key, question, default, check)
    return {key: None if value == "" else value for key, value in answers.items()}


def _asked(key: str, question: str, default: Any, check: Callable[[str, Any], None]) -> Any:
    def convert(text: str) -> Any:
        value = type(default)(text) if isinstance(default, int) else text.strip()
        check(key, value)
        return value

    def valid(text: Any) -> Any:
        try:
            return convert(str(text))
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return click.prompt(question, default=default, value_proc=valid, err=True, show_default=default != "")


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
        _check(*owners[key], value)


def _cluster_field(key: str, value: Any) -> None:
    from raytrain_eks.spec.cluster import Cluster, WorkerGroup
    from raytrain_eks.spec.cluster_ray import Ray

    if key == "nodes":
        _range(value)
    elif key == "image":
        _check(Ray, "image", value)
    elif key == "instance" and value:
        _check(WorkerGroup, "gpus" if ":" in value else "instance", value)
    elif value:
        _check(Cluster, key, value)


def _check(model: Any, field: str, value: Any) -> None:
    """Raises ValueError with the rule of a field for a value that it does not take."""
    from raytrain_eks.spec.problem import SpecError

    try:
        model.parse({field: value})
    except SpecError as error:
        if rules := [problem.rule for problem in error.problems if problem.path == field]:
            raise ValueError(", ".join(rules)) from None


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


def _range(value: str) -> tuple[int, int]:
    low, colon, high = value.partition(":")
    if not (low.isdecimal() and (not colon or high.isdecimal())) or int(high or low) < max(int(low), 1):
        raise click.UsageError(f"nodes are a number or MIN:MAX, such as 4 or 0:16, not {value}")
    return int(low), int(high or low)


def _known(answers: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in answers.items() if value is not None}


def _target(file: str | None, name: str, folder: str) -> str:
    if file is not None:
        return file
    return str(Path(folder, f"{name}.yaml")) if Path(folder).is_dir() else f"{name}.yaml"


def _write(target: str, text: str, model: Any, force: bool, also: Callable[[Any], Any] = lambda made: None) -> None:
    """Check the text as any file is checked, then put it in its place, whole or not at all."""
    from raytrain_eks.spec.problem import SpecError

    try:
        also(model.read(text, target))
    except SpecError as error:
        raise error.so("nothing written") from None
    if target == "-":
        click.echo(text, nl=False)
        return
    path = Path(target)
    if not target or (path.exists() and not path.is_file()):
        raise Failure(f"{target or 'the empty name'} is no file to write; give FILE.yaml", Outcome.USAGE)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".init-", delete=False, encoding="utf-8") as made:
        made.write(text)
    try:
        os.chmod(made.name, 0o666 & ~_umask())
        if force:
            os.replace(made.name, path)
        else:
            os.link(made.name, path)
    except FileExistsError:
        raise Failure(f"{target} exists; nothing written\n  give another FILE, or --force", Outcome.USAGE) from None
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(made.name)
    click.echo(target)
    verb = {"Cluster": "render", "Sweep": "sweep"}.get(model.__name__, "submit")
    click.echo(f"written and valid; next: raytrain-eks {verb} {target}", err=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
