"""AdamW whose graph never changes: every number that differs between steps is a tensor on the device.

PyTorch's AdamW computes bias corrections on the host. torch_xla hands such numbers to the graph as inputs, except for
exactly 0 and 1, which become part of it: when the corrections reach 1 (the second moment's, with beta 0.95, after about
700 steps) the step would be compiled anew in the middle of training. Here the device counts the steps, and makes the
corrections by expm1, for which fp32 is exact enough. So it can also leave a step out without the host's knowing.
The arithmetic is that of torch.optim.AdamW (Loshchilov and Hutter 2019).
"""

import math
from typing import Any

import torch
from torch import Tensor

from raytrain_eks.train.state import MOMENTS


class GraphAdamW(torch.optim.Optimizer):
    """AdamW over parameter groups; state and step count exist from the start, so the first step is like all others."""

    def __init__(self, groups: list[dict[str, Any]], *, betas: tuple[float, float], eps: float):
        super().__init__(groups, {"weight_decay": 0.0})
        self.betas, self.eps = betas, eps
        weights = [weight for group in self.param_groups for weight in group["params"]]
        self.steps = torch.zeros(1, device=weights[0].device)
        """How many updates were applied, fp32 [1] on the device: a scalar that was loaded from the host is treated by
        torch_xla unlike other tensors, and the step after that would be another graph."""
        for weight in weights:
            self.state[weight] = {moment: torch.zeros_like(weight) for moment in MOMENTS}

    @torch.no_grad()
    def update(self, rate: Tensor, apply: Tensor) -> None:
        """One step over the gradients that are there, at the learning rate `rate` (fp32 scalar), if `apply` (bool
        scalar) is true; both on the device."""
        self.steps.add_(apply.float())
        first, second = (self._correction(beta).squeeze(0) for beta in self.betas)
        size, root = rate / first, second.sqrt()
        for group in self.param_groups:
            for weight in group["params"]:
                self._update(weight, group["weight_decay"], rate, size, root, apply)

    def _correction(self, beta: float) -> Tensor:
        """1 - beta^steps."""
        return -torch.expm1(self.steps * math.log(beta)) if beta else torch.ones_like(self.steps)

    def _update(self, weight: Tensor, decay: float, rate: Tensor, size: Tensor, root: Tensor, apply: Tensor) -> None:
        first, second = (self.state[weight][moment] for moment in MOMENTS)
        assert weight.grad is not None
        gradient = weight.grad.float()
        mean = first.float().lerp(gradient, 1 - self.betas[0])
        square = (second.float() * self.betas[1]).addcmul(gradient, gradient, value=1 - self.betas[1])
        before = weight.float() * (1 - rate * decay) if decay else weight.float()
        after = before - size * mean / (square.sqrt() / root + self.eps)
        # One rounding each, at the end: with bf16 state it is the stochastic one.
        for kept, new in ((weight, after), (first, mean), (second, square)):
            kept.copy_(torch.where(apply, new.to(kept.dtype), kept))
