"""The worker processes of a trial: Ray actors that train one leg after another, so that imports are paid for once.

They stand in the placement group of their trial, which was reserved whole. Ray Train's own worker group is not used
here: it starts a controller and fresh processes for every run, which took 10 s a trial (see benchmarks/sweep.py).
"""

import gc
import os
import socket
import time
import uuid
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.engine import Auto, Torch, Xla
from raytrain_eks.spec.job import Job

STARTING = 0.2
"""Seconds between two looks whether a run has begun to talk."""


@dataclass(frozen=True, kw_only=True)
class Needs:
    """The worker processes of each trial of a sweep; alike for all of them."""

    workers: int
    each: dict[str, float]
    """Ray resources of one."""
    threads: int
    """CPU threads of one, where there is no GPU."""


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """What a rank is told to train; plain data."""

    task: dict[str, Any]
    """Of `train.worker.Task`."""
    gates: tuple[int, ...]
    metric: str
    cache: str = ""
    """Of compiled graphs, on Trainium."""


class Rank:
    """One worker process."""

    def __init__(self) -> None:
        self.line: Any = None

    def where(self) -> tuple[str, str, int]:
        """The node's id and address, and a free port there."""
        import ray

        address = ray.util.get_node_ip_address()
        with closing(socket.socket()) as probe:
            probe.bind(("", 0))
            return ray.get_runtime_context().get_node_id(), address, probe.getsockname()[1]

    def look(self, rank: int, node: int, local_rank: int, address: str) -> Any:
        """Where this process is, as the Neuron runtime has to know it."""
        from raytrain_eks.train.neuron_place import look

        return look(rank, node, local_rank, address)

    def take(self, fixed: dict[str, str], defaults: dict[str, str]) -> None:
        """Make this process's environment for the Neuron runtime, before anything of it is imported."""
        from raytrain_eks.train.neuron_backend import take

        take(fixed, defaults)

    def train(self, stretch: Stretch, place: dict[str, int], meeting: str, seconds: float, neuron: Any = None) -> Any:
        """Join the process group at `meeting` (or the one of `neuron`'s environment), train, leave it; how the leg
        ended (see `Conductor.finished`)."""
        self.line = None
        from raytrain_eks.checkpoint.run import METRICS, RunFolder
        from raytrain_eks.spec.problem import SpecError
        from raytrain_eks.train.control import refusal
        from raytrain_eks.train.worker import Place, Task, Worker
        from raytrain_eks.tune.pilot import Line

        task = Task(**stretch.task)
        run = RunFolder(task.storage, task.job["name"])
        trained = sum(1 for _ in run.lines(METRICS)) if place["rank"] == 0 else 0
        self.line = Line(stretch.gates, stretch.metric, trained=trained, losses=lambda step: _losses(run, step))
        join(place, meeting, seconds, neuron)
        try:
            Worker(task, Place(**{key: place[key] for key in Place.__dataclass_fields__}), self.line).work()
        finally:
            leave()
        if place["rank"]:
            return {}
        if isinstance(refused := refusal(run), SpecError):
            problem = refused.problems[0]
            return {"state": "failed", "reason": f"{problem.path}: {problem.rule}", "trained": self.line.trained}
        found = run.summary() or {}
        state = "completed" if found.get("status") == "complete" else "ended"
        return {"state": state, "step": found["steps"], "tokens": found["tokens"], "trained": self.line.trained}

    def news(self, seconds: float) -> list[dict[str, Any]]:
        """What the run tells (see `pilot.Line`); rank 0's. Nothing yet while it still imports."""
        line = self.line
        if line is None:
            time.sleep(min(seconds, STARTING))
            return []
        return list(line.news(seconds))

    def word(self, goes_on: bool) -> None:
        """The word that the run waits for at a rung."""
        self.line.word(goes_on)


def _losses(run: Any, step: int) -> list[float]:
    return [float(line["loss"]) for line in run.metrics() if line["step"] <= step]


