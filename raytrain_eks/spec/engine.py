"""What runs the training steps: one model per engine, told apart by `kind`."""

from typing import Annotated, Literal

from pydantic import Discriminator

from raytrain_eks.spec.model import Aside, Model


class Auto(Model):
    """The engine that fits the model and the accelerators."""

    kind: Literal["auto"] = "auto"
    """Take `torch`."""


class Torch(Model):
    """PyTorch's own data parallelism."""

    kind: Literal["torch"] = "torch"
    """PyTorch's own data parallelism."""

    fsdp: bool = Aside(False)
    """Shard parameters, gradients and optimizer state over the workers (FSDP2) instead of copying them (DDP)."""

    compile: bool = Aside(False)
    """Compile the model with `torch.compile`."""


class DeepSpeed(Model):
    """DeepSpeed's ZeRO (Rajbhandari et al. 2020)."""

    kind: Literal["deepspeed"] = "deepspeed"
    """DeepSpeed's ZeRO."""

    zero: Literal[0, 1, 2, 3] = Aside(2)
    """What is sharded: nothing (0), optimizer state (1), gradients too (2), parameters too (3)."""

    offload: Literal["none", "optimizer", "parameters"] = Aside("none")
    """What lives in host memory: nothing, the optimizer state, or that and the parameters (ZeRO-3)."""


Engine = Annotated[Auto | Torch | DeepSpeed, Discriminator("kind")]
EngineConfig = Auto | Torch | DeepSpeed
