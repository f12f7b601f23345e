"""PyTorch's own parallelism: DDP, FSDP2, tensor parallelism by DTensor, and the latter beside either of the former.

The same class runs on CPU with gloo and on GPUs with NCCL. Under DDP every rank holds the whole state and gradients are
averaged at a step's last micro-batch. Under FSDP2 they are summed into shards at each micro-batch, since gradients of
the whole model would not fit beside a model that has to be sharded.
"""

from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from raytrain_eks.checkpoint.chunk import Chunk
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.plan.mesh import mesh_of
from raytrain_eks.spec.engine import Torch
from raytrain_eks.spec.job import Job
from raytrain_eks.train.engines.blocks import (
    blocks_of,
    checkpoint_activations,
    compile_blocks,
    plain,
    set_attention,
    widen_outside,
)
from raytrain_eks.train.engines.common import TensorEngine, device_of_worker, evaluating, wants_autocast
from raytrain_eks.train.engines.norm import global_norm
from raytrain_eks.train.engines.shards import DATA, TENSOR, Shard, shards_of, squared_norm, sum_gradients
from raytrain_eks.train.engines.tensor_parallel import split_layers
from raytrain_eks.train.engines.whole import Skeleton
from raytrain_eks.train.proof import prove_group
from raytrain_eks.train.state import persistent_buffers, state_chunks, take_state


