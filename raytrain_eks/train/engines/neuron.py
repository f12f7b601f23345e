"""PyTorch's own data parallelism on trn2 and trn3: the torch engine on the device `neuron` of native TorchNeuron.

TorchNeuron (Neuron SDK 2.33, a public beta, Python 3.12 or newer) registers the device `neuron`, a process group
backend of that name and a compiler for `torch.compile`. It does not run on trn1: the Ray backend refuses that with the
reason (`neuron_environment.problems`), and trn1 trains with `engine: {kind: xla}`.

Tests run this class on a CPU in place of the device, with a stand-in for the compiler. What only Trainium can show, and
has not been run: which operators TorchNeuron has and which fall back, DDP over NeuronLink and EFA, bf16, the compile
cache, and whether it wants NEURON_RT_VISIBLE_CORES as it is given, each process its own cores.
"""

import os

import torch
from torch import Tensor, nn

from raytrain_eks.spec.engine import Torch
from raytrain_eks.spec.job import Job
from raytrain_eks.train.compile_guard import CompileGuard, shapes_of
from raytrain_eks.train.engines.common import device_of_worker
from raytrain_eks.train.engines.graph import GraphEngine, moved
from raytrain_eks.train.engines.torch import TorchEngine

COMPILER = "neuron"
"""TorchNeuron's name among the backends of torch.compile."""


def graphs() -> int:
    """Graphs that torch.compile has made in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


class NeuronEngine(GraphEngine, TorchEngine):
    """DDP around the model on a NeuronCore, compiled where the job says so; shapes are static."""

    def __init__(self, job: Job, model: nn.Module, *, rank: int, world: int):
        local_rank = int(os.environ.get("LOCAL_RANK", "0"))
        model = moved(model, device_of_worker(local_rank))
        if isinstance(job.engine, Torch) and job.engine.compile:
            # In place, under DDP: gradients still wait for the last micro-batch, and weights keep their names.
            model.compile(backend=COMPILER, dynamic=False)
        super().__init__(job, model, rank=rank, world=world, local_rank=local_rank)
        self.guard = CompileGuard(graphs)

    def micro_step(self, batch: dict[str, Tensor], trained_tokens: int, *, last: bool) -> Tensor:
        """Forward and backward of one micro-batch. Raises NewGraph when its shape is new after the warm-up."""
        with self.guard.watch("micro_step", shapes_of(batch)):
            return super().micro_step(batch, trained_tokens, last=last)

    def evaluate(self, batch: dict[str, Tensor]) -> Tensor:
        """The summed loss of one micro-batch, without gradients."""
        with self.guard.watch("evaluation", shapes_of(batch)):
            return super().evaluate(batch)

    def full_model(self) -> nn.Module | None:
        """The model in host memory on rank 0, not compiled: every length of its samples would be a graph."""
        if self.rank != 0:
            return None
        self.model._compiled_call_impl = None
        return moved(self.model, torch.device("cpu"))
