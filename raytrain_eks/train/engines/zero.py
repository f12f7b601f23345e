"""What a rank holds under DeepSpeed's ZeRO, as flat ranges of whole parameters.

Stages 1 and 2 lay all parameters of a group end to end and cut that into equal slices: a rank owns a 1-D range of each
parameter that its slice touches. Stage 3 cuts each parameter for itself, padded to a multiple of the ranks. Either way
the fp32 numbers that the optimizer updates, and its moments, lie in longer 1-D tensors.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.checkpoint.region import Region
from raytrain_eks.train.engines.auto_tp import stretches
from raytrain_eks.train.engines.norm import squares
from raytrain_eks.train.state import Part


def parts_of(
    optimizer: Any,
    names: Mapping[nn.Parameter, str],
    boxes: Mapping[str, Region],
    *,
    stage: int,
    rank: int,
    world: int,
) -> Iterator[Part]:
    """This rank's parts of a model with such parameters, whose DeepSpeed optimizer is `optimizer`.

    `boxes` are what AutoTP has left of parameters, at stages 1 and 2; a parameter that is not among them is whole.
    """
    for weight, name in names.items():
        if stage == 3:
            yield from _own_partition(optimizer, weight, name, rank)
        elif stage == 0 or not weight.requires_grad:
            region = Region.all(tuple(weight.shape))
            yield Part(name=name, region=region, owner=weight, trained=weight.requires_grad, copy=rank, copies=world)
        else:
            yield from _stretch(optimizer, weight, name, boxes.get(name, Region.all(tuple(weight.shape))))


def _stretch(optimizer: Any, weight: Any, name: str, box: Region) -> Iterator[Part]:
    """Stages 1 and 2: the range of the parameter that lies in this rank's slice, if any does."""
    mapping = getattr(weight, "_hp_mapping", None)
    if mapping is None:
        return
    inside, outside = mapping.hp_fragment_address, mapping.lp_fragment_address
    owner = optimizer.single_partition_of_fp32_groups[mapping.param_group_index]
    for region, first in stretches(box, outside.start, inside.numel):
        yield Part(name=name, region=region, owner=owner, start=inside.start + first - outside.start)


def _own_partition(optimizer: Any, weight: Any, name: str, rank: int) -> Iterator[Part]:
    """Stage 3: this rank's partition of the parameter, without the padding behind its end."""
    size = weight.ds_tensor.ds_numel
    length = min(size, weight.ds_numel - rank * size)
    if length <= 0:
        return
    region = Region.flat(tuple(weight.ds_shape), rank * size, length)
    if not weight.requires_grad:
        yield Part(name=name, region=region, owner=weight.ds_tensor, start=0, trained=False)
        return
    group, start, _ = optimizer.grad_position[optimizer.get_param_id(weight)]
    yield Part(name=name, region=region, owner=optimizer.fp32_partitioned_groups_flat[group], start=start)


def take_partitions(optimizer: Any, names: Mapping[nn.Parameter, str]) -> None:
    """After a load at stage 3: give the fp32 numbers to what the forward pass gathers."""
    for weight in names:
        if not weight.requires_grad:
            continue
        group, start, length = optimizer.grad_position[optimizer.get_param_id(weight)]
        fresh = optimizer.fp32_partitioned_groups_flat[group].detach().narrow(0, start, length)
        weight.ds_tensor.data.copy_(fresh)  # type: ignore[attr-defined]
    # Small parameters are kept whole on every rank; they are gathered anew.
    kept = optimizer.persistent_parameters
    if kept:
        kept[0].partition(kept)
        kept[0].all_gather(kept)


def exact_norm(optimizer: Any) -> Callable[[], Tensor]:
    """Stages 1 and 2 on a CPU: the global gradient norm, added up in fp64 over all ranks and rounded once.

    DeepSpeed rounds the share of each rank and group to fp32, which the other engines do not: clipped gradients would
    differ in their last bit, and at a high learning rate the losses in their first after some dozens of steps.
    """

    def norm() -> Tensor:
        total = squares(part for group in optimizer.averaged_gradients.values() for part in group)
        dist.all_reduce(total, group=optimizer.dp_process_group)
        found = total.sqrt().float()
        # DeepSpeed takes its way out of an overflow for this, and not for NaN.
        return torch.where(found.isfinite(), found, torch.inf)

    return norm


@contextmanager
def refusing(optimizer: Any, stage: int) -> Iterator[None]:
    """Within it a step of stage 1 to 3 takes DeepSpeed's own way out of an overflow: gradients are dropped, nothing is
    applied. It goes that way when the gradient norm is not finite, and so it is told."""
    name = "_get_norm_groups" if stage == 3 else "scaled_global_norm"
    before = vars(optimizer).get(name)
    setattr(optimizer, name, (lambda: [math.inf]) if stage == 3 else (lambda: math.inf))
    try:
        yield
    finally:
        if before is None:
            delattr(optimizer, name)
        else:
            setattr(optimizer, name, before)
