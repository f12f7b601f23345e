"""`raytrain-eks plan FILE`: what a job or a cluster file comes to, each decision with the rule behind it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Outcome

if TYPE_CHECKING:
    from raytrain_eks.catalog import Instance
    from raytrain_eks.plan.cluster import ClusterPlan
    from raytrain_eks.plan.forecast import Forecast
    from raytrain_eks.spec.job import Job
    from raytrain_eks.spec.source import Document
    from raytrain_eks.submit.assemble import JobFile

GIB = 2**30
KINDS = {"GPU": "GPU", "neuron_cores": "NeuronCore", "CPU": "CPU"}
"""Ray's resource of a worker process -> what a person calls it."""
REASONS = {"vpc.amazonaws.com/efa": "efa"}
"""Kubernetes' resource -> the plan's decision that it comes from, where they differ in name."""


@click.command(
    help="What a job or cluster file comes to: workers, split, memory and time of a job; pods, nodes and devices of a "
    "cluster; and why. Exit 3 when the job does not fit its accelerators."
)
@click.argument("file")
@out.option()
def command(file: str, output: str) -> int:
    from raytrain_eks.spec.load import read_document
    from raytrain_eks.spec.problem import SpecError

    document = read_document(file)
    kind = document.data.get("kind") if isinstance(document.data, dict) else None
    if kind == "Cluster":
        rows = _of_cluster(_resolved(document))
        out.write(output, rows, table=lambda: _table(rows))
        return Outcome.DONE
    given = _job_file(file, document)
    try:
        return _plan_job(given.job, output)
    except SpecError as error:
        raise SpecError(each if each.file else given.placed(each) for each in error.problems) from None


def _job_file(file: str, document: "Document") -> "JobFile":
    """The job of a job file, or the one whose trials a sweep runs. Raises SpecError."""
    from raytrain_eks.spec import sweep_job
    from raytrain_eks.spec.check import located
    from raytrain_eks.spec.job import Job
    from raytrain_eks.spec.load import of_document
    from raytrain_eks.spec.problem import SpecError
    from raytrain_eks.submit.assemble import JobFile

    found = of_document(document)
    if isinstance(found, Job):
        return JobFile(Path(file), b"", document, found)
    if problems := located(sweep_job.problems(found, Path.cwd()), document):
        raise SpecError(problems)
    click.echo(f"{found.name}: the plan of one trial", err=True)
    sweep = sweep_job.resolved(found, Path.cwd())
    return JobFile(Path(file), b"", document, sweep.job, sweep=sweep)


def _resolved(document: Any) -> "ClusterPlan":
    from raytrain_eks.plan.cluster import resolve
    from raytrain_eks.spec.load import of_document

    return resolve(of_document(document, expect="Cluster"), document=document)


def _plan_job(job: "Job", output: str) -> int:
    from raytrain_eks.plan.forecast import alternatives, forecast
    from raytrain_eks.plan.known import model_of

    sizes, source = model_of(job)
    instance, world, where = _place(job)
    told = forecast(job, sizes, instance, world=world)
    rows = [_row("workers", world, where), *_of_job(job, told, source)]
    fitting = []
    if told.fits is False and sizes is not None and instance is not None:
        fitting = [other.written() for other, _ in alternatives(job, sizes, instance, world=world)]
    data = {"name": job.name, "fits": told.fits, "plan": rows, "alternatives": [each["engine"] for each in fitting]}
    out.write(output, data, table=lambda: _table(rows))
    for idle in (row for row in rows if row["what"] == "idle workers"):
        click.echo(f"{idle['value']} of {world} workers would idle: {idle['why']}", err=True)
    if told.fits is not False:
        return Outcome.DONE
    assert told.memory is not None
    assert told.device is not None
    click.echo(f"{job.name} does not fit: too much for one {told.device.name}", err=True)
    for each in fitting:
        click.echo(f"this would, with `micro: 1`: engine: {_flow(each['engine'])}", err=True)
    if not fitting:
        # The engine xla keeps a whole copy on each core, however many there are.
        more = "" if job.engine.kind == "xla" else "more nodes, or "
        click.echo(f"no engine makes it fit: take {more}a type with more memory", err=True)
    return Outcome.FINDINGS


def _place(job: "Job") -> tuple["Instance | None", int, str]:
    """The instance type a job runs on, its worker processes, and where they come from."""
    from raytrain_eks.submit.eks_file import plan_of
    from raytrain_eks.submit.eks_place import own

    if job.cluster is None:
        count = job.workers.count or 1
        return None, count, "the file's count" if job.workers.count else "the file names neither a cluster nor a count"
    plan = plan_of(job, Path.cwd(), None)
    place = own(job, plan)
    ((name, nodes),) = place.nodes.items()
    group = plan.group(name)
    kind = group.instance.type if group.instance is not None else "nodes that are there"
    return (
        group.instance,
        place.workers.count,
        f"{nodes} x {kind} of {job.cluster}, one for each {KINDS[place.workers.kind]}",
    )


def _row(what: str, value: Any, why: str = "") -> dict[str, Any]:
    return {"what": what, "value": value, "why": why}


