"""What a rank holds of parameters that FSDP or DTensor split over a mesh, as boxes of the whole tensors.

The optimizer works on the local tensors themselves: AdamW is the same element by element, and DTensor would only add
its dispatch to each of many small operations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from raytrain_eks.checkpoint.region import Region
from raytrain_eks.plan.mesh import Mesh
from raytrain_eks.train.engines.norm import global_norm
from raytrain_eks.train.state import Part

DATA, TENSOR = "data", "tensor"
"""Dimensions of the device mesh, in its order."""
BUCKET = 25 * 2**20
"""Bytes of gradients that are summed at once; DDP's default."""


@dataclass(frozen=True)
class Shard:
    """A parameter and this rank's local part of it."""

    name: str
    weight: nn.Parameter
    """As the module has it: whole, or a DTensor."""
    local: nn.Parameter
    """The memory that the optimizer updates; the weight itself where that is whole."""
    part: Part

    def take_gradient(self) -> None:
        """Give the weight's gradient to the local part."""
        gradient = self.weight.grad
        if isinstance(gradient, DTensor):
            if gradient.placements != self.weight.placements:  # type: ignore[attr-defined]
                gradient = gradient.redistribute(placements=self.weight.placements)  # type: ignore[attr-defined]
            gradient = gradient.to_local()
        self.local.grad = gradient


def shards_of(model: nn.Module, *, rank: int, mesh: Mesh) -> list[Shard]:
    """This rank's part of every parameter, in the model's order; tied ones once."""
    return [_shard(name, weight, rank, mesh) for name, weight in model.named_parameters()]


def _shard(name: str, weight: nn.Parameter, rank: int, mesh: Mesh) -> Shard:
    whole, trained = tuple(weight.shape), weight.requires_grad
    if not isinstance(weight, DTensor):
        part = Part(name=name, region=Region.all(whole), owner=weight, trained=trained, copy=rank, copies=mesh.world)
        return Shard(name, weight, weight, part)
    local = nn.Parameter(weight.to_local().detach(), requires_grad=trained)
    offsets, shape, split = _box(weight)
    if tuple(shape) != tuple(local.shape):
        raise RuntimeError(f"{name} is split in an unknown way: {tuple(local.shape)} here, {tuple(shape)} expected")
    # Copies are counted along the dimensions of the mesh that the parameter is not split over.
    copy, copies = 0, 1
    for dimension, index, size in (
        (DATA, mesh.data_rank(rank), mesh.data),
        (TENSOR, mesh.tensor_rank(rank), mesh.tensor),
    ):
        if dimension not in split:
            copy, copies = copy * size + index, copies * size
    region = Region.box(whole, tuple(offsets), tuple(shape))
    part = Part(name=name, region=region, owner=local, trained=trained, copy=copy, copies=copies)
    return Shard(name, weight, local, part)


def _box(weight: DTensor) -> tuple[list[int], list[int], set[str]]:
    """Offsets and shape of the local part, and the names of the mesh's dimensions that split it.

    Each split is torch.chunk's: equal parts rounded up, the last ones shorter or empty. The innermost dimension of the
    mesh splits first: FSDP shards what tensor parallelism has left.
    """
    device_mesh = weight.device_mesh
    coordinate, names = device_mesh.get_coordinate(), device_mesh.mesh_dim_names
    assert coordinate is not None
    assert names is not None
    offsets, shape, split = [0] * weight.ndim, list(weight.shape), set()
    for place, index, size, name in reversed(
        list(zip(weight.placements, coordinate, device_mesh.shape, names, strict=True))
    ):
        dimension = getattr(place, "dim", None)
        if dimension is None:
            continue
        step = -(-shape[dimension] // size)
        begin = min(index * step, shape[dimension])
        offsets[dimension] += begin
        shape[dimension] = min(step, shape[dimension] - begin)
        split.add(name)
    return offsets, shape, split


def squared_norm(shards: Sequence[Shard]) -> Tensor | None:
    """The square of this rank's share of the global gradient norm, fp32: what ranks hold alike counts once in the sum
    over all of them. None without gradients."""
    by_copies: dict[int, list[Tensor]] = {}
    for shard in shards:
        if shard.local.grad is not None:
            by_copies.setdefault(shard.part.copies, []).append(shard.local.grad)
    squares = [global_norm(found).square() / copies for copies, found in by_copies.items()]
    return torch.stack(squares).sum() if squares else None


def sum_gradients(tensors: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Sum gradients over the ranks of a group, in place, in buckets."""
    bucket: list[Tensor] = []
    size = 0
    for tensor in tensors:
        bucket.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= BUCKET:
            _sum(bucket, group)
            bucket, size = [], 0
    _sum(bucket, group)


def _sum(bucket: list[Tensor], group: dist.ProcessGroup) -> None:
    if not bucket:
        return
    flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
    dist.all_reduce(flat, group=group)
    for tensor, summed in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
        tensor.copy_(summed.view_as(tensor))