def join(place: dict[str, int], meeting: str, seconds: float, neuron: Any) -> None:
    """Be one of the process group."""
    if neuron is not None:
        from raytrain_eks.train import neuron_backend

        neuron_backend.join(neuron)
        return
    import torch
    import torch.distributed as dist

    names = {"RANK": "rank", "WORLD_SIZE": "world", "LOCAL_RANK": "local_rank", "LOCAL_WORLD_SIZE": "local_world"}
    os.environ |= {name: str(place[key]) for name, key in names.items()}
    # Ray shows a process only its own GPU.
    gpu = torch.cuda.is_available()
    if gpu:
        torch.cuda.set_device(0)
    dist.init_process_group(
        "nccl" if gpu else "gloo",
        init_method=meeting,
        rank=place["rank"],
        world_size=place["world"],
        timeout=timedelta(seconds=seconds),
    )


def leave() -> None:
    """Leave the process group and give the memory of the leg back."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


class Group:
    """The ranks of one trial at a time, from the process that drives it."""

    def __init__(self, needs: Needs, job: Job):
        self.needs, self.fitting = needs, fitting(job, needs)
        import ray

        each = dict(needs.each)
        options = {"num_cpus": each.pop("CPU", 0.0), "num_gpus": each.pop("GPU", 0.0), "resources": each}
        environment = {"env_vars": dict(job.environment)} if job.environment else None
        options |= {"max_concurrency": 4, "runtime_env": environment}
        actor: Any = ray.remote(Rank)
        self.ranks = [actor.options(**options).remote() for _ in range(needs.workers)]

    def start(self, stretch: Stretch, job: Job) -> list[Any]:
        """Begin to train; a reference to the outcome of each rank. Raises what Ray raises when one has died."""
        import ray

        found = ray.get([rank.where.remote() for rank in self.ranks])
        nodes = list(dict.fromkeys(node for node, _, _ in found))
        local = Counter(node for node, _, _ in found)
        seen: Counter[str] = Counter()
        places = []
        for number, (node, _, _) in enumerate(found):
            about = {"rank": number, "world": len(self.ranks), "local_rank": seen[node], "local_world": local[node]}
            places.append(about | {"node": nodes.index(node), "threads": self.needs.threads})
            seen[node] += 1
        address, ports = found[0][1], (found[0][2], ray.get(self.ranks[0].where.remote())[2])
        seconds = max(quantity.seconds(job.failures.hang), 60)
        neuron = None
        if isinstance(job.engine, Xla) or self.needs.each.get("neuron_cores"):
            from raytrain_eks.train.neuron_backend import config_for

            neuron = config_for(job, self.needs.each, cache=stretch.cache, timeout=int(seconds))
            self._prepare(neuron, places, [each[1] for each in found], address, ports)
        meeting = f"tcp://{address}:{ports[0]}"
        pairs = zip(self.ranks, places, strict=True)
        return [rank.train.remote(stretch, place, meeting, seconds, neuron) for rank, place in pairs]

    def _prepare(
        self, neuron: Any, places: list[dict[str, int]], addresses: list[str], address: str, ports: tuple[int, int]
    ) -> None:
        """The environments of a Trainium group, as `train.neuron_backend` makes them for a single run."""
        import ray

        from raytrain_eks.train.neuron_environment import settings

        looks = [
            rank.look.remote(place["rank"], place["node"], place["local_rank"], own)
            for rank, place, own in zip(self.ranks, places, addresses, strict=True)
        ]
        about = {"address": address, "ports": ports, "run_id": uuid.uuid4().hex}
        made = settings(ray.get(looks), runtime=neuron.runtime, defaults=neuron.defaults, **about)
        ray.get([rank.take.remote(one.fixed, one.defaults) for rank, one in zip(self.ranks, made, strict=True)])

    def close(self) -> None:
        """End the processes."""
        import ray

        for rank in self.ranks:
            ray.kill(rank)
        self.ranks = []


def fitting(job: Job, needs: Needs) -> tuple[Any, ...]:
    """Jobs for which this is equal can be trained in the same processes; an engine that leaves traces in its process
    gets fresh ones each time: DeepSpeed, torch.compile, and all that runs on NeuronCores."""
    clean = isinstance(job.engine, Auto) or (isinstance(job.engine, Torch) and not job.engine.compile)
    clean = clean and not needs.each.get("neuron_cores")
    return (tuple(sorted(job.environment.items())), None if clean else object())
