"""What every engine of PyTorch tensors shares: the device, the forward pass, parameter groups, reading and reducing."""

import hashlib
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.spec.job import Job
from raytrain_eks.train.loss import additive, attention_mask, summed_loss


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
    tensor: int = 1
    """Neighbouring ranks that share each layer, and so train on the same rows."""
    flat_rows: bool = False
    """Whether the rows of a batch go through the model as one long row, for attention that takes documents apart by
    their position ids."""
    explicit_masks: bool = False
    """Whether a batch has its mask even where the model's own says the same."""
    causal: bool = True
    """Whether positions are trained to give the next token, and see only what is before them; else masked tokens."""
    additive_masks: bool = False
    """Whether the attention kernel adds its mask to scores."""
    rank: int

    def forward(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch."""
        precision: AbstractContextManager[Any] = nullcontext()
        if self.autocast:
            precision = torch.autocast(self.device.type, dtype=torch.bfloat16)
        ids, positions, segments = batch["input_ids"], batch["position_ids"], batch.get("segment_ids")
        if self.flat_rows:
            ids, positions, segments = ids.reshape(1, -1), positions.reshape(1, -1), None
        with precision:
            logits = module(
                input_ids=ids,
                attention_mask=self.mask(segments) if segments is not None else None,
                position_ids=positions,
                use_cache=False,
            ).logits
        labels = batch["labels"]
        return summed_loss(logits.view(*labels.shape, -1) if self.flat_rows else logits, labels, causal=self.causal)

    def mask(self, segments: Tensor) -> Tensor | None:
        """Which positions see which; None where the model's own mask says the same."""
        mask = attention_mask(segments, causal=self.causal)
        return additive(mask) if mask is not None and self.additive_masks else mask

    def seed(self, *numbers: int) -> None:
        """Seed what the device draws (dropout) by these numbers; each share of the rows draws for itself, and ranks
        that share layers draw alike."""
        torch.manual_seed(seed_of(*numbers, self.rank // self.tensor))

    def put(self, batch: Mapping[str, Any]) -> dict[str, Tensor]:
        """The arrays of a micro-batch as tensors on the device.

        Whether it needs a mask is seen here, in host memory, since asking the device would make the host wait for it:
        rows that are whole documents come without `segment_ids`.
        """
        arrays = {name: torch.as_tensor(array) for name, array in batch.items()}
        if not self.explicit_masks and one_document_each(arrays["segment_ids"]):
            del arrays["segment_ids"]
        if self.device.type == "cuda":
            arrays = {name: array.pin_memory() for name, array in arrays.items()}
        return {name: array.to(self.device, non_blocking=True) for name, array in arrays.items()}

    def read(self, *values: Tensor) -> list[float]:
        """The only place where the host waits for the device."""
        return torch.stack([value.detach().reshape(()).double() for value in values]).tolist()  # type: ignore[no-any-return]

    def reduce(self, *values: float) -> list[float]:
        """Sums over all ranks, in float64; ranks that share layers count as one, with the mean of their values."""
        if not dist.is_initialized() or dist.get_world_size() == 1:
            return list(values)
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return (total / self.tensor).tolist()  # type: ignore[no-any-return]


def seed_of(*numbers: int) -> int:
    """A seed of 63 bits that depends on these numbers alone."""
    return int.from_bytes(hashlib.blake2b(repr(numbers).encode(), digest_size=8).digest(), "big") >> 1


def one_document_each(segments: Tensor) -> bool:
    """Whether every row of `segments` [rows, length] is one whole document, without padding."""
    return bool((segments == segments[:, :1]).all()) and bool((segments > 0).all())


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
