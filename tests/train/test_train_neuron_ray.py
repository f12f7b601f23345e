"""Native TorchNeuron's process group over two Ray workers, with a stand-in for the package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import json, os, sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

from raytrain_eks.spec.job import Job
from raytrain_eks.train.neuron_backend import config_for

folder = Path(sys.argv[1])


def work(task):
    import torch
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import _get_default_group

    total = torch.ones(1)
    dist.all_reduce(total)
    names = ("NEURON_RT_VISIBLE_CORES", "LOCAL_RANK", "RANK", "WORLD_SIZE", "TORCH_NEURONX_NEFF_CACHE_DIR")
    told = {name: os.environ.get(name) for name in names}
    kinds = sorted(kind.type for kind in _get_default_group()._device_types)
    told |= {"sum": total.item(), "backends": kinds, "loaded": "torch_neuronx" in sys.modules}
    (Path(task["folder"]) / f"{dist.get_rank()}.json").write_text(json.dumps(told))


job = Job.parse({"kind": "Job", "name": "native", "model": {"name": "some/model"},
                 "data": {"train": "nowhere", "sequence_length": 16}, "batch": {"sequences": 2},
                 "optimizer": {"learning_rate": 1e-3}, "stop": {"steps": 2}})
each = {"CPU": 1, "neuron_cores": 1}
ray.init(address="local", num_cpus=4, resources={"neuron_cores": 2}, logging_level="ERROR")
TorchTrainer(
    work,
    train_loop_config={"folder": str(folder)},
    torch_config=config_for(job, each, cache=str(folder / "cache"), timeout=300),
    scaling_config=ScalingConfig(num_workers=2, resources_per_worker=each),
    run_config=RunConfig(storage_path=str(folder / "ray")),
).fit()
"""


def test_two_workers_join_one_group_on_their_own_cores(root, tmp_path):
    path = os.pathsep.join([str(Path(__file__).parent / "stand_in"), str(root)])
    variables = os.environ | {
        "PYTHONPATH": path,
        "RAY_AUTH_MODE": "disabled",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    }
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)], env=variables, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    for rank, told in enumerate((first, second)):
        assert told["loaded"]
        assert told["sum"] == 2
        assert told["backends"] == ["cpu", "neuron"]
        assert (told["RANK"], told["LOCAL_RANK"], told["WORLD_SIZE"]) == (str(rank), str(rank), "2")
        assert told["TORCH_NEURONX_NEFF_CACHE_DIR"] == str(tmp_path / "cache")
    assert {first["NEURON_RT_VISIBLE_CORES"], second["NEURON_RT_VISIBLE_CORES"]} == {"0", "1"}
