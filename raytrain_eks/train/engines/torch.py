"""PyTorch's own data parallelism (DDP): every rank holds the whole state.

Gradients are averaged at the last micro-batch of a step. The same class runs on CPU with gloo and on GPUs with NCCL.
"""

from contextlib import nullcontext

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from raytrain_eks.checkpoint.chunk import Chunk, share_out
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.spec.job import Job
from raytrain_eks.train.engines.common import TensorEngine, device_of_worker, evaluating, wants_autocast, weight_groups
from raytrain_eks.train.state import take_adamw, take_weights, whole_state


class TorchEngine(TensorEngine):
    """DDP around the model; AdamW on every rank."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int, local_rank: int = 0):
        self.rank, self.world = rank, world
        self.device = device_of_worker(local_rank)
        self.autocast = wants_autocast(job)
        self.clip = job.optimizer.clip
        self.model = model.to(self.device).train()
        self.names = {weight: name for name, weight in self.model.named_parameters()}
        self.optimizer = torch.optim.AdamW(
            weight_groups(self.model, job.optimizer.weight_decay),
            lr=job.optimizer.learning_rate,
            betas=job.optimizer.betas,
            eps=job.optimizer.eps,
            fused=self.device.type in ("cpu", "cuda"),
        )
        self.module: nn.Module = self.model
        if world > 1:
            devices = [self.device] if self.device.type == "cuda" else None
            self.module = DistributedDataParallel(
                self.model, device_ids=devices, gradient_as_bucket_view=True, forward_sync_buffers=False
            )

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward; DDP averages over ranks, so each rank's part is scaled up by their number."""
        alone = not last and isinstance(self.module, DistributedDataParallel)
        with self.module.no_sync() if alone else nullcontext():  # type: ignore[operator]
            loss = self.forward(self.module, batch)
            (loss * (self.world / trained_tokens)).backward()
        return loss.detach()

    def step(self, learning_rate: float) -> Tensor:
        """Clip by the global norm, apply, clear; the norm before clipping."""
        weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        norm = nn.utils.clip_grad_norm_(weights, self.clip if self.clip is not None else float("inf"))
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm.detach()

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with evaluating(self.model):
            return self.forward(self.model, batch)

    def chunks(self) -> list[Chunk]:
        """This rank's part of the replicated state: the ranks share out the tensors by size."""
        return share_out(whole_state(self.model, self.optimizer, self.names), self.rank, self.world)

    def load(self, reader: Reader) -> None:
        """Take weights and moments of any engine's checkpoint."""
        take_weights(self.model, reader)
        take_adamw(self.optimizer, self.names, reader)

    def full_model(self) -> nn.Module | None:
        """The model itself on rank 0."""
        return self.model if self.rank == 0 else None

    def close(self) -> None:
        """Nothing is held beyond the process."""
