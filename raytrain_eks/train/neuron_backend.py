"""The Ray Train backend of Trainium: places are looked at, the environment is made, the process group is joined.

Ray's own TorchXLAConfig is not used. It shows each worker only its own cores where torch_xla wants the node's, gives
each process a run id of its own, leaves NEURON_RT_ROOT_COMM_ID out, writes sizes as `1.0`, forces EFA where there is
none and kills processes by name. Nor is `ray.train.torch.get_device()`, which knows no Neuron device and answers cpu.

Every group has gloo for tensors of the host beside the device's own backend, so ranks can talk before and without it.
"""

import os
import sys
import uuid
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import ray
from ray.train.backend import Backend
from ray.train.torch import TorchConfig

from raytrain_eks.spec.engine import Xla
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.neuron_environment import Place, Runtime, settings, tuning
from raytrain_eks.train.neuron_place import free_ports, look

GROUPS: dict[Runtime, str] = {"xla": "cpu:gloo,xla:xla", "neuron": "cpu:gloo,neuron:neuron"}
COMPILING = 7200
"""Seconds: neuronx-cc was reported to take over 45 minutes for a graph (aws-neuron/aws-neuron-sdk#646), and ranks that
come to the first collective before the others must not give up (#1369)."""
EXTRACT = {"NEURON_PARALLEL_COMPILE": "1", "NEURON_EXTRACT_GRAPHS_ONLY": "1", "NEURON_FALL_BACK_TO_NULL_NEFF": "1"}
"""Graphs are written down and not run; whatever a step returns is meaningless."""


@dataclass
class NeuronConfig(TorchConfig):
    """How the workers of a Trainium job find each other."""

    runtime: Runtime = "xla"
    defaults: dict[str, str] = field(default_factory=dict)
    """Environment variables where nobody has set something else."""
    extract: bool = False
    """Write graphs down for the compiler instead of running them."""

    @property
    def backend_cls(self) -> type["NeuronBackend"]:
        """What Ray Train calls."""
        return NeuronBackend

    @property
    def group(self) -> str:
        """The process group's backends, by kind of device."""
        return GROUPS[self.runtime]

    def prepare(self) -> None:
        """Import what registers the device and its backend; runs on every worker, after its environment is set."""
        refuse_placeholder()
        if self.runtime == "neuron":
            import torch_neuronx  # noqa: F401
        else:
            import torch_xla.distributed.xla_backend  # noqa: F401


def config_for(job: Job, resources: dict[str, float], *, cache: str, timeout: int) -> NeuronConfig | None:
    """The backend of a job whose worker has these resources; None where PyTorch's own is right.

    `cache` is the folder or s3:// URL of the compile cache; `timeout` of a collective is in seconds, and is raised to
    the time that ranks may wait for one that still compiles.
    """
    timeout = max(timeout, COMPILING)
    if isinstance(job.engine, Xla):
        defaults = tuning("xla", cache=cache, stochastic_rounding=job.engine.stochastic_rounding)
        if not resources.get("neuron_cores"):
            defaults["PJRT_DEVICE"] = "CPU"
        return NeuronConfig(runtime="xla", timeout_s=timeout, defaults=defaults)
    if resources.get("neuron_cores"):
        return NeuronConfig(runtime="neuron", timeout_s=timeout, defaults=tuning("neuron", cache=cache))
    return None


class NeuronBackend(Backend):
    """Sets up the workers of a Trainium job, each time the worker group starts."""

    share_cuda_visible_devices = False

    def on_start(self, worker_group: Any, backend_config: NeuronConfig) -> None:
        """Look at the places, set the environments, join the process group. Raises SpecError when places do not fit."""
        places: list[Place] = worker_group.execute(_look)
        address, ports = worker_group.execute_single(0, _rendezvous)
        made = settings(
            places,
            address=address,
            ports=ports,
            run_id=uuid.uuid4().hex,
            runtime=backend_config.runtime,
            defaults=backend_config.defaults | (EXTRACT if backend_config.extract else {}),
        )
        asked = [worker_group.execute_single_async(rank, take, **asdict(one)) for rank, one in enumerate(made)]
        ray.get(asked)
        worker_group.execute(join, backend_config)

    def on_shutdown(self, worker_group: Any, backend_config: NeuronConfig) -> None:
        """Leave the process group; processes end with their workers, and none is killed by name."""
        worker_group.execute(_leave)


def _look() -> Place:
    context = ray.train.get_context()
    address = ray.util.get_node_ip_address()
    return look(context.get_world_rank(), context.get_node_rank(), context.get_local_rank(), address)


def _rendezvous() -> tuple[str, tuple[int, int]]:
    first, second = free_ports(2)
    return ray.util.get_node_ip_address(), (first, second)


def take(fixed: dict[str, str], defaults: dict[str, str]) -> None:
    """Make the environment of this process. Raises RuntimeError when it comes too late."""
    early = sorted({"torch_xla", "torch_neuronx", "libneuronxla"} & sys.modules.keys())
    if early:
        raise RuntimeError(
            f"{', '.join(early)} was imported before the worker's environment was set, and would believe to be the "
            "only process: import it inside functions, never when a module is loaded"
        )
    os.environ.update(fixed)
    for name, value in defaults.items():
        os.environ.setdefault(name, value)


def join(config: NeuronConfig) -> None:
    """Be one of the process group that the environment describes."""
    import torch.distributed as dist

    config.prepare()
    dist.init_process_group(config.group, init_method="env://", timeout=timedelta(seconds=config.timeout_s))


def _leave() -> None:
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()


def refuse_placeholder() -> None:
    """Raises SpecError when the installed torch-neuronx is the placeholder of the public package index.

    That one is version 1.0, and all it does is raise when imported; real ones are numbered after their torch.
    """
    try:
        found = version("torch-neuronx")
    except PackageNotFoundError:
        return
    if found.count(".") < 3:
        rule = "is the placeholder of the public package index, which runs nothing"
        fix = "install requirements/neuron-*.txt from AWS's Neuron package index, see the Neuron documentation"
        raise SpecError([Problem(path="torch-neuronx", value=found, rule=rule, fix=fix)])
