"""What a job will be on the accelerators it asks for: split, memory, work, time; and what would fit if it does not.

Time is a forecast from an assumed utilisation, said as such; a run reports its own. Everything here is arithmetic on
the job, the model's sizes and the catalogue.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from raytrain_eks.catalog import Instance
from raytrain_eks.plan.batch import Split, split_of, steps_of, tokens_of_step
from raytrain_eks.plan.flops import Shape
from raytrain_eks.plan.memory import USABLE, Memory, memory_of
from raytrain_eks.plan.mesh import Mesh, mesh_of
from raytrain_eks.plan.sizes import Sizes
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

ASSUMED = {
    "nvidia": (0.40, "Llama 3 8B on p5.48xlarge had 39.7 %, AWS with torchtitan"),
    "aws": (0.25, "Neuron's own trn1 figures are 20 to 31 %"),
}
"""Vendor -> the utilisation (MFU) that a forecast assumes, and whose."""
XLA_ONLY = ("Trainium1", "Inferentia2")


@dataclass(frozen=True, kw_only=True)
class Device:
    """One accelerator as a worker process sees it: a GPU, or a logical NeuronCore."""

    name: str
    vendor: str
    memory: float | None
    """Bytes; None where no source says."""
    flops: float | None
    """Dense bf16 peak, FLOP/s."""


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A job on its accelerators."""

    world: int
    mesh: Mesh
    split: Split
    device: Device | None
    sizes: Sizes | None
    memory: Memory | None
    flops_per_token: float | None
    steps: int | None
    """Optimizer steps where the file alone says; None for epochs."""

    tokens_per_step: int
    """Tokens of a global batch, without those that only fill the split up."""

    @property
    def fits(self) -> bool | None:
        """Whether the memory suffices; None where it is not known."""
        if self.memory is None or self.device is None or self.device.memory is None:
            return None
        return self.memory.total <= USABLE * self.device.memory

    @property
    def tokens_per_second(self) -> float | None:
        """Of all accelerators, at the assumed utilisation."""
        if self.device is None or self.device.flops is None or self.flops_per_token is None:
            return None
        assumed = ASSUMED.get(self.device.vendor)
        return None if assumed is None else assumed[0] * self.device.flops * self.world / self.flops_per_token

    @property
    def seconds(self) -> float | None:
        """Of the whole run, at the assumed utilisation."""
        speed = self.tokens_per_second
        return None if speed is None or self.steps is None else self.steps * self.tokens_per_step / speed


def device_of(instance: Instance | None) -> Device | None:
    """The accelerator of an instance type as one worker process has it; None without any."""
    if instance is None or not instance.accelerators:
        return None
    parts = 1
    if instance.neuron_cores:
        parts = instance.logical_cores() // instance.accelerators
    memory = instance.accelerator_memory
    return Device(
        name=instance.accelerator if parts == 1 else f"NeuronCore of {instance.accelerator}",
        vendor=instance.vendor,
        memory=None if memory is None else float(memory) / parts,
        flops=None if instance.bf16_flops is None else instance.bf16_flops / parts,
    )


def forecast(job: Job, sizes: Sizes | None, instance: Instance | None, *, world: int) -> Forecast:
    """A job on `world` accelerators of a type. Raises SpecError for what cannot run at all."""
    problems = list(engine_problems(job, instance))
    if problems:
        raise SpecError(problems)
    mesh = mesh_of(job, world)
    split = split_of(job, mesh.data)
    memory = memory_of(job, sizes, world=world, micro=split.micro) if sizes is not None else None
    return Forecast(
        world=world,
        mesh=mesh,
        split=split,
        device=device_of(instance),
        sizes=sizes,
        memory=memory,
        flops_per_token=_flops(job, sizes) if sizes is not None else None,
        steps=steps_of(job),
        tokens_per_step=tokens_of_step(job),
    )


def engine_problems(job: Job, instance: Instance | None) -> Iterator[Problem]:
    """An engine that the accelerators of a type cannot run."""
    kind = job.engine.kind
    if instance is None or instance.vendor not in ("nvidia", "aws"):
        return
    if instance.accelerator in XLA_ONLY and kind != "xla":
        rule = f"{instance.accelerator} ({instance.type}) runs torch_xla only: native PyTorch begins with Trainium2"
        yield Problem(path="engine.kind", value=kind, rule=rule, fix="write `engine: {kind: xla}`")
    if instance.vendor == "aws" and kind == "deepspeed":
        rule = f"DeepSpeed has no kernels for {instance.accelerator} ({instance.type})"
        yield Problem(path="engine.kind", value=kind, rule=rule, fix="write `engine: {kind: xla}`")
    if instance.vendor == "nvidia" and kind == "xla":
        rule = f"the engine xla is for Trainium; {instance.type} has GPUs"
        yield Problem(path="engine.kind", value=kind, rule=rule, fix="write `engine: {kind: torch}`")


def _flops(job: Job, sizes: Sizes) -> float:
    shape = Shape(
        parameters=sizes.active,
        embedding=sizes.embedding,
        tied=sizes.tied,
        layers=sizes.layers,
        width=sizes.attention_width,
    )
    return shape.flops_per_token(job.data.sequence_length)


ALTERNATIVES: tuple[dict[str, object], ...] = (
    {"kind": "torch"},
    {"kind": "deepspeed", "zero": 1},
    {"kind": "deepspeed", "zero": 2},
    {"kind": "torch", "fsdp": True},
    {"kind": "torch", "fsdp": True, "activation_checkpointing": "full"},
    {"kind": "torch", "fsdp": True, "tensor": 8, "activation_checkpointing": "full"},
    {"kind": "deepspeed", "zero": 3, "offload": "optimizer", "activation_checkpointing": "full"},
)
"""Engines from the least communication to the least memory."""


def alternatives(job: Job, sizes: Sizes, instance: Instance, *, world: int) -> list[tuple[Job, Forecast]]:
    """The job with each engine (and a micro-batch of one row) that fits the accelerators, cheapest first."""
    found = []
    for engine in ALTERNATIVES:
        batch = job.batch.written() | {"micro": 1}
        try:
            changed = Job.parse(job.written() | {"engine": engine, "batch": batch})
            told = forecast(changed, sizes, instance, world=world)
        except SpecError:
            continue
        if told.fits:
            found.append((changed, told))
    return found
