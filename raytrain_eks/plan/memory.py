"""How much memory of an accelerator a job takes, by engine: what must be there, and an estimate of what comes and goes.

State, exact for what the engines here keep: fp32 weights (4 bytes a parameter), their gradients (4) and AdamW's two
moments (8), divided as ZeRO does (Rajbhandari et al. 2020, section 5) or FSDP. Activations, an estimate: 34 s b h bytes
a layer in 16 bits without the scores of attention, which fused kernels do not keep (Korthikanti et al. 2022, equation 2
less its second term); with full recomputation the input of each layer, 2 s b h, and one layer in full. Logits: one copy
as the model makes them, one in fp32 and its gradient.
"""

from dataclasses import dataclass

from raytrain_eks.plan.mesh import mesh_of
from raytrain_eks.plan.sizes import Sizes
from raytrain_eks.spec.engine import DeepSpeed, Torch, Xla
from raytrain_eks.spec.job import Job

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8
USABLE = 0.92
"""The part of a device's memory that is left to the job: the rest is the runtime's, its communicators' and lost to
fragmentation."""
SELECTIVE = 0.6
"""The part of the activations that stays when all but matrix products and attention is computed again."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on one accelerator."""

    weights: float
    gradients: float
    moments: float
    gathered: float
    """Layers that are gathered before they are used."""
    activations: float
    logits: float
    host: float
    """Bytes in host memory for one worker, where state is offloaded."""

    @property
    def state(self) -> float:
        """What stays from step to step."""
        return self.weights + self.gradients + self.moments

    @property
    def total(self) -> float:
        """The most at one time."""
        return self.state + self.gathered + self.activations + self.logits


def adapters(job: Job, sizes: Sizes) -> int:
    """Weights of the low-rank adapters of a job: rank x (inputs + outputs) of each linear layer."""
    assert job.lora is not None
    linear = sizes.linear
    if job.lora.target_modules is not None:
        # Names of projections that are not a layer's own say nothing here; a share of all of them stands in.
        linear = linear[: max(len(job.lora.target_modules), 1)]
    return job.lora.rank * sizes.layers * sum(inputs + outputs for inputs, outputs in linear)


def memory_of(job: Job, sizes: Sizes, *, world: int, micro: int) -> Memory:
    """The memory of one accelerator of `world`, with micro-batches of `micro` rows. Raises SpecError by `mesh_of`."""
    mesh = mesh_of(job, world)
    here = sizes.parameters / mesh.tensor
    trained = adapters(job, sizes) if job.lora is not None else here
    weights, gradients, moments, host = _state(job, here, trained, mesh.data)
    layer = (sizes.active - sizes.embedding * (1 if sizes.tied else 2)) / max(sizes.layers, 1) / mesh.tensor
    number = 2 if job.precision == "bf16" else 4
    gathered = 0.0
    if _shards_weights(job):
        # The layer in use and the one that is fetched meanwhile.
        gathered = 2 * max(layer, sizes.embedding / mesh.tensor) * (number if isinstance(job.engine, Torch) else WEIGHT)
    rows = micro * job.data.sequence_length
    logits = rows * sizes.vocabulary / mesh.tensor * (number + 4 + 4)
    return Memory(
        weights=weights,
        gradients=gradients,
        moments=moments,
        gathered=gathered,
        activations=_activations(job, sizes, rows, number, mesh.tensor),
        logits=logits,
        host=host,
    )


def _shards_weights(job: Job) -> bool:
    engine = job.engine
    return (isinstance(engine, Torch) and engine.fsdp) or (isinstance(engine, DeepSpeed) and engine.zero == 3)


def _state(job: Job, here: float, trained: float, data: int) -> tuple[float, float, float, float]:
    """Weights, gradients, moments on the device, and what is in host memory: bytes."""
    engine = job.engine
    zero = 3 if _shards_weights(job) else engine.zero if isinstance(engine, DeepSpeed) else 0
    if isinstance(engine, Xla) and engine.stochastic_rounding:
        return 2 * here, 2 * trained, 4 * trained, 0.0
    weights = WEIGHT * here / (data if zero == 3 else 1)
    gradients = GRADIENT * trained / (data if zero >= 2 else 1)
    moments = MOMENTS * trained / (data if zero >= 1 else 1)
    host = 0.0
    offload = engine.offload if isinstance(engine, DeepSpeed) else "none"
    if offload != "none":
        # The optimizer's own copy of the weights moves with the moments.
        host, moments = moments + (WEIGHT + GRADIENT) * trained / data, 0.0
    if offload == "parameters":
        host, weights = host + weights, 0.0
    return weights, gradients, moments, host


def _activations(job: Job, sizes: Sizes, rows: int, number: int, tensor: int) -> float:
    layer = 34 * rows * sizes.width * number / 2 / tensor
    kept = getattr(job.engine, "activation_checkpointing", "none")
    if kept == "full":
        return sizes.layers * rows * sizes.width * number + layer
    return sizes.layers * layer * (SELECTIVE if kept == "selective" else 1.0)
