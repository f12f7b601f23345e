"""PyTorch/XLA behind the engine's interface: data parallelism on trn1, and on trn2 with the Neuron SDK 2.31.

PyTorch/XLA is AWS's former way (PyTorch 2.9 was its last release); trn1 has no other. Operations are recorded, and
`torch_xla.sync` compiles and runs what was recorded, so everything here keeps the recorded graph the same at each
step: shapes are fixed, the attention mask is always explicit, gradients and AdamW's moments exist from the start,
numbers that change are tensors, and the host reads only what has been computed. There are three graphs: a micro-batch,
compiled once however many a step has, the step after them, and a batch of an evaluation. Between the first two the host
can read the losses and still decide.

Gradients are summed by torch.distributed, never by torch_xla's own collectives, which outside of Neuron do nothing and
say nothing; `prove_all_reduce` tells whether the process group does.

What only Trainium can show, and has not been run: that neuronx-cc accepts the graphs, collectives over NeuronLink and
EFA, stochastic rounding, and every speed. On a CPU the same class is compared with eager PyTorch.
"""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.overrides import TorchFunctionMode

from raytrain_eks.checkpoint.chunk import Chunk, share_out
from raytrain_eks.checkpoint.reader import Reader
from raytrain_eks.checkpoint.region import Region
from raytrain_eks.spec.engine import Xla
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.compile_guard import CompileGuard, shapes_of
from raytrain_eks.train.engines.common import evaluating, seed_of, wants_autocast, weight_groups
from raytrain_eks.train.engines.graph import GraphEngine, moved
from raytrain_eks.train.engines.graph_adamw import GraphAdamW
from raytrain_eks.train.state import MOMENTS, STEP, moment_name, stored_weights, take_weights, weight_name

BUCKET = 50 * 2**20
"""Bytes of gradients that are summed at once; the default of Neuron's own training code."""


def import_torch_xla() -> Any:
    """torch_xla. Raises SpecError where it is not installed.

    Never at the top of a module: it reads its environment once, when imported, so the Ray backend comes first.
    """
    try:
        import torch_xla
    except ModuleNotFoundError as error:
        if error.name != "torch_xla":
            raise
        rule = "needs torch_xla with the torch of its release, which this environment does not have"
        fix = "use the neuron-trn1 image (requirements/neuron-trn1.txt), or another engine"
        raise SpecError([Problem(path="engine.kind", value="xla", rule=rule, fix=fix)]) from None
    return torch_xla


def compilations() -> int:
    """Graphs that torch_xla has compiled in this process."""
    import torch_xla.debug.metrics as metrics

    found = metrics.metric_data("CompileTime")
    return int(found[0]) if found else 0


