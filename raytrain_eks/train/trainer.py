"""From a claimed run and prepared data to a TorchTrainer: how many workers, of what resources, restarted how often."""

import os
import re
import tempfile
from dataclasses import dataclass
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

CONTROLLER = {"RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1", "RAY_CHDIR_TO_TRIAL_DIR": "0"}
"""Ray Train's controller polls its workers every 2 s by default; a dead one would be seen that much later."""

RESIZE = 60.0
"""Seconds between two looks of an elastic job whether it may grow; Ray Train's own default. Growing costs a start and
the steps since the last checkpoint."""


@dataclass(frozen=True)
class Planned:
    """The workers of a job as the plan of its cluster counts them, also while none of its nodes is there yet."""

    count: int
    kind: str
    """The Ray resource that each takes one of: `GPU`, `neuron_cores` or `CPU`."""

    @classmethod
    def parse(cls, text: str) -> "Planned":
        """Of the driver's option: `32xGPU`. Raises ValueError."""
        match = re.fullmatch(r"([1-9]\d*)x(GPU|neuron_cores|CPU)", text)
        if match is None:
            raise ValueError("must look like 32xGPU, 64xneuron_cores or 4xCPU")
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.count}x{self.kind}"


def workers(job: Job, resources: dict[str, float], planned: Planned | None = None) -> int:
    """Worker processes of a job in a Ray cluster with these resources (`ray.cluster_resources()`), or as planned.

    One per accelerator: as many as the job says, else as many as the cluster has GPUs or Neuron cores; without any, one
    per two CPUs and at most 2, since on a CPU more processes only share the same cores. Raises SpecError when the
    cluster is smaller than the job, also at its least.
    """
    if planned is not None:
        return planned.count
    accelerators = int(resources.get("GPU", 0) or resources.get("neuron_cores", 0))
    cpus = int(resources.get("CPU", 0))
    wanted = job.workers.count
    if wanted is None and job.workers.nodes is not None and accelerators:
        nodes = sum(1 for name in resources if name.startswith("node:") and name != "node:__internal_head__")
        wanted = accelerators // max(nodes, 1) * job.workers.nodes
    if wanted is None:
        wanted = accelerators or min(max(cpus // 2, 1), 2)
    available = accelerators or cpus
    kind = "accelerators" if accelerators else "CPUs"
    least = min(wanted, job.workers.min or wanted)
    if least > available:
        rule = f"{least} worker processes need {least} {kind}, the cluster has {available}"
        problem = Problem(path="workers.count", rule=rule, value=str(wanted), fix=f"write at most {available}")
        raise SpecError([problem])
    return wanted


def worker_resources(job: Job, resources: dict[str, float], planned: Planned | None = None) -> dict[str, float]:
    """What one worker process asks of Ray: its accelerator, and its CPUs (1 where the job does not say)."""
    cpus = float(quantity.parse(job.workers.cpus)) if job.workers.cpus is not None else 1.0
    for kind in ("GPU", "neuron_cores"):
        if resources.get(kind) if planned is None else planned.kind == kind:
            return {"CPU": cpus, kind: 1.0}
    return {"CPU": cpus}


def trainer(job: Job, task: dict[str, Any], planned: Planned | None = None) -> Any:
    """The TorchTrainer of an attempt, in the Ray cluster this process is connected to. Raises SpecError."""
    import ray
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig

    from raytrain_eks.train.lean import LeanTrainer
    from raytrain_eks.train.neuron_backend import config_for
    from raytrain_eks.train.neuron_environment import cache_of
    from raytrain_eks.train.worker import train_worker

    resources = ray.cluster_resources()
    each = worker_resources(job, resources, planned)
    timeout = int(max(quantity.seconds(job.failures.hang), 60))
    count, least = workers(job, resources, planned), job.workers.min
    trainium = config_for(job, each, cache=cache_of(task["storage"]), timeout=timeout)
    return LeanTrainer(
        train_worker,
        train_loop_config=task,
        torch_config=trainium or TorchConfig(timeout_s=timeout),
        scaling_config=ScalingConfig(
            num_workers=(least, count) if least is not None and least < count else count,
            use_gpu=bool(each.get("GPU")),
            resources_per_worker=each,
            elastic_resize_monitor_interval_s=RESIZE,
        ),
        run_config=RunConfig(
            # Ray Train's own bookkeeping only; whatever counts lies in the run folder.
            storage_path=os.path.join(tempfile.gettempdir(), f"raytrain-eks-{os.getuid()}", "ray-train"),
            failure_config=FailureConfig(max_failures=job.failures.restarts),
            logging_config=LoggingConfig(log_level="WARNING"),
            worker_runtime_env={"env_vars": job.environment} if job.environment else None,
        ),
    )


def environment() -> None:
    """Settings that Ray Train reads from the environment of the driver, where they were not given."""
    for name, value in CONTROLLER.items():
        os.environ.setdefault(name, value)
