"""What runs the training steps: one model per engine, told apart by `kind`.

No engine changes what is learnt: the batch, the order and the learning rates are the loop's, and a checkpoint of one
engine is read by any other. So nothing here belongs to a run's identity.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Discriminator

from raytrain_eks.spec.job_data import Text
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Whole

Recomputed = Literal["none", "full", "selective"]
Attention = Literal["auto", "sdpa", "flash_attention_2", "eager"]


class Auto(Model):
    """The engine that fits the model and the accelerators."""

    kind: Literal["auto"] = Aside("auto")
    """Take `torch`."""


class Torch(Model):
    """PyTorch's own parallelism: DDP, FSDP2, tensor parallelism by DTensor."""

    kind: Literal["torch"] = Aside("torch")
    """PyTorch's own parallelism."""

    fsdp: bool = Aside(False)
    """Shard parameters, gradients and optimizer state over the workers (FSDP2) instead of copying them (DDP): a worker
    needs its part of the memory, and each layer is gathered before it is used."""

    reshard: bool = Aside(True)
    """Only with `fsdp`: free a gathered layer after its forward pass and gather it again for the backward one. False
    keeps it in between: less communication, more memory."""

    tensor: Whole = Aside(1)
    """Split each layer over so many neighbouring workers, which then train on the same rows (tensor parallelism); the
    workers' number must be a multiple, and they should share a node. 1: no."""

    activation_checkpointing: Recomputed = Aside("none")
    """What is computed again in the backward pass instead of kept: nothing, all of a transformer block (`full`), or
    all but its matrix products and attention (`selective`). Less memory for more time."""

    compile: bool = Aside(False)
    """Compile the transformer blocks with `torch.compile`: the first step takes minutes, later ones are faster."""

    attention: Attention = Aside("auto")
    """The attention kernel. `auto` takes `flash_attention_2` on a GPU with bf16 where the package flash_attn is
    installed, else `sdpa`."""

    @rule
    def _reshard_is_fsdps(self) -> Iterator[Problem]:
        if "reshard" in self.model_fields_set and not self.fsdp:
            why = "without `fsdp` no layer is gathered, so there is nothing to free"
            yield Problem(path="reshard", rule=why, fix="write `fsdp: true`, or leave it out")


class DeepSpeed(Model):
    """DeepSpeed's ZeRO (Rajbhandari et al. 2020)."""

    kind: Literal["deepspeed"] = Aside("deepspeed")
    """DeepSpeed's ZeRO."""

    zero: Literal[0, 1, 2, 3] = Aside(2)
    """What is sharded over the workers: nothing (0), optimizer state (1), gradients too (2), parameters too (3)."""

    offload: Literal["none", "optimizer", "parameters"] = Aside("none")
    """What lives in host memory: nothing, the optimizer state, or that and the parameters (only with `zero: 3`)."""

    tensor: Whole = Aside(1)
    """Split each layer over so many neighbouring workers, which then train on the same rows (AutoTP); only with `zero`
    1 or 2. The workers' number must be a multiple, and they should share a node. 1: no."""

    config: Text | dict[str, Any] | None = Aside(None)
    """DeepSpeed settings of your own, as a JSON file or in place: they are added to the ones that are made from the
    job. A setting that contradicts the job is refused; `auto` takes the job's."""

    activation_checkpointing: Recomputed = Aside("none")
    """What is computed again in the backward pass instead of kept: nothing, all of a transformer block (`full`), or
    all but its matrix products and attention (`selective`). Less memory for more time."""

    attention: Attention = Aside("auto")
    """The attention kernel. `auto` takes `flash_attention_2` on a GPU with bf16 where the package flash_attn is
    installed, else `sdpa`."""

    @rule
    def _tensor(self) -> Iterator[Problem]:
        if self.tensor > 1 and self.zero not in (1, 2):
            why = f"AutoTP is offered beside ZeRO 1 and 2; zero is {self.zero}"
            yield Problem(path="tensor", rule=why, fix="write `zero: 1`, or take `engine: {kind: torch}`")

    @rule
    def _offload(self) -> Iterator[Problem]:
        if self.offload == "parameters" and self.zero != 3:
            why = f"only ZeRO-3 shards parameters, so only it can offload them; zero is {self.zero}"
            yield Problem(path="offload", rule=why, fix="write `zero: 3`, or `offload: optimizer`")
        if self.offload == "optimizer" and self.zero == 0:
            why = "ZeRO-0 shards no optimizer state, so there is nothing to offload"
            yield Problem(path="offload", rule=why, fix="write `zero: 1` or more")


class Xla(Model):
    """PyTorch/XLA, for trn1 and for trn2 with the Neuron SDK 2.31: data parallelism, every step a compiled graph."""

    kind: Literal["xla"] = Aside("xla")
    """PyTorch/XLA."""

    new_graph: Literal["error", "warn"] = Aside("error")
    """What a graph that is new after the warm-up does: each costs a compilation, minutes to an hour on Trainium."""

    warmup: Whole = Aside(3)
    """How many calls of each kind (training step, evaluation) may compile."""

    stochastic_rounding: bool = Aside(False)
    """Keep weights and AdamW's moments in bf16 and let the NeuronCore round stochastically, for half of the memory; a
    CPU rounds to nearest. Checkpoints hold fp32 all the same. Needs `precision: bf16`."""


Engine = Annotated[Auto | Torch | DeepSpeed | Xla, Discriminator("kind")]
EngineConfig = Auto | Torch | DeepSpeed | Xla
