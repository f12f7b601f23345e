"""Engines: what the loop needs from a backend, and nothing else.

One optimizer step is: `micro_step` as often as the batch has micro-batches, `step`, `read`. An engine knows nothing of
data order, schedules, metrics, files or faults.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor
from torch.nn import Module

if TYPE_CHECKING:
    from raytrain_eks.checkpoint.chunk import Chunk
    from raytrain_eks.checkpoint.reader import Reader
    from raytrain_eks.spec.job import Job

Batch = Mapping[str, Tensor]
"""`input_ids`, `labels`, `position_ids`, `segment_ids`: int64 [rows, length], on the engine's device."""


class Engine(Protocol):
    """What the loop needs from a backend."""

    def seed(self, *numbers: int) -> None:
        """Seed what the device draws (dropout) by these numbers, and by the share of the rows that this rank has."""

    def put(self, batch: Mapping[str, Any]) -> Batch:
        """The arrays of a micro-batch as tensors on the device."""

    def micro_step(self, batch: Batch, trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward of one micro-batch; the summed loss over its trained tokens, on the device.

        `trained_tokens` is that of the whole global batch: gradients add up to the gradient of the mean over it.
        `last`: whether this is the step's last micro-batch, when ranks exchange gradients.
        """

    def step(self, learning_rate: float) -> Tensor:
        """Clip, apply at this rate, clear; the global gradient norm before clipping, on the device."""

    def skip(self) -> None:
        """Drop the gradients of a step's micro-batches instead of applying them."""

    def evaluate(self, batch: Batch) -> Tensor:
        """The summed loss over the trained tokens of one micro-batch, without gradients, on the device."""

    def read(self, *values: Tensor) -> list[float]:
        """The only place where the host waits for the device."""

    def reduce(self, *values: float) -> list[float]:
        """Sums over all ranks, in float64; ranks that share layers count as one, with the mean of their values."""

    def chunks(self) -> "list[Chunk]":
        """This rank's part of the state: parameters and optimizer state under logical names."""

    def load(self, reader: "Reader") -> None:
        """Take the state of a checkpoint that any engine wrote at any world size."""

    def full_model(self) -> Module | None:
        """The whole model on rank 0, for export; None on the others. Every rank must call it."""

    def close(self) -> None:
        """Give back what the engine holds."""


def build(job: "Job", model: Any, *, rank: int, world: int, micro: int, accumulation: int) -> Engine:
    """The engine of a job around a freshly built model (the same one on every rank), told what the task trains."""
    engine = _chosen(job, model, rank=rank, world=world, micro=micro, accumulation=accumulation)
    engine.causal = job.task != "mlm"
    engine.additive_masks = getattr(model.config, "_attn_implementation", None) == "eager"
    return engine


def _chosen(job: "Job", model: Module, *, rank: int, world: int, micro: int, accumulation: int) -> Any:
    if job.engine.kind == "deepspeed":
        from raytrain_eks.train.engines.deepspeed import DeepSpeedEngine

        return DeepSpeedEngine(job, model, rank=rank, world=world, micro=micro, accumulation=accumulation)
    if job.engine.kind == "xla":
        from raytrain_eks.train.engines.xla import XlaEngine

        return XlaEngine(job, model, rank=rank, world=world)
    from raytrain_eks.train.engines.common import native_device

    if native_device() is not None:
        from raytrain_eks.train.engines.neuron import NeuronEngine

        return NeuronEngine(job, model, rank=rank, world=world)
    from raytrain_eks.train.engines.torch import TorchEngine

    return TorchEngine(job, model, rank=rank, world=world, local_rank=int(os.environ.get("LOCAL_RANK", "0")))
