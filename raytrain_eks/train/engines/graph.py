"""What engines share whose steps are compiled graphs: nothing in a step may depend on values, and the host waits for no
device but in `read`."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.train.engines.common import TensorEngine
from raytrain_eks.train.loss import additive, explicit_mask


class GraphEngine(TensorEngine):
    """The parts of an engine on a device that compiles."""

    explicit_masks = True

    def mask(self, segments: Tensor) -> Tensor:
        """Which positions see which, always explicit: whether a row is one document must not change the graph."""
        mask = explicit_mask(segments, causal=self.causal)
        return additive(mask) if self.additive_masks else mask

    def read(self, *values: Tensor) -> list[float]:
        """The only place where the host waits for the device; values come as they are, since stacking them on the
        device would be a graph of its own for each number of values."""
        return [float(value.detach().cpu()) for value in values]

    def reduce(self, *values: float) -> list[float]:
        """Sums over all ranks, in float64, between the hosts: a NeuronCore has no float64."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(total)
        return total.tolist()  # type: ignore[no-any-return]


def moved(model: nn.Module, device: torch.device) -> nn.Module:
    """The model on another device, tied weights still tied.

    `Module.to` makes a new parameter for every place of a tied one when memory cannot be shared between the devices.
    """
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(id(weight), []).append((module, name))
    model = model.to(device)
    for (first, kept), *others in places.values():
        for module, name in others:
            setattr(module, name, getattr(first, kept))
    return model
