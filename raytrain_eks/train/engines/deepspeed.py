"""DeepSpeed's ZeRO 0 to 3, and AutoTP beside 1 and 2, behind the engine's interface.

The optimizer is PyTorch's AdamW, given by us, also where its state is offloaded: DeepSpeed's own would compile an
operator for minutes on a CPU, and the numbers would not be those of the torch engine. The learning rate is 0 at
construction, so that nothing DeepSpeed does with the optimizer before the first step can move a weight; every step sets
its own.
"""

import json
import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from raytrain_eks.checkpoint.chunk import Chunk
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.checkpoint.region import Region
from raytrain_eks.plan.deepspeed import config
from raytrain_eks.plan.mesh import mesh_of
from raytrain_eks.spec.engine import DeepSpeed
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.engines.auto_tp import boxes_of, whole_of
from raytrain_eks.train.engines.blocks import blocks_of, checkpoint_activations, plain, set_attention
from raytrain_eks.train.engines.common import TensorEngine, device_of_worker, evaluating, wants_autocast, weight_groups
from raytrain_eks.train.engines.norm import global_norm
from raytrain_eks.train.engines.tensor_parallel import check_heads
from raytrain_eks.train.engines.whole import Skeleton
from raytrain_eks.train.engines.zero import exact_norm, parts_of, refusing, take_partitions
from raytrain_eks.train.state import persistent_buffers, state_chunks, take_state, weight_name


