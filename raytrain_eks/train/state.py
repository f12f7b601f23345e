"""Names of the state: what a checkpoint calls weights and optimizer moments, whichever engine wrote it.

`model.<parameter>` and `optimizer.<moment>.<parameter>` are the whole logical tensors in fp32, buffers of the model
that belong to its state as well; `optimizer.step` is the number of updates that the moments have seen.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from raytrain_eks.checkpoint.chunk import Chunk
from raytrain_eks.checkpoint.reader import NoSuchTensor, Reader
from raytrain_eks.checkpoint.region import Region

MOMENTS = ("exp_avg", "exp_avg_sq")
STEP = "optimizer.step"


def weight_name(name: str) -> str:
    """The logical name of a parameter or buffer."""
    return f"model.{name}"


def moment_name(moment: str, name: str) -> str:
    """The logical name of a parameter's first or second moment."""
    return f"optimizer.{moment}.{name}"


def whole(name: str, tensor: Tensor) -> Chunk:
    """A chunk that is the whole of its logical tensor."""
    return Chunk.of(name, tensor.detach())


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, each tensor once (tied weights go by their first name)."""
    seen: dict[int, str] = {}
    found = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        if isinstance(tensor, Tensor) and seen.setdefault(id(tensor), name) == name:
            found[name] = tensor.detach()
    return found


def whole_state(model: nn.Module, optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str]) -> list[Chunk]:
    """The state of a replicated model and its AdamW as whole tensors."""
    chunks = [whole(weight_name(name), tensor) for name, tensor in stored_weights(model).items()]
    steps = 0.0
    for weight, state in optimizer.state.items():
        chunks += [whole(moment_name(moment, names[weight]), state[moment]) for moment in MOMENTS]
        steps = max(steps, float(state["step"]))
    return [*chunks, whole(STEP, torch.tensor(steps))]


def take_weights(model: nn.Module, reader: Reader) -> None:
    """Copy every weight and buffer of the model out of a checkpoint. Raises NoSuchTensor for one of another model."""
    weights = stored_weights(model)
    known = {weight_name(name) for name in weights}
    extra = [name for name in reader.names() if name.startswith(weight_name("")) and name not in known]
    if extra:
        rule = f"the checkpoint of step {reader.step} has {len(extra)} tensors that this model has not"
        raise NoSuchTensor(f"{rule}, such as {extra[0]}; is it of another model?")
    reader.fill((weight_name(name), Region.all(tuple(tensor.shape)), tensor) for name, tensor in weights.items())


def take_adamw(optimizer: torch.optim.Optimizer, names: Mapping[nn.Parameter, str], reader: Reader) -> None:
    """Fill a fresh AdamW over replicated parameters with the moments of a checkpoint."""
    steps = reader.full(STEP).float()
    if float(steps) == 0:
        return
    wanted = []
    for weight in (weight for group in optimizer.param_groups for weight in group["params"]):
        moments = {moment: torch.empty_like(weight, memory_format=torch.preserve_format) for moment in MOMENTS}
        shape = Region.all(tuple(weight.shape))
        wanted += [(moment_name(moment, names[weight]), shape, tensor) for moment, tensor in moments.items()]
        # Fused AdamW wants its step count where the weight is.
        optimizer.state[weight] = {"step": steps.clone().to(weight.device), **moments}
    reader.fill(wanted)
