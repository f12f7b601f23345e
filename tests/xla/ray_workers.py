"""What the Ray workers of the tests run; a module, so that workers import it by name."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any


def write(folder: str, found: dict[str, Any]) -> None:
    """Leave what this rank found."""
    Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(found))


def start_up(task: dict[str, Any]) -> None:
    """The environment after torch_xla's own start-up has seen it, and the proof over torch_xla's own process group."""
    import torch_xla

    from raytrain_eks.train.proof import NotReduced, prove_all_reduce

    wanted = ("NEURON_", "PJRT_", "TORCHELASTIC_", "FI_", "CCOM_", "GROUP_", "LOCAL_", "WORLD_", "RANK")
    found = {name: value for name, value in os.environ.items() if name.startswith(wanted)}
    try:
        prove_all_reduce(torch_xla.device(), int(os.environ["WORLD_SIZE"]))
    except NotReduced as error:
        found["refused"] = str(error)
    write(task["folder"], found)


def steps(task: dict[str, Any]) -> None:
    """Some steps of the XLA engine on this rank's half of the rows, and whether models that differ are found."""
    import torch
    import torch.distributed as dist

    from raytrain_eks.train.engines.xla import DifferentWeights, XlaEngine, prove_equal
    from raytrain_eks.train.proof import prove_all_reduce
    from tests.xla.test_xla_engine import LLAMA, batches, built, job, learnt

    rank, world = dist.get_rank(), dist.get_world_size()
    different, apart = built(LLAMA), False
    different.model.norm.weight.data[3] += rank * 1e-3
    try:
        prove_equal(different, world)
    except DifferentWeights:
        apart = True
    engine = XlaEngine(job(LLAMA), built(LLAMA), rank=rank, world=world)
    prove_all_reduce(engine.device, world)
    losses, norms = [], []
    data = batches(8)
    for step in range(4):
        micro = [data[(step * 4 + index) % len(data)] for index in range(4)]
        total = sum(map(learnt, micro))
        mine = micro[rank::world]
        told = [engine.micro_step(engine.put(each), total, last=each is mine[-1]) for each in mine]
        norm = engine.step(1e-3 * (step + 1))
        *values, size = engine.read(*told, norm)
        losses.append(engine.reduce(sum(values))[0] / total)
        norms.append(size)
    weights = torch.cat([weight.detach().cpu().reshape(-1) for weight in engine.trained])
    written = {chunk.name: chunk.tensor.numel() for chunk in engine.chunks()}
    digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
    found = {"losses": losses, "norms": norms, "weights": digest, "graphs": engine.guard.graphs, "written": written}
    found["apart"] = apart
    write(task["folder"], found)
