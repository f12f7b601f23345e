"""The fabric check as a job of Ray Train: the ranks, devices and backends that training itself would get."""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from raytrain_eks.spec.diagnosis import Diagnosis, red, yellow
from raytrain_eks.train.doctor import fabric, nccl_log, worker

TIMEOUT_S = 300
"""Of a collective; the first one sets up all connections."""
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV"}
LOG = "raytrain-nccl-{pid}.log"
MOST_LINES = 20000
"""Of one rank's log; what counts stands at its beginning."""


def examine(say: Callable[[str], None]) -> Iterator[Diagnosis]:
    """Measure over everything that is free, and judge. Ray is connected."""
    import ray

    have, free = ray.cluster_resources(), ray.available_resources()
    kind, ranks = wanted(have)
    name = {"cuda": "GPU", "neuron": "neuron_cores", "cpu": "CPU"}[kind]
    if ranks < 2:
        why = f"the cluster has {ranks} {name}: there is nobody to exchange with"
        yield yellow("fabric.all_reduce", "cluster", why, "nothing is wrong with that; a second one can be measured")
        return
    if free.get(name, 0) < ranks:
        why = f"{free.get(name, 0):g} of {have[name]:g} {name} are free; the rest is at work"
        yield yellow("fabric.all_reduce", "cluster", why, "run it again when nothing else runs")
        return
    if kind == "neuron" and not _native():
        why = "an all-reduce under PyTorch/XLA is not measured here"
        yield yellow("fabric.all_reduce", "cluster", why, "nccom-test of aws-neuronx-tools measures it")
        return
    say(f"measuring an all-reduce over {ranks} ranks on {kind}")
    try:
        found = _run(kind, ranks, name)
    except Exception as error:
        # Whatever a collective, a driver or a library raises is the finding.
        why = f"the all-reduce failed: {_cause(error)}"
        fix = "security groups must allow all traffic among the nodes; see the log of the job for every rank's words"
        yield red("fabric.all_reduce", "cluster", why, fix)
        return
    yield from judge(kind, found, say)


def judge(kind: str, found: dict[str, Any], say: Callable[[str], None]) -> Iterator[Diagnosis]:
    """Findings of what rank 0 brought: rows, node count, EC2 type and what each rank's log said."""
    from raytrain_eks import catalog

    rows = [fabric.Measured(**row) for row in found["rows"]]
    type, nodes = found["instance"], found["nodes"]
    instance = catalog.instance(type) if catalog.known(type) else None
    where = f"{rows[-1].ranks} ranks on {nodes} node{'s' if nodes != 1 else ''}"
    fabric.table(rows, say)
    yield fabric.verdict(rows[-1], where, instance, nodes=nodes)
    yield from fabric.latency(rows, where)
    if kind == "cuda":
        log = nccl_log.together([nccl_log.of_data(each) for each in found["logs"]])
        efa = instance.efa if instance is not None else 0
        yield from nccl_log.diagnose(log, where, efa=efa, several_nodes=nodes > 1)


def wanted(resources: dict[str, float]) -> tuple[str, int]:
    """Kind of device and number of ranks: one per accelerator, else two on CPUs."""
    if gpus := int(resources.get("GPU", 0)):
        return "cuda", gpus
    if cores := int(resources.get("neuron_cores", 0)):
        return "neuron", cores
    return "cpu", min(int(resources.get("CPU", 0)), 2)


def _native() -> bool:
    """Whether this image has native TorchNeuron and not PyTorch/XLA."""
    from importlib.util import find_spec

    return find_spec("torch_neuronx") is not None and find_spec("torch_xla") is None


def _run(kind: str, ranks: int, name: str) -> dict[str, Any]:
    from ray.train import LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    each = {"CPU": 1.0} if kind == "cpu" else {"CPU": 0.0, name: 1.0}
    if kind == "neuron":
        from raytrain_eks.train.neuron_backend import NeuronConfig

        backend: Any = NeuronConfig(runtime="neuron", timeout_s=TIMEOUT_S)
    else:
        backend = TorchConfig(timeout_s=TIMEOUT_S)
    trainer = TorchTrainer(
        rank,
        train_loop_config={"kind": kind},
        torch_config=backend,
        scaling_config=ScalingConfig(
            num_workers=ranks, use_gpu=kind == "cuda", resources_per_worker=each, placement_strategy="PACK"
        ),
        run_config=RunConfig(
            storage_path=os.path.join(tempfile.gettempdir(), f"raytrain-eks-{os.getuid()}", "ray-train"),
            logging_config=LoggingConfig(log_level="WARNING"),
            worker_runtime_env={"env_vars": DEBUG | {"NCCL_DEBUG_FILE": _log("%p")}} if kind == "cuda" else None,
        ),
    )
    found = trainer.fit().return_value
    assert isinstance(found, dict)
    return found


def rank(task: dict[str, str]) -> dict[str, Any]:
    """What each rank does; all return the same, as rank 0 gathered it."""
    import torch
    import torch.distributed as dist

    device = torch.device("cuda", torch.cuda.current_device()) if task["kind"] == "cuda" else torch.device(task["kind"])
    rows = fabric.measure(device, fabric.SIZES[task["kind"]])
    about = worker.instance()
    mine = {"host": worker.name(), "instance": about.type if about is not None else "", "log": _said()}
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return {
        "rows": [asdict(row) for row in rows],
        "nodes": len({each["host"] for each in everyone}),
        "instance": everyone[0]["instance"],
        "logs": [each["log"] for each in everyone],
    }


def _log(pid: str) -> str:
    return os.path.join(tempfile.gettempdir(), LOG.format(pid=pid))


def _said() -> dict[str, Any]:
    """What this process's NCCL log says, as plain data; the file is removed."""
    file = Path(_log(str(os.getpid())))
    if not file.exists():
        return nccl_log.read([]).as_data()
    with file.open(encoding="utf-8", errors="replace") as lines:
        found = nccl_log.read(line for line, _ in zip(lines, range(MOST_LINES), strict=False))
    file.unlink()
    return found.as_data()


def _cause(error: BaseException) -> str:
    """The innermost error's first line: Ray wraps a worker's in its own."""
    causes = getattr(error, "worker_failures", None)
    if isinstance(causes, dict) and causes:
        error = next(iter(causes.values()))
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1][:300]}" if lines else type(error).__name__
