"""What every engine of PyTorch tensors shares: the device, the forward pass, parameter groups, reading and reducing."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.spec.job import Job
from raytrain_eks.train.loss import attention_mask, summed_loss


def device_of_worker(local_rank: int) -> torch.device:
    """The device of a worker process: its own GPU or NeuronCore where there is one, else the CPU.

    Ray narrows CUDA_VISIBLE_DEVICES to the node's devices of this job, so the local rank is the index.
    """
    if (neuron := native_device(local_rank)) is not None:
        return neuron
    if torch.cuda.is_available():
        return torch.device("cuda", local_rank % torch.cuda.device_count())
    return torch.device("cpu")


def native_device(local_rank: int = 0) -> torch.device | None:
    """The NeuronCore of this process; None without TorchNeuron, or where it finds no device.

    Ray gives each worker its own cores, so it usually sees one; where all of the node's are seen it takes its own.
    """
    module = getattr(torch, "neuron", None)
    if torch._C._get_privateuse1_backend_name() != "neuron" or module is None or not module.is_available():
        return None
    return torch.device("neuron", local_rank % module.device_count())


def weight_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for AdamW: matrices decay, vectors (biases and norms) do not."""
    trained = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    groups = [
        {"params": [weight for _, weight in trained if weight.ndim >= 2], "weight_decay": weight_decay},
        {"params": [weight for _, weight in trained if weight.ndim < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


class TensorEngine:
    """The parts of an engine that do not depend on how gradients and state are distributed."""

    device: torch.device
    autocast: bool
    """Whether matrix products run in bf16 (weights stay fp32)."""

    def forward(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch."""
        precision: AbstractContextManager[Any] = nullcontext()
        if self.autocast:
            precision = torch.autocast(self.device.type, dtype=torch.bfloat16)
        with precision:
            logits = module(
                input_ids=batch["input_ids"],
                attention_mask=self.mask(batch["segment_ids"]),
                position_ids=batch["position_ids"],
                use_cache=False,
            ).logits
        return summed_loss(logits, batch["labels"])

    def mask(self, segments: Tensor) -> Tensor | None:
        """Which positions see which; None where the model's own mask says the same."""
        return attention_mask(segments)

    def put(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """The arrays of a micro-batch as tensors on the device."""
        return {name: torch.as_tensor(array).to(self.device, non_blocking=True) for name, array in batch.items()}

    def read(self, *values: Tensor) -> list[float]:
        """The only place where the host waits for the device."""
        return torch.stack([value.detach().reshape(()).double() for value in values]).tolist()  # type: ignore[no-any-return]

    def reduce(self, *values: float) -> list[float]:
        """Sums over all ranks, in float64."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()  # type: ignore[no-any-return]


def wants_autocast(job: Job) -> bool:
    """Whether matrix products run in bf16."""
    return job.precision == "bf16"


def evaluating(module: nn.Module) -> AbstractContextManager[None]:
    """Evaluation mode without gradients, and back to training mode."""
    return _Evaluating(module)


class _Evaluating(AbstractContextManager[None]):
    def __init__(self, module: nn.Module):
        self.module = module
        self.without_gradients = torch.no_grad()

    def __enter__(self) -> None:
        self.module.eval()
        self.without_gradients.__enter__()

    def __exit__(self, *error: object) -> None:
        self.without_gradients.__exit__(*error)  # type: ignore[arg-type]
        self.module.train()
