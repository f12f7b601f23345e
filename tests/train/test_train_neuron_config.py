"""Which backend a job gets, and that nothing of Neuron is imported to find out."""

import subprocess
import sys

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.train.neuron_backend import COMPILING, EXTRACT, NeuronBackend, config_for, take


def job(**engine) -> Job:
    return Job.parse(
        {
            "kind": "Job",
            "name": "config",
            "model": {"name": "some/model"},
            "data": {"train": "nowhere", "sequence_length": 16},
            "batch": {"sequences": 2},
            "optimizer": {"learning_rate": 1e-3},
            "engine": engine or {"kind": "auto"},
            "stop": {"steps": 2},
        }
    )


@pytest.mark.parametrize(
    ("engine", "resources", "runtime", "device"),
    [
        ({"kind": "xla"}, {"CPU": 1, "neuron_cores": 1}, "xla", "NEURON"),
        ({"kind": "xla"}, {"CPU": 1}, "xla", "CPU"),
        ({"kind": "torch"}, {"CPU": 1, "neuron_cores": 1}, "neuron", None),
        ({"kind": "auto"}, {"CPU": 1, "neuron_cores": 1}, "neuron", None),
        ({"kind": "torch"}, {"CPU": 1, "GPU": 1}, None, None),
        ({"kind": "deepspeed"}, {"CPU": 1}, None, None),
    ],
)
def test_the_backend_follows_engine_and_resources(engine, resources, runtime, device):
    config = config_for(job(**engine), resources, cache="/shared/.compile-cache", timeout=300)
    if runtime is None:
        assert config is None
    else:
        assert (config.runtime, config.defaults.get("PJRT_DEVICE")) == (runtime, device)
        assert config.backend_cls is NeuronBackend
        assert config.group == f"cpu:gloo,{runtime}:{runtime}"


def test_ranks_wait_for_one_that_compiles():
    config = config_for(job(kind="xla"), {"neuron_cores": 1}, cache="", timeout=300)
    assert config.timeout_s == COMPILING


def test_training_never_extracts():
    config = config_for(job(kind="xla"), {"neuron_cores": 1}, cache="", timeout=300)
    assert not config.extract
    assert not EXTRACT.keys() & config.defaults.keys()


def test_what_the_job_sets_wins_over_tuning_but_not_over_what_must_agree(monkeypatch):
    monkeypatch.setenv("NEURON_CC_FLAGS", "--mine")
    monkeypatch.setenv("RANK", "9")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "8")
    monkeypatch.delenv("MALLOC_ARENA_MAX")
    take({"RANK": "1"}, {"NEURON_CC_FLAGS": "--ours", "MALLOC_ARENA_MAX": "64"})
    import os

    assert (os.environ["RANK"], os.environ["NEURON_CC_FLAGS"], os.environ["MALLOC_ARENA_MAX"]) == ("1", "--mine", "64")


def test_an_environment_that_comes_too_late_is_an_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch_xla", object())
    with pytest.raises(RuntimeError, match="torch_xla was imported before"):
        take({}, {})


@pytest.mark.slow
def test_no_module_of_the_train_room_imports_neuron_at_its_top():
    program = (
        "import sys, importlib, pkgutil, raytrain_eks.train as room\n"
        "sys.meta_path.insert(0, type('Refuse', (), {'find_spec': staticmethod(lambda name, path=None, target=None: "
        "(_ for _ in ()).throw(AssertionError(name)) if name.split('.')[0] in "
        "('torch_xla', 'torch_neuronx', 'libneuronxla') else None)})())\n"
        "for found in pkgutil.walk_packages(room.__path__, room.__name__ + '.'):\n"
        "    if not found.name.endswith(('__main__', 'deepspeed')): importlib.import_module(found.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=900)