def own_settings(engine: DeepSpeed) -> dict[str, Any]:
    """The settings that the job's author wrote, in place or in a file. Raises SpecError when the file is no JSON."""
    given = engine.config
    if not isinstance(given, str):
        return given or {}
    try:
        with open(given, encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        rule, fix = f"cannot be read: {error.strerror}", "give a path from where the job runs, or the settings in place"
        raise SpecError([Problem(path="engine.config", value=given, rule=rule, fix=fix)]) from None
    except ValueError as error:
        raise SpecError([Problem(path="engine.config", value=given, rule=f"is no JSON: {error}")]) from None
    if not isinstance(found, dict):
        raise SpecError([Problem(path="engine.config", value=given, rule="holds no mapping of settings")])
    return found


def import_deepspeed() -> Any:
    """DeepSpeed, set up for the devices here, with its compiled operators kept between runs.

    On a CPU its shared-memory all-reduce is left out: it only serves inference, and compiling it would cost the first
    run one to two minutes.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    os.environ.setdefault("TORCH_EXTENSIONS_DIR", os.path.join(cache, "raytrain-eks", "torch_extensions"))
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    import deepspeed

    if not torch.cuda.is_available():
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    return deepspeed


class DeepSpeedEngine(TensorEngine):
    """A DeepSpeed engine of any stage."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int, micro: int, accumulation: int):
        assert isinstance(job.engine, DeepSpeed)
        self.rank, self.world, self.mesh = rank, world, mesh_of(job, world)
        self.tensor = self.mesh.tensor
        self.device = device_of_worker(int(os.environ.get("LOCAL_RANK", "0")))
        self.config = config(
            job,
            world=self.mesh.data,
            micro=micro,
            accumulation=accumulation,
            cuda=self.device.type == "cuda",
            own=own_settings(job.engine),
        )
        self.stage: int = self.config["zero_optimization"]["stage"]
        self.deepspeed = import_deepspeed()
        self.autocast = wants_autocast(job)
        self.clip = job.optimizer.clip
        self.flat_rows = set_attention(job, model, self.device)
        split = self.stage == 3 or self.tensor > 1
        self.skeleton = Skeleton(model) if split and rank == 0 else None
        # Stage 3 moves to the device what this rank keeps; the whole model need not fit there.
        self.model = (model if self.stage == 3 else model.to(self.device)).train()
        checkpoint_activations(blocks_of(self.model), job.engine.activation_checkpointing)
        self.names = {weight: name for name, weight in model.named_parameters()}
        self.adamw = torch.optim.AdamW(
            weight_groups(model, job.optimizer.weight_decay),
            lr=0.0,
            betas=job.optimizer.betas,
            eps=job.optimizer.eps,
            fused=True,
        )
        self.deepspeed.init_distributed(dist_backend="nccl" if self.device.type == "cuda" else "gloo")
        before = {name: weight.detach() for weight, name in self.names.items()} if self.tensor > 1 else {}
        if before:
            check_heads(model, self.tensor)
        self.engine, *_ = self.deepspeed.initialize(
            model=model, optimizer=self.adamw, config=self.config, dist_init_required=False
        )
        if self.stage in (1, 2) and self.tensor == 1 and self.device.type == "cpu" and not self._offloads:
            self.engine.optimizer.scaled_global_norm = exact_norm(self.engine.optimizer)
        # Stage 3 has taken a step on zero gradients to make the moments; it must not count.
        self.adamw.state.clear()
        self.updates = torch.zeros((), device=self.device)
        self.boxes = boxes_of(model, before, self._tensor_group) if before else {}
        parts = parts_of(
            self.engine.optimizer, self.names, self.boxes, stage=self.stage, rank=rank, world=self.mesh.world
        )
        self.parts = list(parts)
        self.buffers = persistent_buffers(self.model)

    @property
    def _offloads(self) -> bool:
        return bool(getattr(self.engine.optimizer, "cpu_offload", False))

    @property
    def _tensor_group(self) -> dist.ProcessGroup:
        """The ranks that AutoTP has split layers over."""
        return self.deepspeed.utils.groups.get_tensor_model_parallel_group()  # type: ignore[no-any-return]

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward; DeepSpeed averages over data ranks, so each one's part is scaled up."""
        self.engine.set_gradient_accumulation_boundary(last)
        loss = self.forward(self.engine, batch)
        self.engine.backward(loss * (self.mesh.data / trained_tokens), scale_wrt_gas=False)
        if not last:
            self.engine.step()
        return loss.detach()

    def step(self, learning_rate: float) -> Tensor:
        """Clip, apply, clear; the global norm before clipping. One that is not finite is not applied."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.stage:
            self.engine.step()
            self.updates += not self.engine.optimizer.overflow
            return torch.as_tensor(self.engine.get_global_grad_norm(), dtype=torch.float64, device=self.device)
        norm = global_norm([weight.grad for weight in self.names if weight.grad is not None])
        if self.clip is not None:
            nn.utils.clip_grads_with_norm_(list(self.names), self.clip, norm)
        self._step_of_zero_0(~torch.isfinite(norm))
        return norm

    def _step_of_zero_0(self, refused: Tensor) -> None:
        # Fused AdamW looks at this on the device, so the host need not wait to know.
        self.adamw.found_inf = refused.float()  # type: ignore[attr-defined]
        self.engine.step()
        self.updates += 1 - self.adamw.found_inf  # type: ignore[attr-defined]

    def skip(self) -> None:
        """Drop the gradients; DeepSpeed counts the step as one that overflowed."""
        if not self.stage:
            self._step_of_zero_0(torch.ones((), dtype=torch.bool, device=self.device))
            return
        with refusing(self.engine.optimizer, self.stage):
            self.engine.step()

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with evaluating(self.model):
            return self.forward(self.model, batch)

    def chunks(self) -> list[Chunk]:
        """This rank's part of the state: its partitions as flat ranges, and a share of what every rank holds."""
        return state_chunks(
            self.parts, self.buffers, self.adamw, updates=int(self.updates), rank=self.rank, world=self.world
        )

    def load(self, reader: Reader) -> None:
        """Take weights and moments of any engine's checkpoint."""
        if self.stage in (1, 2):
            reader.fill(
                (weight_name(name), self.boxes.get(name, Region.all(tuple(weight.shape))), weight.detach())
                for weight, name in self.names.items()
                if weight.requires_grad
            )
        names = set(self.names.values())
        self.updates.fill_(take_state(self.parts, self.buffers, self.adamw, reader, names=names))
        if self.stage == 3:
            take_partitions(self.engine.optimizer, self.names)

    def full_model(self) -> nn.Module | None:
        """The whole model on rank 0; where it is split a copy in host memory, gathered weight by weight. Raises
        Hollow."""
        if self.stage != 3 and self.tensor == 1:
            # Every rank holds all weights.
            return plain(self.model) if self.rank == 0 else None
        gathered = {}
        for weight, name in self.names.items():
            with self.deepspeed.zero.GatheredParameters([weight], enabled=self.stage == 3):
                whole = weight.detach()
                if self.tensor > 1:
                    whole = whole_of(whole, self.boxes[name], self._tensor_group)
                if self.rank == 0:
                    gathered[name] = whole.to("cpu", copy=True)
        if self.skeleton is None:
            return None
        return self.skeleton.filled(gathered, {name: tensor.cpu() for name, tensor in self.buffers.items()})

    def close(self) -> None:
        """Take DeepSpeed's hooks off the model."""
        self.engine.destroy()
