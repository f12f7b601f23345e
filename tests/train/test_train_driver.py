"""What the driver decides before anything trains."""

from types import SimpleNamespace

import pytest

from raytrain_eks import __version__
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.driver import anywhere, check_client, run_steps
from raytrain_eks.train.trainer import RESIZE, Planned, trainer, worker_resources, workers


def job(**top) -> Job:
    fields = {
        "name": "j",
        "model": {"name": "m"},
        "data": {"train": "x", "sequence_length": 64},
        "batch": {"sequences": 8},
        "optimizer": {"learning_rate": 1e-3},
        "stop": {"steps": 10},
    }
    return Job.parse(fields | top)


@pytest.mark.parametrize(
    ("stop", "steps"),
    [
        ({"steps": 7}, 7),
        ({"tokens": "2k"}, 4),  # 512 tokens a step, the last one begun
        ({"epochs": 0.5}, 50),
        ({"epochs": 2, "steps": 30}, 30),  # the first that holds
        ({"tokens": 1024, "steps": 30}, 2),
    ],
)
def test_the_first_stop_condition_ends_the_run(stop, steps):
    prepared = SimpleNamespace(steps=lambda epochs, batch: int(epochs * 800 / batch))
    assert run_steps(job(stop=stop), prepared) == steps


def test_local_folders_reach_workers_as_absolute_paths(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path)
    made = anywhere(job(model={"name": "here"}, tokenizer={"name": "./here"}))
    assert made.model.name == made.tokenizer.name == str(tmp_path / "here")
    assert anywhere(job(model={"name": "org/model"})).model.name == "org/model"


@pytest.mark.parametrize(
    ("asked", "resources", "count"),
    [
        ({}, {"CPU": 1.0}, 1),
        ({}, {"CPU": 2.0}, 1),
        ({}, {"CPU": 64.0}, 2),  # more processes on a CPU only share its cores
        ({}, {"CPU": 96.0, "GPU": 8.0}, 8),
        ({"count": 4}, {"CPU": 96.0, "GPU": 8.0}, 4),
        ({"count": 16, "min": 8}, {"CPU": 96.0, "GPU": 8.0}, 16),  # it begins with what is there
        ({"nodes": 1}, {"CPU": 192.0, "GPU": 16.0, "node:a": 1.0, "node:b": 1.0}, 8),
        ({}, {"CPU": 128.0, "neuron_cores": 32.0}, 32),
    ],
)
def test_one_worker_for_each_accelerator(asked, resources, count):
    assert workers(job(workers=asked), resources) == count


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "expected"), [({"count": 2, "min": 1}, (1, 2)), ({"count": 2, "min": 2}, 2)])
def test_a_job_that_may_shrink_is_an_elastic_one_for_ray(asked, expected, monkeypatch):
    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0})
    made = trainer(job(workers=asked), {"storage": "/nowhere"})
    assert made.scaling_config.num_workers == expected
    assert made.scaling_config.elastic_resize_monitor_interval_s == RESIZE


@pytest.mark.slow
def test_ray_train_starts_no_actor_that_a_run_does_not_use(monkeypatch):
    from ray.train.torch import TorchTrainer

    from raytrain_eks.train.lean import UNNEEDED

    monkeypatch.setattr("ray.cluster_resources", lambda: {"CPU": 2.0})
    made = trainer(job(), {"storage": "/nowhere"})
    ours = [type(callback) for callback in made._create_default_callbacks()]
    stock = [type(callback) for callback in TorchTrainer._create_default_callbacks(made)]
    assert set(UNNEEDED) <= set(stock)
    assert ours == [kind for kind in stock if kind not in UNNEEDED]


def test_the_plan_counts_workers_of_a_cluster_that_has_none_yet():
    planned = Planned.parse("32xGPU")
    assert workers(job(workers={"nodes": 4}), {"CPU": 8.0}, planned) == 32
    assert worker_resources(job(workers={"cpus": "2"}), {"CPU": 8.0}, planned) == {"CPU": 2.0, "GPU": 1.0}
    assert worker_resources(job(), {"CPU": 8.0, "GPU": 8.0}, Planned.parse("2xCPU")) == {"CPU": 1.0}
    assert str(planned) == "32xGPU"
    for bad in ("32", "0xGPU", "GPU", "3xTPU", "-1xCPU"):
        with pytest.raises(ValueError, match="32xGPU"):
            Planned.parse(bad)


def test_an_image_with_another_version_is_refused_with_both_named():
    check_client(None)
    check_client(__version__)
    check_client(__version__.rpartition(".")[0] + ".99")
    with pytest.raises(SpecError, match=rf"the image has raytrain-eks {__version__}, and 9\.9\.0 submitted"):
        check_client("9.9.0")
