"""The Ray backend with real workers: torch_xla's Neuron start-up, the proof, and two workers that stay equal."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from raytrain_eks.train.neuron_environment import tuning

HERE = Path(__file__).parent
CORES = 2


@pytest.fixture(scope="module")
def cluster(root) -> Iterator[None]:
    """A Ray of two CPUs and two made-up Neuron cores; workers find the project and the tests."""
    import ray

    os.environ["RAY_TRAIN_HEALTH_CHECK_INTERVAL_S"] = "0.2"
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    ray.init(
        address="local",
        num_cpus=2 * CORES,
        resources={"neuron_cores": CORES},
        logging_level="ERROR",
        runtime_env={"env_vars": {"PYTHONPATH": str(root), "PJRT_DEVICE": "CPU", "OMP_NUM_THREADS": "1"}},
    )
    yield
    ray.shutdown()


def run(function, folder: Path, config, **environment: str) -> list[dict]:
    """What each rank left behind."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchTrainer

    TorchTrainer(
        function,
        train_loop_config={"folder": str(folder)},
        torch_config=config,
        scaling_config=ScalingConfig(num_workers=CORES, resources_per_worker={"CPU": 1, "neuron_cores": 1}),
        run_config=RunConfig(storage_path=str(folder / "ray"), worker_runtime_env={"env_vars": environment}),
    ).fit()
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(CORES)]


def test_torch_xla_starts_up_on_every_core_and_a_world_that_does_not_reduce_is_refused(cluster, root, tmp_path):
    """Under Ray's own TorchXLAConfig the start-up raises (one visible core, two local workers), and without a runtime
    behind it the world of two would train two models in silence."""
    from raytrain_eks.train.neuron_backend import NeuronConfig
    from tests.xla import ray_workers

    config = NeuronConfig(defaults=tuning("xla", cache=str(tmp_path / "cache")))
    path = os.pathsep.join([str(HERE / "stand_in"), str(root)])
    first, second = run(ray_workers.start_up, tmp_path, config, PYTHONPATH=path)
    for rank, found in enumerate((first, second)):
        assert found["NEURON_PJRT_PROCESS_INDEX"] == str(rank)
        assert found["NEURON_PJRT_WORLD_SIZE"] == "2"
        assert found["PJRT_LOCAL_PROCESS_COUNT"] == "2"
        assert found["NEURON_RT_VISIBLE_CORES"] == str(rank)
        assert found["GROUP_WORLD_SIZE"] == "1"
        assert not [name for name in found if name.startswith("FI_")]
        assert "all_reduce over 2 ranks gave" in found["refused"]
    assert first["NEURON_RT_ROOT_COMM_ID"] == second["NEURON_RT_ROOT_COMM_ID"]
    assert not first["NEURON_RT_ROOT_COMM_ID"].endswith(":62182")
    assert first["TORCHELASTIC_RUN_ID"] == second["TORCHELASTIC_RUN_ID"]
    assert first["NEURON_COMPILE_CACHE_URL"] == str(tmp_path / "cache")


def test_two_workers_stay_bit_equal_and_equal_one(cluster, tmp_path):
    from raytrain_eks.train.engines.torch import TorchEngine
    from tests.xla import ray_workers
    from tests.xla.gloo_bridge import BridgedConfig
    from tests.xla.test_xla_engine import LLAMA, batches, built, job
    from tests.xla.test_xla_engine import run as steps

    first, second = run(ray_workers.steps, tmp_path, BridgedConfig())
    assert first["apart"]
    assert second["apart"]
    assert first["weights"] == second["weights"]
    assert first["losses"] == second["losses"]
    alone = TorchEngine(job(LLAMA, kind="torch"), built(LLAMA), rank=0, world=1)
    expected = steps(alone, batches(8), 4, 4)
    np.testing.assert_allclose(np.transpose([first["losses"], first["norms"]]), expected, atol=1e-4)
    # Gradients are cut off the graph by the bridge, so a step is several; none is made after the first two calls.
    assert first["graphs"]["micro_step"] == 1
    names = {**first["written"], **second["written"]}
    sizes = {name: first["written"].get(name, 0) + second["written"].get(name, 0) for name in names}
    state = {f"model.{name}": weight.numel() for name, weight in alone.model.named_parameters()}
    assert {name: sizes[name] for name in state} == state
    assert sizes["optimizer.step"] == 1