class TorchEngine(TensorEngine):
    """A model, or this rank's part of one, and its AdamW."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int, local_rank: int = 0):
        config = job.engine if isinstance(job.engine, Torch) else Torch()
        self.rank, self.world, self.mesh = rank, world, mesh_of(job, world)
        self.tensor = self.mesh.tensor
        self.device = device_of_worker(local_rank)
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        self.flat_rows = set_attention(job, model, self.device)
        self.sharded = config.fsdp and self.mesh.data > 1
        self.autocast = wants_autocast(job) and not self.sharded
        self.clip = job.optimizer.clip
        split = self.sharded or self.tensor > 1
        self.skeleton = Skeleton(model) if split and rank == 0 else None
        devices = self._device_mesh() if split else None
        self.groups = {name: devices.get_group(name) for name in (DATA, TENSOR)} if devices is not None else {}
        self.partial: list[nn.Parameter] = []
        if self.tensor > 1 and devices is not None:
            self.partial = split_layers(model, devices[TENSOR])
        # FSDP takes a model to the device block by block; as a whole it might not fit there.
        self.model = (model if self.sharded else model.float().to(self.device)).train()
        blocks = blocks_of(self.model)
        checkpoint_activations(blocks, config.activation_checkpointing)
        if config.compile and self.device.type in ("cpu", "cuda"):
            compile_blocks(blocks)
        self.module = self._distributed(job, config, blocks, devices)
        self.shards = shards_of(self.model, rank=rank, mesh=self.mesh)
        self.trained = [shard for shard in self.shards if shard.part.trained and shard.part.region.numel]
        self.parts = [shard.part for shard in self.shards]
        self.buffers = persistent_buffers(self.model)
        self.fused = self.device.type in ("cpu", "cuda")
        self.optimizer = self._adamw(job)
        self.updates = torch.zeros((), device=self.device)

    def _device_mesh(self) -> DeviceMesh:
        made = init_device_mesh(self.device.type, (self.mesh.data, self.mesh.tensor), mesh_dim_names=(DATA, TENSOR))
        for name in (DATA, TENSOR):
            prove_group(self.device, made.get_group(name))
        return made

    def _distributed(self, job: Job, config: Torch, blocks: list[nn.Module], devices: DeviceMesh | None) -> nn.Module:
        if self.sharded and devices is not None:
            policy = MixedPrecisionPolicy()
            if wants_autocast(job):
                policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
            for block in blocks:
                fully_shard(block.float(), mesh=devices[DATA], mp_policy=policy, reshard_after_forward=config.reshard)
            widen_outside(self.model, blocks)
            # What is outside of blocks is needed at the end of the forward and the start of the backward pass.
            return fully_shard(self.model, mesh=devices[DATA], mp_policy=policy, reshard_after_forward=False)
        if self.tensor > 1 or self.world == 1:
            return self.model
        device_ids = [self.device] if self.device.type == "cuda" else None
        return DistributedDataParallel(
            self.model, device_ids=device_ids, gradient_as_bucket_view=True, forward_sync_buffers=False
        )

    def _adamw(self, job: Job) -> torch.optim.AdamW:
        """AdamW over the local tensors: matrices decay, vectors (biases and norms) do not."""
        decay = [shard.local for shard in self.trained if shard.weight.ndim >= 2]
        rest = [shard.local for shard in self.trained if shard.weight.ndim < 2]
        groups: list[dict[str, Any]] = [
            {"params": decay, "weight_decay": job.optimizer.weight_decay},
            {"params": rest, "weight_decay": 0.0},
        ]
        return torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=job.optimizer.learning_rate,
            betas=job.optimizer.betas,
            eps=job.optimizer.eps,
            fused=self.fused,
        )

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward; DDP and FSDP average over data ranks, so each one's part is scaled up by their
        number."""
        averaged = self.mesh.data if self.module is not self.model or self.sharded else 1
        alone = not last and isinstance(self.module, DistributedDataParallel)
        with self.module.no_sync() if alone else nullcontext():  # type: ignore[operator]
            loss = self.forward(self.module, batch)
            (loss * (averaged / trained_tokens)).backward()
        return loss.detach()

    def step(self, learning_rate: float) -> Tensor:
        """Clip by the global norm, apply, clear; the norm before clipping. One that is not finite is not applied."""
        norm = self._gather_gradients()
        weights = [shard.local for shard in self.trained]
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(weights, self.clip, norm)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        refused = (~torch.isfinite(norm)).float()
        if self.fused:
            # Fused AdamW looks at this on the device, so the host need not wait to know.
            self.optimizer.found_inf = refused  # type: ignore[attr-defined]
            self.optimizer.step()
        elif not refused.item():
            self.optimizer.step()
        self.updates += 1 - refused
        self.skip()
        return norm

    def skip(self) -> None:
        """Drop the gradients."""
        for shard in self.shards:
            shard.weight.grad = shard.local.grad = None

    def _gather_gradients(self) -> Tensor:
        """Give local tensors the sums of their gradients; the global norm."""
        for shard in self.shards:
            shard.take_gradient()
        if not self.sharded and self.tensor == 1:
            return global_norm([shard.local.grad for shard in self.trained if shard.local.grad is not None])
        if self.partial:
            of_heads = {id(weight) for weight in self.partial}
            self._sum([shard for shard in self.trained if id(shard.weight) in of_heads], TENSOR)
        if not self.sharded and self.mesh.data > 1:
            self._sum(self.trained, DATA)
        square = squared_norm(self.trained)
        total = square if square is not None else torch.zeros((), device=self.device)
        dist.all_reduce(total)
        return total.sqrt()

    def _sum(self, shards: list[Shard], dimension: str) -> None:
        sum_gradients([shard.local.grad for shard in shards if shard.local.grad is not None], self.groups[dimension])

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with evaluating(self.model):
            return self.forward(self.model, batch)

    def chunks(self) -> list[Chunk]:
        """This rank's part of the state; what several ranks hold alike is shared out between them by size."""
        return state_chunks(
            self.parts, self.buffers, self.optimizer, updates=int(self.updates), rank=self.rank, world=self.world
        )

    def load(self, reader: Reader) -> None:
        """Take weights and moments of any engine's checkpoint."""
        self._reshard()
        names = {part.name for part in self.parts}
        self.updates.fill_(take_state(self.parts, self.buffers, self.optimizer, reader, names=names))

    def _reshard(self) -> None:
        """Free gathered layers: after an evaluation the outermost ones are still there."""
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def full_model(self) -> nn.Module | None:
        """The whole model on rank 0; where it is split, a copy in host memory. Raises Hollow."""
        if self.skeleton is None and not self.groups:
            return plain(self.model) if self.rank == 0 else None
        self._reshard()
        gathered = {}
        for shard in self.shards:
            weight = shard.weight.detach()
            whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
            if self.rank == 0:
                # A weight that is whole here stays the optimizer's own.
                gathered[shard.name] = whole.to("cpu", copy=True)
        if self.skeleton is None:
            return None
        return self.skeleton.filled(gathered, {name: tensor.cpu() for name, tensor in self.buffers.items()})

    def close(self) -> None:
        """Nothing is held beyond the process."""
