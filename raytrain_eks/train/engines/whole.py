"""The whole model on one rank, put together of what all ranks hold.

A skeleton is copied from the model before anything is distributed: every module and buffer, and stand-ins without
memory for the parameters. It is filled with gathered weights when somebody wants the whole model, so what FSDP, DTensor
or DeepSpeed did to the model that trains never has to be undone.
"""

import copy

import torch
from torch import Tensor, nn


class Hollow(RuntimeError):
    """A weight of the whole model is missing, empty or of another shape: it must not be exported."""


class Skeleton:
    """A model's modules and buffers without its parameters."""

    def __init__(self, model: nn.Module):
        stand_ins = {
            id(weight): nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=weight.requires_grad)
            for weight in model.parameters()
        }
        # deepcopy takes what the memo has for an object instead of copying it; tied weights stay tied.
        self.model: nn.Module = copy.deepcopy(model, dict(stand_ins))

    def filled(self, weights: dict[str, Tensor], buffers: dict[str, Tensor]) -> nn.Module:
        """The model with these weights (by name, each tied one once) and buffers, in host memory.

        Raises Hollow when one is missing, empty or of another shape.
        """
        model = copy.deepcopy(self.model)
        made: dict[int, nn.Parameter] = {}
        for module_name, module in list(model.named_modules()):
            for name, stand_in in list(module._parameters.items()):
                if stand_in is None:
                    continue
                full = f"{module_name}.{name}" if module_name else name
                if id(stand_in) not in made:
                    made[id(stand_in)] = nn.Parameter(
                        sound(full, weights.get(full), stand_in.shape), requires_grad=stand_in.requires_grad
                    )
                module._parameters[name] = made[id(stand_in)]
        for name, tensor in buffers.items():
            owner, _, last = name.rpartition(".")
            model.get_submodule(owner)._buffers[last] = tensor
        return model


def sound(name: str, tensor: Tensor | None, shape: torch.Size) -> Tensor:
    """The tensor, which must be what its name promises. Raises Hollow."""
    if tensor is None:
        raise Hollow(f"{name} was not gathered")
    if tensor.shape != shape or tensor.is_meta:
        raise Hollow(f"{name} was gathered with shape {tuple(tensor.shape)}, the model's is {tuple(shape)}")
    return tensor
