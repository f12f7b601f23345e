"""AdamW whose graph never changes: every number that differs between steps is a tensor on the device.

PyTorch's AdamW computes bias corrections on the host. torch_xla hands such numbers to the graph as inputs, except for
exactly 0 and 1, which become part of it: when the corrections reach 1 (the second moment's, with beta 0.95, after about
700 steps) the step would be compiled anew in the middle of training. Here the host computes them in float64 and
the graph gets them as one small tensor. The arithmetic is that of torch.optim.AdamW (Loshchilov and Hutter 2019).
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
        self.betas, self.eps, self.steps = betas, eps, 0
        for group in self.param_groups:
            for weight in group["params"]:
                self.state[weight] = {moment: torch.zeros_like(weight) for moment in MOMENTS}

    def numbers(self, learning_rate: float) -> list[float]:
        """What differs between steps: learning rate over the first moment's correction, the root of the second's."""
        first, second = (1 - beta**self.steps for beta in self.betas)
        return [learning_rate, learning_rate / first, math.sqrt(second)]

    @torch.no_grad()
    def update(self, learning_rate: float) -> None:
        """One step at this rate over the gradients that are there."""
        self.steps += 1
        rate, size, root = torch.tensor(self.numbers(learning_rate)).to(self.device).unbind()
        for group in self.param_groups:
            for weight in group["params"]:
                self._update(weight, weight.grad, group["weight_decay"], rate, size, root)

    def _update(self, weight: Tensor, gradient: Tensor, decay: float, rate: Tensor, size: Tensor, root: Tensor) -> None:
        first, second = (self.state[weight][moment] for moment in MOMENTS)
        gradient = gradient.float()
        mean = first.float().lerp(gradient, 1 - self.betas[0])
        square = (second.float() * self.betas[1]).addcmul(gradient, gradient, value=1 - self.betas[1])
        change = size * mean / (square.sqrt() / root + self.eps)
        # One rounding each, at the end: with bf16 state it is the stochastic one.
        weight.copy_(weight.float() * (1 - rate * decay) - change if decay else weight.float() - change)
        first.copy_(mean)
        second.copy_(square)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = self.param_groups[0]["params"][0].device
        return device
