"""What the ranks of a worker group agree about: one decides, all do the same.

Everything here is a collective of the main thread over a gloo group of its own; nothing is called from a background
thread.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

PATIENCE = timedelta(hours=2)
"""Longest wait for the slowest rank, e.g. while one verifies its part of a large checkpoint."""


class Together:
    """The ranks of a group; a group of one needs no torch.distributed.

    Raises ValueError when `world` is over 1 and no process group is there, or its size is another.
    """

    def __init__(self, rank: int, world: int, group: Any = None):
        self.rank, self.world = rank, world
        self.group = group
        if world == 1:
            return
        import torch.distributed as dist

        if not dist.is_initialized():
            raise ValueError(f"{world} ranks need torch.distributed, which is not initialised")
        if group is None:
            self.group = dist.new_group(backend="gloo", timeout=PATIENCE)
        if dist.get_world_size(self.group) != world:
            raise ValueError(f"the group has {dist.get_world_size(self.group)} ranks, {world} are expected")

    def share(self, value: Any) -> Any:
        """Rank 0's value, on all ranks (anything that pickles)."""
        if self.world == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, group_src=0, group=self.group, device=_cpu())
        return box[0]

    def gather(self, value: Any) -> Sequence[Any]:
        """The values of all ranks, by rank, on all ranks."""
        if self.world == 1:
            return [value]
        import torch.distributed as dist

        values: list[Any] = [None] * self.world
        dist.all_gather_object(values, value, group=self.group)
        return values

    def any(self, flag: bool) -> bool:
        """Whether it holds on at least one rank."""
        return any(self.gather(flag))


def _cpu() -> Any:
    import torch

    return torch.device("cpu")
