"""Names of the state: what a checkpoint calls weights and optimizer moments, whichever engine wrote it.

`model.<parameter>` and `optimizer.<moment>.<parameter>` are the whole logical tensors in fp32, buffers of the model
that belong to its state as well; `optimizer.step` is the number of updates that the moments have seen. Frozen
parameters are in no checkpoint: they are built again as at the start. Whatever an engine holds of a parameter is a
`Part`: a box of it (whole, or a shard) or a flat range (a ZeRO partition).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from raytrain_eks.checkpoint.chunk import Chunk, share_out
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


@dataclass(frozen=True, kw_only=True)
class Part:
    """What this rank holds of one parameter, and so of its moments."""

    name: str
    region: Region
    """Which part of the whole parameter it is."""
    owner: Tensor
    """What the optimizer updates, fp32: the part itself, or a longer 1-D tensor that it is a stretch of. Moments have
    its shape and lie in the optimizer's state under it."""
    start: int | None = None
    """First element of the stretch; None: the owner is the part."""
    trained: bool = True
    """Whether the optimizer has moments for it."""
    copy: int = 0
    """Which one this is of the equal copies that ranks hold."""
    copies: int = 1

    def view(self, tensor: Tensor) -> Tensor:
        """The part's own elements in a tensor that is like the owner, in the part's shape."""
        tensor = tensor.detach()
        if self.start is not None:
            tensor = tensor.narrow(0, self.start, self.region.numel)
        return tensor.view(self.region.shape)

    def chunk(self, logical: str, tensor: Tensor) -> Chunk:
        """The part of a tensor that is like the owner, for a checkpoint."""
        seen, region = self.view(tensor), self.region
        return Chunk(logical, region.whole, seen.dtype, seen, region.offsets, region.flat_start)


def persistent_buffers(model: nn.Module) -> dict[str, Tensor]:
    """Buffers that belong to the model's state, by name."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    return {name: tensor for name, tensor in model.state_dict().items() if name not in parameters}


def stored_weights(model: nn.Module) -> dict[str, Tensor]:
    """What of a model is in checkpoints, by name: trained parameters and persistent buffers, each tensor once (tied
    weights go by their first name)."""
    seen: dict[int, str] = {}
    found = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        frozen = isinstance(tensor, nn.Parameter) and not tensor.requires_grad
        if isinstance(tensor, Tensor) and not frozen and seen.setdefault(id(tensor), name) == name:
            found[name] = tensor.detach()
    return found


def state_chunks(
    parts: Sequence[Part],
    buffers: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    *,
    updates: int,
    rank: int,
    world: int,
) -> list[Chunk]:
    """This rank's part of the state after so many updates. Of what several ranks hold alike each writes a share;
    buffers and the number of updates are alike everywhere."""
    by_copy: dict[tuple[int, int], list[Chunk]] = {}
    parts = [part for part in parts if part.trained and part.region.numel]
    for part in parts:
        listed = by_copy.setdefault((part.copy, part.copies), [])
        listed.append(part.chunk(weight_name(part.name), part.owner))
    for part in parts:
        moments = optimizer.state.get(part.owner, {})
        for moment in MOMENTS:
            if moment in moments:
                by_copy[part.copy, part.copies].append(part.chunk(moment_name(moment, part.name), moments[moment]))
    common = [Chunk.of(weight_name(name), tensor.detach()) for name, tensor in buffers.items()]
    found = share_out([*common, Chunk.of(STEP, torch.tensor(float(updates)))], rank, world)
    for (copy, copies), listed in by_copy.items():
        found += share_out(listed, copy, copies) if copies > 1 else listed
    return found


def take_state(
    parts: Sequence[Part],
    buffers: dict[str, Tensor],
    optimizer: torch.optim.Optimizer,
    reader: Reader,
    *,
    names: set[str],
) -> int:
    """Fill parts, their moments and buffers out of a checkpoint; the number of updates that the moments have seen.

    `names` are those of all parameters, also where this rank holds nothing of one. Raises NoSuchTensor for a checkpoint
    of another model.
    """
    _refuse_another(reader, names | set(buffers))
    reader.fill(_weights(parts, buffers))
    steps = reader.full(STEP).float()
    if float(steps) == 0:
        optimizer.state.clear()
        return 0
    wanted = []
    for part in parts:
        if not part.trained or not part.region.numel:
            continue
        # Fused AdamW wants its step count where the weight is.
        state = optimizer.state[part.owner]
        state["step"] = steps.clone().to(part.owner.device)
        for moment in MOMENTS:
            whole = state.setdefault(moment, torch.zeros_like(part.owner, memory_format=torch.preserve_format))
            wanted.append((moment_name(moment, part.name), part.region, part.view(whole)))
    reader.fill(wanted)
    return int(steps)


def _weights(parts: Iterable[Part], buffers: dict[str, Tensor]) -> Iterator[tuple[str, Region, Tensor]]:
    for part in parts:
        if part.trained:
            yield weight_name(part.name), part.region, part.view(part.owner)
    for name, tensor in buffers.items():
        yield weight_name(name), Region.all(tuple(tensor.shape)), tensor


def take_weights(model: nn.Module, reader: Reader) -> None:
    """Copy every weight and buffer of a whole model out of a checkpoint. Raises NoSuchTensor for one of another."""
    weights = stored_weights(model)
    _refuse_another(reader, set(weights))
    reader.fill((weight_name(name), Region.all(tuple(tensor.shape)), tensor) for name, tensor in weights.items())


def _refuse_another(reader: Reader, names: set[str]) -> None:
    known = {weight_name(name) for name in names}
    extra = [name for name in reader.names() if name.startswith(weight_name("")) and name not in known]
    if extra:
        rule = f"the checkpoint of step {reader.step} has {len(extra)} tensors that this model has not"
        raise NoSuchTensor(f"{rule}, such as {extra[0]}; is it of another model?")
