"""What runs the training steps: one model per engine, told apart by `kind`.

No engine changes what is learnt: the batch, the order and the learning rates are the loop's, and a checkpoint of one
engine is read by any other. So nothing here belongs to a run's identity.
"""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator

from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Whole


class Auto(Model):
    """The engine that fits the model and the accelerators."""

    kind: Literal["auto"] = Aside("auto")
    """Take `torch`."""


class Torch(Model):
    """PyTorch's own data parallelism."""

    kind: Literal["torch"] = Aside("torch")
    """PyTorch's own data parallelism."""

    fsdp: bool = Aside(False)
    """Shard parameters, gradients and optimizer state over the workers (FSDP2) instead of copying them (DDP): a worker
    needs its part of the memory, and each layer is gathered before it is used."""

    compile: bool = Aside(False)
    """Compile the model with `torch.compile`: the first step takes minutes, later ones are faster."""


class DeepSpeed(Model):
    """DeepSpeed's ZeRO (Rajbhandari et al. 2020)."""

    kind: Literal["deepspeed"] = Aside("deepspeed")
    """DeepSpeed's ZeRO."""

    zero: Literal[0, 1, 2, 3] = Aside(2)
    """What is sharded over the workers: nothing (0), optimizer state (1), gradients too (2), parameters too (3)."""

    offload: Literal["none", "optimizer", "parameters"] = Aside("none")
    """What lives in host memory: nothing, the optimizer state, or that and the parameters (only with `zero: 3`)."""

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