class XlaEngine(GraphEngine):
    """A replica of the model on one XLA device, NeuronCore or CPU."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int):
        assert isinstance(job.engine, Xla)
        self.xla = torch_xla = import_torch_xla()
        self.rank, self.world = rank, world
        self.device = torch_xla.device()
        self.clip = job.optimizer.clip
        self.rounding = job.engine.stochastic_rounding
        self.autocast = wants_autocast(job) and not self.rounding
        prove_equal(model, world)
        # Before the first graph, since a seeded generator makes another one than an unseeded.
        self.seed(job.seed)
        if self.rounding:
            model = model.to(torch.bfloat16)
        self.model = moved(model, self.device).train()
        self.names = {weight: name for name, weight in self.model.named_parameters()}
        groups = weight_groups(self.model, job.optimizer.weight_decay)
        self.optimizer = GraphAdamW(groups, betas=job.optimizer.betas, eps=job.optimizer.eps)
        self.trained = [weight for group in self.optimizer.param_groups for weight in group["params"]]
        for weight in self.trained:
            weight.grad = torch.zeros_like(weight)
        torch_xla.sync()
        self.guard = CompileGuard(compilations, warmup=job.engine.warmup, new_graph=job.engine.new_graph)

    def seed(self, *numbers: int) -> None:
        """Seed dropout by these numbers; each rank draws for itself."""
        self.xla.manual_seed(seed_of(*numbers, self.rank))

    def forward(self, module: nn.Module, batch: Mapping[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch."""
        with AttentionInBf16() if self.autocast else nullcontext():
            return super().forward(module, batch)

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward of one micro-batch; gradients of ranks are summed in `step`."""
        with self.guard.watch("micro_step", shapes_of(batch)):
            (share,) = inputs(1.0 / trained_tokens, device=self.device)
            loss = self.forward(self.model, batch)
            (loss * share).backward()
            self.xla.sync()
        return loss.detach()

    def step(self, learning_rate: float) -> Tensor:
        """Sum gradients over ranks, clip by their global norm, apply, clear; the norm before clipping. One that is not
        finite is not applied."""
        return self._step(learning_rate, apply=True)

    def skip(self) -> None:
        """Drop the gradients of a step's micro-batches: the graph of a step, told to apply nothing."""
        self._step(0.0, apply=False)

    def _step(self, learning_rate: float, *, apply: bool) -> Tensor:
        with self.guard.watch("step"), torch.no_grad():
            rate, wanted = inputs(learning_rate, float(apply), device=self.device)
            gradients = [weight.grad for weight in self.trained]
            if self.world > 1:
                sum_over_ranks(gradients)
            norm = torch.linalg.vector_norm(
                torch.stack([torch.linalg.vector_norm(gradient.float()) for gradient in gradients])
            )
            if self.clip is not None:
                scale = torch.clamp(self.clip / (norm + 1e-6), max=1.0)
                for gradient in gradients:
                    gradient.mul_(scale.to(gradient.dtype))
            self.optimizer.update(rate, torch.isfinite(norm) & (wanted > 0))
            for gradient in gradients:
                gradient.zero_()
            self.xla.sync()
        return norm

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with self.guard.watch("evaluation", shapes_of(batch)), evaluating(self.model):
            loss = self.forward(self.model, batch)
            self.xla.sync()
        return loss

    def _state(self) -> dict[str, Tensor]:
        state = {weight_name(name): tensor for name, tensor in stored_weights(self.model).items()}
        for weight in self.trained:
            name = self.names[weight]
            state |= {moment_name(moment, name): self.optimizer.state[weight][moment] for moment in MOMENTS}
        return state

    def chunks(self) -> list[Chunk]:
        """This rank's part of the replicated state, in host memory and fp32.

        The parts are cut on stand-ins without memory and only then fetched whole, since a slice taken on the device
        would be one more graph for each tensor.
        """
        self.xla.sync()
        state = self._state()
        stand_ins = [
            Chunk.of(name, torch.empty(tensor.shape, dtype=stored_type(tensor), device="meta"))
            for name, tensor in state.items()
        ]
        mine = []
        steps = self.optimizer.steps.cpu().reshape(())
        for part in share_out([*stand_ins, Chunk.of(STEP, steps)], self.rank, self.world):
            fetched = steps if part.name == STEP else state[part.name].detach().cpu().to(part.dtype)
            if part.flat_start is not None:
                fetched = fetched.reshape(-1)[part.flat_start : part.flat_start + part.tensor.numel()]
            mine.append(Chunk(part.name, part.global_shape, part.dtype, fetched, part.offsets, part.flat_start))
        return mine

    def load(self, reader: Reader) -> None:
        """Take weights and moments of any engine's checkpoint."""
        take_weights(self.model, reader)
        steps = reader.full(STEP)
        with torch.no_grad():
            self.optimizer.steps.copy_(steps.reshape(1))
            moments = {
                moment_name(moment, self.names[weight]): kept
                for weight in self.trained
                for moment, kept in self.optimizer.state[weight].items()
            }
            if steps.item():
                reader.fill((name, Region.all(tuple(kept.shape)), kept) for name, kept in moments.items())
            else:
                for kept in moments.values():
                    kept.copy_(torch.zeros(kept.shape))
        self.xla.sync()

    def full_model(self) -> nn.Module | None:
        """The model in host memory and fp32 on rank 0."""
        return moved(self.model, torch.device("cpu")).float() if self.rank == 0 else None

    def close(self) -> None:
        """Nothing is held beyond the process."""


class AttentionInBf16(TorchFunctionMode):
    """Casts what attention is given to bf16, as autocast does on CPU and CUDA; on XLA it leaves attention out, which
    then refuses queries in fp32 (rotary embeddings make them so) with values in bf16."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function of torch, attention with its first three arguments cast."""
        if function is scaled_dot_product_attention:
            args = (*(argument.to(torch.bfloat16) for argument in args[:3]), *args[3:])
        return function(*args, **(kwargs or {}))


def stored_type(tensor: Tensor) -> torch.dtype:
    """The type of a tensor in a checkpoint: bf16 weights are stored in fp32, as every engine's."""
    return torch.float32 if tensor.dtype == torch.bfloat16 else tensor.dtype


def inputs(*numbers: float, device: torch.device) -> tuple[Tensor, ...]:
    """Numbers as fp32 scalars that are inputs of the graph. They travel as a vector, because torch_xla makes a scalar
    that is exactly 0 or 1 a part of the graph, in a tensor too."""
    return torch.tensor(numbers).to(device).unbind()


class DifferentWeights(RuntimeError):
    """Ranks built models that are not the same."""


def prove_equal(model: nn.Module, world: int) -> None:
    """Compare sums of the model's weights over the ranks, between the hosts. Raises DifferentWeights.

    Ranks only ever exchange gradients, so models that start apart stay apart.
    """
    if world == 1:
        return
    sums = []
    for weight in model.parameters():
        exact = weight.detach().double()
        sums += [exact.sum(), exact.norm()]
    mine = torch.stack(sums)
    least, most = mine.clone(), mine.clone()
    dist.all_reduce(least, dist.ReduceOp.MIN)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    if not torch.equal(least, most):
        raise DifferentWeights("the ranks built different models: weights must come from one seed or one file")


def sum_over_ranks(gradients: list[Tensor]) -> None:
    """Sum gradients over all ranks in place, in buckets of the same type."""
    bucket: list[Tensor] = []
    for gradient in gradients:
        full = sum(each.numel() * each.element_size() for each in bucket) + gradient.numel() * gradient.element_size()
        if bucket and (full > BUCKET or bucket[0].dtype != gradient.dtype):
            _sum(bucket)
            bucket = []
        bucket.append(gradient)
    if bucket:
        _sum(bucket)


def _sum(bucket: list[Tensor]) -> None:
    flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
    dist.all_reduce(flat)
    for gradient, summed in zip(bucket, flat.split([gradient.numel() for gradient in bucket]), strict=True):
        gradient.copy_(summed.view_as(gradient))
