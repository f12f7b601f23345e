"""The worker processes of a trial: Ray actors that train one leg after another, so that imports are paid for once.

They stand in the placement group of their trial, which was reserved whole. Ray Train's own worker group is not used
here: it starts a controller and fresh processes for every run, which took 10 s a trial (see benchmarks/sweep.py).
"""

import gc
import os
import socket
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.engine import Auto, Torch
from raytrain_eks.spec.job import Job


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

    def train(self, stretch: Stretch, place: dict[str, int], meeting: str, seconds: float) -> dict[str, Any]:
        """Join the process group at `meeting`, train, leave it; how the leg ended (see `Conductor.finished`)."""
        from raytrain_eks.checkpoint.run import METRICS, RunFolder
        from raytrain_eks.spec.problem import SpecError
        from raytrain_eks.train.control import refusal
        from raytrain_eks.train.worker import Place, Task, Worker
        from raytrain_eks.tune.pilot import Line

        task = Task(**stretch.task)
        run = RunFolder(task.storage, task.job["name"])
        trained = sum(1 for _ in run.lines(METRICS)) if place["rank"] == 0 else 0
        self.line = Line(stretch.gates, stretch.metric, trained=trained, losses=lambda step: _losses(run, step))
        join(place, meeting, seconds)
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
        """What the run tells (see `pilot.Line`); rank 0's."""
        return list(self.line.news(seconds)) if self.line is not None else []

    def word(self, goes_on: bool) -> None:
        """The word that the run waits for at a rung."""
        self.line.word(goes_on)


def _losses(run: Any, step: int) -> list[float]:
    return [float(line["loss"]) for line in run.metrics() if line["step"] <= step]


def join(place: dict[str, int], meeting: str, seconds: float) -> None:
    """Be one of the process group."""
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
        self.needs, self.fitting = needs, fitting(job)
        import ray

        cpus, gpus = needs.each.get("CPU", 0.0), needs.each.get("GPU", 0.0)
        environment = {"env_vars": dict(job.environment)} if job.environment else None
        actor: Any = ray.remote(Rank)
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_concurrency": 4, "runtime_env": environment}
        self.ranks = [actor.options(**options).remote() for _ in range(needs.workers)]

    def start(self, stretch: Stretch, job: Job) -> list[Any]:
        """Begin to train; a reference to the outcome of each rank. Raises what Ray raises when one has died."""
        import ray

        places = ray.get([rank.where.remote() for rank in self.ranks])
        nodes: Counter[str] = Counter()
        local = Counter(node for node, _, _ in places)
        meeting = f"tcp://{places[0][1]}:{places[0][2]}"
        seconds = max(quantity.seconds(job.failures.hang), 60)
        started = []
        for number, (rank, (node, _, _)) in enumerate(zip(self.ranks, places, strict=True)):
            place = {"rank": number, "world": len(self.ranks), "local_rank": nodes[node], "local_world": local[node]}
            place["threads"] = self.needs.threads
            nodes[node] += 1
            started.append(rank.train.remote(stretch, place, meeting, seconds))
        return started

    def close(self) -> None:
        """End the processes."""
        import ray

        for rank in self.ranks:
            ray.kill(rank)
        self.ranks = []


def fitting(job: Job) -> tuple[Any, ...]:
    """Jobs for which this is equal can be trained in the same processes; an engine that leaves traces in its process
    gets fresh ones each time."""
    clean = isinstance(job.engine, Auto) or (isinstance(job.engine, Torch) and not job.engine.compile)
    return (tuple(sorted(job.environment.items())), None if clean else object())
