"""DeepSpeed's ZeRO 0 to 2 behind the engine's interface.

The optimizer is PyTorch's AdamW, given by us: DeepSpeed's own would compile an operator for minutes on a CPU, and the
numbers would not be those of the torch engine. The learning rate is 0 at construction, so that nothing DeepSpeed does
with the optimizer before the first step can move a weight; every step sets its own.

State leaves as flat ranges of logical tensors: a ZeRO partition is a slice of all parameters laid end to end, so a rank
owns a 1-D range of each parameter that its slice touches. A checkpoint is thus independent of stage and world size.
"""

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from raytrain_eks.checkpoint.chunk import Chunk, share_out
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.spec.engine import DeepSpeed
from raytrain_eks.spec.job import Job
from raytrain_eks.train.engines.common import TensorEngine, device_of_worker, evaluating, wants_autocast, weight_groups
from raytrain_eks.train.state import (
    MOMENTS,
    STEP,
    moment_name,
    stored_weights,
    take_adamw,
    take_weights,
    weight_name,
    whole,
    whole_state,
)


def config(job: Job, *, world: int, micro: int, accumulation: int) -> dict[str, Any]:
    """DeepSpeed's JSON for a job, complete: nothing in it is `auto`.

    ZeRO-0 leaves clipping to us, because DeepSpeed does not tell the norm there.
    """
    assert isinstance(job.engine, DeepSpeed)
    stage = job.engine.zero
    made: dict[str, Any] = {
        "train_batch_size": micro * accumulation * world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": (job.optimizer.clip or 0.0) if stage else 0.0,
        "zero_optimization": {"stage": stage},
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }
    if stage:
        made["zero_optimization"] |= {"overlap_comm": False, "contiguous_gradients": True}
    if job.engine.offload != "none":
        made["zero_optimization"]["offload_optimizer"] = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    if wants_autocast(job):
        made["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
        made["communication_data_type"] = "fp32"
    return made


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
    """A DeepSpeed engine of stage 0, 1 or 2."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int, micro: int, accumulation: int):
        assert isinstance(job.engine, DeepSpeed)
        deepspeed = import_deepspeed()
        self.rank, self.world, self.stage = rank, world, job.engine.zero
        self.device = device_of_worker(int(os.environ.get("LOCAL_RANK", "0")))
        self.autocast = wants_autocast(job)
        self.clip = job.optimizer.clip
        self.model = model.to(self.device).train()
        self.names = {weight: name for name, weight in model.named_parameters()}
        adamw = torch.optim.AdamW(
            weight_groups(model, job.optimizer.weight_decay),
            lr=0.0,
            betas=job.optimizer.betas,
            eps=job.optimizer.eps,
            fused=True,
        )
        deepspeed.init_distributed(dist_backend="nccl" if self.device.type == "cuda" else "gloo")
        self.engine, *_ = deepspeed.initialize(
            model=model,
            optimizer=adamw,
            config=config(job, world=world, micro=micro, accumulation=accumulation),
            dist_init_required=False,
        )
        self.adamw = adamw

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward; DeepSpeed averages over ranks, so each rank's part is scaled up by their number."""
        self.engine.set_gradient_accumulation_boundary(last)
        loss = self.forward(self.engine, batch)
        self.engine.backward(loss * (self.world / trained_tokens), scale_wrt_gas=False)
        if not last:
            self.engine.step()
        return loss.detach()

    def step(self, learning_rate: float) -> Tensor:
        """Clip, apply, clear; the global norm before clipping."""
        for group in self.engine.optimizer.param_groups:
            group["lr"] = learning_rate
        if self.stage:
            self.engine.step()
            return torch.as_tensor(self.engine.get_global_grad_norm(), dtype=torch.float64, device=self.device)
        limit = self.clip if self.clip is not None else float("inf")
        norm = nn.utils.clip_grad_norm_(list(self.names), limit)
        self.engine.step()
        return norm.detach()

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with evaluating(self.model):
            return self.forward(self.model, batch)

    def chunks(self) -> list[Chunk]:
        """This rank's part of the state: its partition as flat ranges, and a share of what every rank holds."""
        if not self.stage:
            return share_out(whole_state(self.model, self.adamw, self.names), self.rank, self.world)
        chunks = list(self._partition())
        partitioned = {weight_name(name) for name in self.names.values()}
        rest = [
            whole(weight_name(name), tensor)
            for name, tensor in stored_weights(self.model).items()
            if weight_name(name) not in partitioned
        ]
        steps = max((float(state["step"]) for state in self.adamw.state.values() if "step" in state), default=0.0)
        return chunks + share_out([*rest, whole(STEP, torch.tensor(steps))], self.rank, self.world)

    def _fragments(self) -> Iterator[tuple[str, nn.Parameter, Tensor, int, int, int]]:
        """For each parameter that this rank's partition touches: its name, the parameter, the flat fp32 partition,
        where the range starts in the partition, where in the parameter, and its length."""
        partitions = self.engine.optimizer.single_partition_of_fp32_groups
        for weight, name in self.names.items():
            mapping = getattr(weight, "_hp_mapping", None)
            if mapping is not None:
                inside, outside = mapping.hp_fragment_address, mapping.lp_fragment_address
                flat = partitions[mapping.param_group_index]
                yield name, weight, flat, inside.start, outside.start, inside.numel

    def _partition(self) -> Iterator[Chunk]:
        for name, weight, flat, start, offset, length in self._fragments():
            shape = tuple(weight.shape)
            state = self.adamw.state.get(flat, {})
            sources = {weight_name(name): flat}
            sources |= {moment_name(moment, name): state[moment] for moment in MOMENTS if moment in state}
            for logical, tensor in sources.items():
                part = tensor.detach().narrow(0, start, length)
                yield Chunk(logical, shape, part.dtype, part, flat_start=offset)

    def load(self, reader: Reader) -> None:
        """Take weights and moments of any engine's checkpoint."""
        take_weights(self.model, reader)
        if not self.stage:
            take_adamw(self.adamw, self.names, reader)
            return
        steps = reader.full(STEP).float()
        with torch.no_grad():
            for name, _, flat, start, offset, length in self._fragments():
                flat.narrow(0, start, length).copy_(reader.flat(weight_name(name), offset, length))
                if float(steps) == 0:
                    continue
                state = self.adamw.state[flat]
                state.setdefault("step", steps.clone().to(flat.device))
                for moment in MOMENTS:
                    whole_moment = state.setdefault(moment, torch.zeros_like(flat))
                    part = reader.flat(moment_name(moment, name), offset, length)
                    whole_moment.narrow(0, start, length).copy_(part)

    def full_model(self) -> nn.Module | None:
        """The model itself on rank 0: up to stage 2 every rank holds all weights."""
        return self.model if self.rank == 0 else None

    def close(self) -> None:
        """Take DeepSpeed's hooks off the model."""
        self.engine.destroy()
