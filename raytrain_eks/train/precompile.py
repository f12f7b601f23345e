"""Compiling ahead for Trainium: a stage of its own before the training, never the training's own command.

    python -m raytrain_eks.train.precompile JOB.yaml

It runs the job's own engine, at the job's own number of workers and shapes, on made-up batches under graph extraction:
the Neuron library writes each graph down instead of running it, so every number that comes back is meaningless, and
nothing here reads one, saves one or decides by one. One process then compiles what was written down (libneuronxla's
parallel_compile) into the compile cache on the run's storage, which all pods of the training read.

The graphs are those of the training only if everything in them is: so this goes through the same engine and the same
environment, and the compiler's flags, which are a part of the cache's key, come from the same place. Extraction and
compilation by the real library have not been run for want of Trainium; tests put a stand-in in its place.
"""

import argparse
import os
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from raytrain_eks.spec.engine import Xla
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import Problem, SpecError

STEPS = 2
"""Training steps to trace; the engine's second is like all that follow."""
DAY = 86400
COMPILED = "model.neff"
"""What the compiler leaves in the cache's folder of a graph, which is called MODULE_<hash>."""


def main(arguments: list[str] | None = None) -> int:
    """Compile what a job file will run, and return the exit code."""
    parser = argparse.ArgumentParser(prog="precompile", description="Compile a job's graphs before it is trained.")
    parser.add_argument("job", help="the job file")
    parser.add_argument("--storage", help="folder or s3:// URL that holds run folders; overrides the file's")
    given = parser.parse_args(arguments)
    try:
        job = load(given.job, expect="Job")
        refuse_others(job)
        return precompile(job, given.storage)
    except SpecError as error:
        print(f"{error}\nnothing was compiled", file=sys.stderr, flush=True)
        return 3


def refuse_others(job: Job) -> None:
    """Raises SpecError for an engine that has nothing to compile ahead."""
    if not isinstance(job.engine, Xla):
        rule = "only `xla` has graphs that can be compiled ahead; other engines compile while they train, if at all"
        raise SpecError([Problem(path="engine.kind", value=job.engine.kind, rule=rule, fix="train right away")])


def precompile(job: Job, storage: str | None) -> int:
    """Extract and compile; 0, or 1 when some graph did not compile."""
    import ray

    from raytrain_eks.checkpoint.default import default_storage
    from raytrain_eks.checkpoint.storage import Storage
    from raytrain_eks.data.prepare import prepare
    from raytrain_eks.train.neuron_environment import cache_of
    from raytrain_eks.train.trainer import environment

    environment()
    if not ray.is_initialized():
        ray.init(log_to_driver=True)
    place = Storage.of(storage or job.storage or default_storage())
    prepared = prepare(job, place, say=_say)
    cache = cache_of(place.url)
    began = time.monotonic()
    _trainer(job, {"job": job.written(), "prepared": prepared.url, "cache": cache}).fit()
    there, missing = graphs([name for name, _ in Storage.of(cache).files()])
    _say(f"compiled after {time.monotonic() - began:.0f} s: {there} graphs in {cache}, {len(missing)} without result")
    for name in missing:
        _say(f"not compiled: {name}")
    return 1 if missing else 0


def _say(text: str) -> None:
    print(text, flush=True)


def _trainer(job: Job, task: dict[str, Any]) -> Any:
    import ray
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    from raytrain_eks.train.neuron_backend import config_for
    from raytrain_eks.train.trainer import worker_resources, workers

    resources = ray.cluster_resources()
    each = worker_resources(job, resources)
    config = config_for(job, each, cache=task["cache"], timeout=DAY)
    assert config is not None
    return TorchTrainer(
        precompile_worker,
        train_loop_config=task,
        torch_config=replace(config, extract=True),
        scaling_config=ScalingConfig(num_workers=workers(job, resources), resources_per_worker=each),
        run_config=RunConfig(
            storage_path=os.path.join(tempfile.gettempdir(), f"raytrain-eks-{os.getuid()}", "ray-precompile"),
            failure_config=FailureConfig(max_failures=0),
            worker_runtime_env={"env_vars": job.environment} if job.environment else None,
        ),
    )


def precompile_worker(task: dict[str, Any]) -> None:
    """What one worker does: trace the job's calls, then wait until rank 0 has compiled them."""
    import ray.train
    import torch
    import torch.distributed as dist

    from raytrain_eks.data.prepared import Prepared
    from raytrain_eks.train.model import build_model, model_config

    job = Job.parse(task["job"])
    context = ray.train.get_context()
    rank, world = context.get_world_rank(), context.get_world_size()
    model = build_model(job, model_config(job, Prepared.load(task["prepared"]).tokenizer()))
    trace(job, model, rank=rank, world=world)
    if rank == 0:
        compile_extracted(task["cache"])
    if world > 1:
        dist.all_reduce(torch.zeros(1))  # between the hosts, by gloo: nobody leaves before rank 0 is done


def trace(job: Job, model: Any, *, rank: int, world: int) -> None:
    """Make every call that the training makes, with made-up batches of its shape."""
    from raytrain_eks.plan.batch import split
    from raytrain_eks.train import engines
    from raytrain_eks.train.proof import NotReduced, prove_all_reduce

    length = job.data.sequence_length
    shape = split(global_sequences=job.global_sequences, world=world, sequence_length=length, micro=job.batch.micro)
    engine = engines.build(job, model, rank=rank, world=world, micro=shape.micro, accumulation=shape.accumulation)
    with suppress(NotReduced):
        prove_all_reduce(engine.device, world)
    batch = engine.put(made_up(shape.micro, length))
    engine.evaluate(batch)
    for _ in range(STEPS):
        engine.seed(job.seed)
        engine.micro_step(batch, shape.rows * length, last=True)
        engine.step(job.optimizer.learning_rate)
    engine.close()


def made_up(rows: int, length: int) -> dict[str, Any]:
    """A micro-batch of the training's names, types and shapes: int64 [rows, length] each."""
    ones = np.ones((rows, length), np.int64)
    return {
        "input_ids": ones,
        "labels": ones,
        "position_ids": np.tile(np.arange(length, dtype=np.int64), (rows, 1)),
        "segment_ids": ones,
    }


def compile_extracted(cache: str) -> None:
    """Compile the graphs that were written down. Raises SpecError where Neuron's library is not."""
    try:
        from libneuronxla.neuron_cc_cache import CacheUrl
        from libneuronxla.neuron_parallel_compile import parallel_compile
    except ModuleNotFoundError as error:
        rule = f"graphs are compiled by Neuron's library, and {error.name} is not installed"
        fix = "run this on workers of the neuron-trn1 image (requirements/neuron-trn1.txt)"
        raise SpecError([Problem(path="engine.kind", value="xla", rule=rule, fix=fix)]) from None
    with tempfile.TemporaryDirectory(prefix="precompile-") as folder:
        parallel_compile(folder, CacheUrl.get_cache_url(cache))


def graphs(names: list[str]) -> tuple[int, list[str]]:
    """How many graphs the files of a cache are of, and the folders of those that have no result."""
    folders = {name[: name.rindex("/")] for name in names if "MODULE_" in name and "/" in name}
    done = {name[: name.rindex("/")] for name in names if name.endswith(f"/{COMPILED}")}
    return len(folders), sorted(folders - done)


if __name__ == "__main__":
    sys.exit(main())