def _of_job(job: "Job", told: "Forecast", source: str) -> list[dict[str, Any]]:
    from raytrain_eks.plan.flops import CONVENTION
    from raytrain_eks.spec.problem import counted

    mesh, split = told.mesh, told.split
    rows = []
    if mesh.tensor > 1:
        rows.append(_row("mesh", f"{mesh.data} data x {mesh.tensor} tensor", "engine.tensor splits each layer"))
    rows.append(_row("global batch", f"{told.tokens_per_step:,} tokens", f"{job.global_sequences} sequences a step"))
    shape = f"{mesh.data} x {split.accumulation} x {split.micro} rows"
    rows.append(_row("split", shape, f"data ranks x micro-batches x rows; {split.why}"))
    if split.rows * mesh.data != job.global_sequences:
        empty = split.rows * mesh.data - job.global_sequences
        rows.append(_row("empty rows", empty, "the global batch is no multiple of the split"))
    if (idle := mesh.data - job.global_sequences) > 0:
        # Rows are dealt out one by one: with fewer than data ranks the rest computes on empty ones in every step.
        why = f"{counted(job.global_sequences, 'sequence')} a step for {mesh.data} data ranks"
        rows.append(_row("idle workers", idle * mesh.tensor, f"{why}: take a larger batch, or fewer workers"))
    if told.sizes is None:
        return [*rows, _row("model", None, source)]
    rows.append(_row("parameters", f"{told.sizes.parameters:,}", source))
    if told.sizes.active != told.sizes.parameters:
        rows.append(_row("active parameters", f"{told.sizes.active:,}", "of a token's own experts"))
    rows.append(_row("work of a token", f"{told.flops_per_token:.3e} FLOP", CONVENTION))
    return rows + _memory(told) + _time(told)


def _memory(told: "Forecast") -> list[dict[str, Any]]:
    from raytrain_eks.plan.memory import USABLE

    memory = told.memory
    assert memory is not None
    rows = [
        _row("weights", _gib(memory.weights), "fp32, of one worker"),
        _row("gradients", _gib(memory.gradients)),
        _row("moments", _gib(memory.moments), "AdamW's two"),
        _row("gathered layers", _gib(memory.gathered) if memory.gathered else None),
        _row("activations", _gib(memory.activations), "estimate: 34 s b h bytes a layer in 16 bits, less recomputed"),
        _row("logits", _gib(memory.logits), "one copy of the model's, one in fp32, its gradient"),
        _row("host memory", _gib(memory.host) if memory.host else None, "offloaded, of one worker"),
    ]
    limit = told.device.memory if told.device is not None else None
    verdict = ""
    if limit is not None and told.device is not None:
        verdict = f"{'fits' if told.fits else 'does NOT fit'}: {USABLE:.0%} of {_gib(limit)} of one {told.device.name}"
    rows.append(_row("memory in all", _gib(memory.total), verdict))
    return [row for row in rows if row["value"] is not None]


def _time(told: "Forecast") -> list[dict[str, Any]]:
    from raytrain_eks.plan.forecast import ASSUMED

    speed = told.tokens_per_second
    if speed is None or told.device is None:
        return []
    share, whose = ASSUMED[told.device.vendor]
    rows = [_row("tokens/s", f"{speed:,.0f}", f"forecast at {share:.0%} MFU ({whose})")]
    rows.append(_row("step", f"{told.tokens_per_step / speed:.3g} s", "forecast"))
    if told.seconds is not None:
        hours = told.seconds / 3600
        rows.append(
            _row("run", f"{hours:,.1f} h", f"{told.steps:,} steps; {hours * told.world:,.0f} accelerator-hours")
        )
    return rows


def _of_cluster(plan: "ClusterPlan") -> list[dict[str, Any]]:
    from raytrain_eks.spec.problem import counted

    rows = []
    for pod in plan.pods:
        kind = pod.instance.type if pod.instance is not None else "nodes that are there"
        span = ""
        if pod is not plan.head:
            group = plan.group(pod.name)
            low, nodes = group.min_nodes, counted(group.max_nodes, "node")
            many = nodes if low == group.max_nodes else f"{low} to {nodes}"
            span = f", {many}, {counted(group.devices.pods_per_node, 'pod')} a node"
        rows.append(_row(pod.name, kind + span, pod.zone or ""))
        for name, amount in pod.resources.items():
            rows.append(_row(f"  {name}", amount, pod.why.get(REASONS.get(name, name), "")))
        if pod.shm:
            rows.append(_row("  shm", f"{pod.shm / GIB:.0f}Gi", pod.why.get("shm", "")))
    return rows


def _table(rows: list[dict[str, Any]]) -> str:
    return out.aligned(("WHAT", "VALUE", "WHY"), [(row["what"], row["value"], row["why"]) for row in rows])


def _gib(amount: float) -> str:
    return f"{amount / GIB:,.1f} GiB" if amount >= GIB / 10 else f"{amount / 2**20:,.1f} MiB"


def _flow(engine: dict[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {str(value).lower()}" for key, value in engine.items()) + "}"
