"""The global norm of gradients, the same number on every engine.

On a CPU `torch.linalg.vector_norm` adds up an fp32 tensor in fp32 from end to end: 1e-5 too small for a million
elements, 7e-4 for sixteen million. DeepSpeed adds up in fp64. So does this, by stretches that stay in the cache, since
converting all gradients at once takes several times as long. GPUs add up in trees, which is exact enough.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

STRETCH = 2**16


def global_norm(gradients: Sequence[Tensor]) -> Tensor:
    """The 2-norm of all gradients as one vector: an fp32 scalar on their device."""
    if not gradients or gradients[0].device.type != "cpu":
        return nn.utils.get_total_norm(gradients)
    return squares(gradients).sqrt().float()


def squares(gradients: Iterable[Tensor]) -> Tensor:
    """The sum of the squares of all elements of tensors on the CPU: an fp64 scalar."""
    exact = torch.empty(STRETCH, dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for gradient in gradients:
        for part in gradient.detach().reshape(-1).split(STRETCH):
            taken = exact[: part.numel()].copy_(part)
            total += torch.dot(taken, taken)
    return total
