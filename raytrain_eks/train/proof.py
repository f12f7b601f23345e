"""The proof that an all-reduce really reduces, taken before the first step.

A process group of the wrong size, or a collective that silently does nothing, would train as many separate models as
there are ranks. (An XLA world on CPU does just that.)
"""

import torch
import torch.distributed as dist


class NotReduced(RuntimeError):
    """An all-reduce gave something else than the sum over the ranks."""


def prove_all_reduce(device: torch.device, world: int) -> None:
    """Sum 1, and the ranks' own numbers, over all ranks. Raises NotReduced when a sum is wrong."""
    if world == 1:
        return
    if not dist.is_initialized() or dist.get_world_size() != world:
        found = dist.get_world_size() if dist.is_initialized() else 1
        raise NotReduced(f"the process group has {found} ranks, the job has {world} workers")
    prove_group(device, None)


def prove_group(device: torch.device, group: dist.ProcessGroup | None) -> None:
    """The same for one group of ranks; None: all of them."""
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    probe = torch.tensor([1.0, float(rank)], device=device)
    dist.all_reduce(probe, group=group)
    expected = [float(size), size * (size - 1) / 2]
    if probe.tolist() != expected:
        raise NotReduced(
            f"all_reduce over {size} ranks gave {probe.tolist()} for a sum that is {expected}: the ranks do not "
            "exchange data, and would train separate models"
        )
