"""DeepSpeed's AutoTP: which part of each layer it has left on this rank, and the whole of it again.

AutoTP cuts weights in place and does not tell where. So the whole weights are held until it is done, and each part is
compared with the slice that it must be: a cut that is no slice (of fused or interleaved layers) is refused rather than
saved under a false name.
"""

from collections.abc import Iterator, Mapping
from math import prod

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.checkpoint.region import Region
from raytrain_eks.spec.problem import Problem, SpecError


def boxes_of(model: nn.Module, before: Mapping[str, Tensor], group: dist.ProcessGroup) -> dict[str, Region]:
    """The box of each parameter that this rank of a tensor group holds. `before` are the whole parameters.

    Raises SpecError where a part is not the slice of the whole that its place and shape promise.
    """
    shapes: list[dict[str, tuple[int, ...]]] = [{} for _ in range(dist.get_world_size(group))]
    dist.all_gather_object(shapes, {name: tuple(weight.shape) for name, weight in model.named_parameters()}, group)
    rank, found = dist.get_rank(group), {}
    for name, weight in model.named_parameters():
        whole = before[name]
        split = [axis for axis in range(whole.ndim) if weight.shape[axis] != whole.shape[axis]]
        offsets = [0] * whole.ndim
        for axis in split:
            offsets[axis] = sum(each[name][axis] for each in shapes[:rank])
        slices = tuple(slice(at, at + size) for at, size in zip(offsets, weight.shape, strict=True))
        if len(split) > 1 or not torch.equal(whole[slices], weight):
            rule = f"AutoTP cuts {name} into other parts than slices, which cannot be saved"
            fix = "take `engine: {kind: torch, tensor: ...}`, or a model without fused layers"
            raise SpecError([Problem(path="engine.tensor", rule=rule, fix=fix)])
        found[name] = Region.box(tuple(whole.shape), tuple(offsets), tuple(weight.shape))
    return found


def stretches(box: Region, start: int, length: int) -> Iterator[tuple[Region, int]]:
    """A 1-D stretch of a flattened box as regions of the whole tensor, each with its first element in the box.

    Of a box that lies in one piece in the whole it is one flat range; else the end of a row, whole rows, and the
    beginning of a row.
    """
    offsets = box.offsets or ()
    inner = prod(box.whole[1:])
    if box.shape[1:] == box.whole[1:]:
        first = (offsets[0] if offsets else 0) * inner
        yield Region.flat(box.whole, first + start, length), start
        return
    width, stop = box.shape[1], start + length
    while start < stop:
        row, column = divmod(start, width)
        rows = (stop - start) // width if column == 0 else 0
        size = min(width - column, stop - start) if rows == 0 else width
        yield Region.box(box.whole, (offsets[0] + row, offsets[1] + column), (max(rows, 1), size)), start
        start += max(rows, 1) * size


def whole_of(part: Tensor, box: Region, group: dist.ProcessGroup) -> Tensor:
    """The whole of a tensor of which every rank of a tensor group has a box, on each of them."""
    split = [axis for axis, (size, whole) in enumerate(zip(box.shape, box.whole, strict=True)) if size != whole]
    if not split:
        return part
    sizes: list[int] = [0] * dist.get_world_size(group)
    dist.all_gather_object(sizes, box.shape[split[0]], group)
    parts = []
    for rank, size in enumerate(sizes):
        shape = [*box.whole[: split[0]], size, *box.whole[split[0] + 1 :]]
        mine = rank == dist.get_rank(group)
        buffer = part.contiguous() if mine else torch.empty(shape, dtype=part.dtype, device=part.device)
        dist.broadcast(buffer, dist.get_global_rank(group, rank), group)
        parts.append(buffer)
    return torch.cat(parts, dim=split[0])
