"""Which ranks share a layer and which share the batch: the mesh of data and tensor parallelism.

Neighbouring ranks share a layer, since they exchange the most and a node's accelerators are the closest to each other;
so rank = data rank x tensor + tensor rank. The ranks of a tensor group train on the same rows.
"""

from dataclasses import dataclass

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

LARGEST = 1024
"""Ranks of a tensor group that are worth proposing; no node has as many accelerators."""


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """The ranks of a job as a rectangle: `data` groups of `tensor` ranks."""

    data: int
    """Groups that each take their own rows of a batch."""
    tensor: int
    """Ranks that a layer is split over; 1: each rank has whole layers."""

    @property
    def world(self) -> int:
        """All ranks."""
        return self.data * self.tensor

    def data_rank(self, rank: int) -> int:
        """Which share of the rows a rank trains on."""
        return rank // self.tensor

    def tensor_rank(self, rank: int) -> int:
        """Which part of a layer a rank holds."""
        return rank % self.tensor


def mesh_of(job: Job, world: int) -> Mesh:
    """The mesh of a job on `world` ranks. Raises SpecError when they make no rectangle."""
    tensor = getattr(job.engine, "tensor", 1)
    if world % tensor:
        below = next(size for size in range(min(tensor, world, LARGEST), 0, -1) if world % size == 0)
        rule = f"{world} workers cannot be split into groups of {tensor}"
        fix = f"write {below}, or take a multiple of {tensor} workers"
        raise SpecError([Problem(path="engine.tensor", value=str(tensor), rule=rule, fix=fix)])
    return Mesh(data=world // tensor, tensor=tensor)
