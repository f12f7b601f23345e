"""Collectives of XLA tensors between processes on a CPU, by way of the host and gloo: data really moves.

torch_xla's own collectives do nothing between CPU processes, and say nothing. Only for tests.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future
from torch.futures import Future

from raytrain_eks.train.neuron_backend import NeuronBackend, NeuronConfig


class BridgedConfig(NeuronConfig):
    """The backend of the XLA engine, with the bridge in the place of torch_xla's process group."""

    @property
    def backend_cls(self) -> type[NeuronBackend]:
        """The real one."""
        return NeuronBackend

    @property
    def group(self) -> str:
        """The bridge for XLA tensors."""
        return "cpu:gloo,xla:bridge"

    def prepare(self) -> None:
        """Register the bridge."""
        dist.Backend.register_backend("bridge", Bridge, devices=["xla"])


class Bridge(dist.ProcessGroup):
    """The collectives that the engine and the proof use."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any):
        super().__init__(rank, size)
        self.gloo = dist.ProcessGroupGloo(store, rank, size, timeout)

    def getBackendName(self) -> str:
        """The name that it is registered by."""
        return "bridge"

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Any:
        """Sum on the hosts."""
        hosts = [tensor.detach().cpu() for tensor in tensors]
        self.gloo.allreduce(hosts, options).wait()
        for tensor, host in zip(tensors, hosts, strict=True):
            tensor.copy_(host)
        done: Future[Any] = Future()
        done.set_result(tensors)
        return _create_work_from_future(done)
