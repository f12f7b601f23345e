"""The environment of the workers of a Trainium job, as a pure function of where they are.

Runtime, compiler and PyTorch/XLA read it once, when they are imported, so all of it is set before. What must agree
between workers is always set; tuning is only a default, which the job's own `environment` overrides.

Sources: torch_xla/_internal/neuron.py (2.9) for cores, process index and the run id without which it sets none of them;
Neuron runtime configuration for NEURON_RT_*; ray-project/ray#65070 for what Ray's own XLA backend leaves out.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from raytrain_eks.spec.problem import Problem, SpecError

Runtime = Literal["xla", "neuron"]
"""`xla`: PyTorch/XLA; `neuron`: native TorchNeuron."""

OPEN_FILES = 65536
"""Files that a process of a node with MANY_RANKS must be able to open: each core's bootstrap opens sockets to all
others, and 32 ranks run out of the usual 1024 (aws-neuron/aws-neuron-sdk#713)."""
MANY_RANKS = 16

COMPILER_FLAGS = "--model-type=transformer --auto-cast=none --retry_failed_compilation"
"""Nothing is cast behind our back; a compilation that failed once is not remembered as failed."""

CACHE = ".compile-cache"
"""Beside the runs of a storage, since all of them share it."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one worker process is, as it finds it itself."""

    rank: int
    node: int
    """The node's number in the job, from 0."""
    local_rank: int
    cores: str = ""
    """NEURON_RT_VISIBLE_CORES as Ray set it: `3`, `0,1`, `0-3`; empty without Neuron cores."""
    instance: str = ""
    """The EC2 type; empty when it is not known."""
    interface: str = ""
    """The network interface that carries the node's address."""
    efa: bool = False
    """Whether the node has an EFA device that this process sees."""
    kernel: tuple[int, int] = (6, 1)
    open_files: int = OPEN_FILES
    """How many files the process may open, after raising its limit as far as it is allowed to."""


@dataclass(frozen=True)
class Settings:
    """The environment of one worker."""

    fixed: dict[str, str]
    """What must agree between the workers."""
    defaults: dict[str, str]
    """Tuning, where nobody has set something else."""


def settings(
    places: Sequence[Place],
    *,
    address: str,
    ports: tuple[int, int],
    run_id: str,
    runtime: Runtime,
    defaults: dict[str, str] | None = None,
) -> list[Settings]:
    """The environments of all workers, in the order of `places`.

    `address` and `ports` are rank 0's: one port for torch.distributed, one for the Neuron runtime (its default is the
    same for all jobs, so two on a host would collide). Raises SpecError when the places cannot train together.
    """
    found = list(problems(places, runtime))
    if found:
        raise SpecError(found)
    nodes = {place.node for place in places}
    host = f"[{address}]" if ":" in address else address
    made = []
    for place in places:
        neighbours = [other for other in places if other.node == place.node]
        fixed = {
            "MASTER_ADDR": address,
            "MASTER_PORT": str(ports[0]),
            "NEURON_RT_ROOT_COMM_ID": f"{host}:{ports[1]}",
            "TORCHELASTIC_RUN_ID": run_id,
            "RANK": str(place.rank),
            "WORLD_SIZE": str(len(places)),
            "LOCAL_RANK": str(place.local_rank),
            "LOCAL_WORLD_SIZE": str(len(neighbours)),
            "NODE_RANK": str(place.node),
            "GROUP_RANK": str(place.node),
            "GROUP_WORLD_SIZE": str(len(nodes)),
            "ROLE_RANK": str(place.rank),
            "ROLE_WORLD_SIZE": str(len(places)),
        }
        if place.cores and runtime == "xla":
            # torch_xla takes the core at the local rank out of the node's; Ray Train shows each worker only its own.
            cores = sorted({core for other in neighbours for core in numbers(other.cores)})
            fixed["NEURON_RT_VISIBLE_CORES"] = ",".join(map(str, cores))
        made.append(Settings(fixed, network(place, len(nodes)) | (defaults or {})))
    return made


def network(place: Place, nodes: int) -> dict[str, str]:
    """What the collectives' libraries need to know of the node's network."""
    made = {}
    if place.interface:
        made |= {"CCOM_SOCKET_IFNAME": place.interface, "NCCL_SOCKET_IFNAME": place.interface}
    if place.efa and nodes > 1:
        made |= {"FI_PROVIDER": "efa", "FI_EFA_USE_DEVICE_RDMA": "1"}
        if place.kernel < (5, 15):
            made["FI_EFA_FORK_SAFE"] = "1"
    return made


def tuning(runtime: Runtime, *, cache: str = "", stochastic_rounding: bool = False) -> dict[str, str]:
    """Defaults of runtime and compiler. `cache` is the shared compile cache, a folder or an s3:// URL: without one
    each pod compiles for itself (aws-neuron/aws-neuron-sdk#1368)."""
    if runtime == "neuron":
        made = {"TORCH_NEURONX_NEFF_CACHE_DIR": cache} if cache and "://" not in cache else {}
    else:
        made = {"PJRT_DEVICE": "NEURON", "NEURON_CC_FLAGS": COMPILER_FLAGS, "NEURON_FUSE_SOFTMAX": "1"}
        made |= {"MALLOC_ARENA_MAX": "64"}
        if cache:
            made["NEURON_COMPILE_CACHE_URL"] = cache
    if stochastic_rounding:
        made["NEURON_RT_STOCHASTIC_ROUNDING_EN"] = "1"
    return made


def cache_of(storage: str) -> str:
    """The compile cache of all runs on a storage: a folder or an s3:// URL, as Neuron's library takes them."""
    return f"{storage.removeprefix('file://').rstrip('/')}/{CACHE}"


def problems(places: Sequence[Place], runtime: Runtime) -> Iterator[Problem]:
    """Why workers at these places cannot train together."""
    if any(place.instance.startswith("trn1") for place in places):
        yield from trn1(places, runtime)
    for node in sorted({place.node for place in places}):
        yield from node_problems([place for place in places if place.node == node], runtime)
    without = sorted({place.node for place in places if not place.efa})
    if len({place.node for place in places}) > 1 and any(place.efa for place in places) and without:
        rule = (
            f"some nodes have EFA and nodes {', '.join(map(str, without))} have none, so they cannot reach each other"
        )
        yield Problem(path="workers", rule=rule, fix="use one worker group, with `efa: required`")


def trn1(places: Sequence[Place], runtime: Runtime) -> Iterator[Problem]:
    """What the first generation cannot do."""
    types = ", ".join(sorted({place.instance for place in places}))
    if runtime == "neuron":
        rule = f"native TorchNeuron runs on trn2 and trn3, these workers are on {types}"
        yield Problem(path="engine.kind", rule=rule, fix="write `engine: {kind: xla}` and use the neuron-trn1 image")
    world = len(places)
    if world not in (1, 2, 8, 16) and world % 32:
        rule = f"collectives on {types} connect 1, 2, 8, 16 or a multiple of 32 cores"
        yield Problem(path="workers.count", value=str(world), rule=rule, fix="take whole nodes")


def node_problems(workers: Sequence[Place], runtime: Runtime) -> Iterator[Problem]:
    """What is wrong with the workers of one node."""
    node = f"node {workers[0].node}"
    taken = [core for worker in workers for core in numbers(worker.cores)]
    if any(worker.cores for worker in workers) and not all(worker.cores for worker in workers):
        rule = f"on {node} only some workers were given Neuron cores"
        yield Problem(path="workers", rule=rule, fix="unset RAY_EXPERIMENTAL_NOSET_NEURON_RT_VISIBLE_CORES")
    elif len(set(taken)) != len(taken):
        yield Problem(path="workers", rule=f"on {node} two workers were given the same Neuron core")
    elif taken and runtime == "xla" and len(taken) != len(workers):
        rule = (
            f"on {node} {len(workers)} workers were given {len(taken)} Neuron cores; PyTorch/XLA drives one per process"
        )
        yield Problem(path="workers.count", rule=rule, fix="run one worker process per core (`neuron_cores: 1`)")
    least = min(worker.open_files for worker in workers)
    if len(workers) >= MANY_RANKS and least < OPEN_FILES:
        rule = f"on {node} a process may open {least} files, {len(workers)} ranks need {OPEN_FILES}"
        fix = f"raise the container runtime's limit: LimitNOFILE={OPEN_FILES} of containerd in the node's user data"
        yield Problem(path="workers", rule=rule, fix=fix)


def numbers(cores: str) -> list[int]:
    """The cores of a NEURON_RT_VISIBLE_CORES: `0-2,5` is 0, 1, 2, 5. Raises ValueError for anything else."""
    found: list[int] = []
    for part in filter(None, cores.replace(" ", "").split(",")):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if match is None:
            raise ValueError(f"NEURON_RT_VISIBLE_CORES={cores!r} is no list of cores such as 0,1 or 0-3")
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found
