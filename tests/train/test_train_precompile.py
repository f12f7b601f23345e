"""Compiling ahead: who is refused, what a cache holds, and what the library is told. The tracing is in tests/xla."""

import sys
import types

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.neuron_environment import cache_of
from raytrain_eks.train.precompile import compile_extracted, graphs, made_up, refuse_others


def job(engine: str) -> Job:
    return Job.parse(
        {
            "kind": "Job",
            "name": "ahead",
            "model": {"name": "some/model"},
            "data": {"train": "nowhere", "sequence_length": 16},
            "batch": {"sequences": 2},
            "optimizer": {"learning_rate": 1e-3},
            "engine": {"kind": engine},
            "stop": {"steps": 2},
        }
    )


def test_only_graphs_can_be_compiled_ahead():
    refuse_others(job("xla"))
    with pytest.raises(SpecError, match=r"engine\.kind = torch\n  only `xla`"):
        refuse_others(job("torch"))


@pytest.mark.parametrize(
    ("names", "there", "missing"),
    [
        ([], 0, []),
        (["neuronxcc-2.26/MODULE_1+a/model.neff", "neuronxcc-2.26/MODULE_1+a/model.done"], 1, []),
        (
            ["neuronxcc-2.26/MODULE_1+a/model.neff", "neuronxcc-2.26/MODULE_2+a/model.hlo_module.pb", "lock"],
            2,
            ["neuronxcc-2.26/MODULE_2+a"],
        ),
    ],
)
def test_a_graph_without_result_is_named(names, there, missing):
    assert graphs(names) == (there, missing)


def test_the_library_compiles_into_the_shared_cache(monkeypatch):
    told = []
    cache = types.ModuleType("libneuronxla.neuron_cc_cache")
    cache.CacheUrl = types.SimpleNamespace(get_cache_url=lambda given: f"url of {given}")
    parallel = types.ModuleType("libneuronxla.neuron_parallel_compile")
    parallel.parallel_compile = lambda folder, url: told.append((folder, url))
    for module in (types.ModuleType("libneuronxla"), cache, parallel):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    compile_extracted("s3://bucket/runs/.compile-cache")
    ((folder, url),) = told
    assert url == "url of s3://bucket/runs/.compile-cache"
    assert "precompile-" in folder


def test_without_the_library_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "libneuronxla", None)
    with pytest.raises(SpecError, match="neuron-trn1"):
        compile_extracted("cache")


def test_batches_are_whole_rows():
    batch = made_up(2, 8)
    assert set(batch) == {"input_ids", "labels", "position_ids", "segment_ids"}
    assert {(array.shape, str(array.dtype)) for array in batch.values()} == {((2, 8), "int64")}


@pytest.mark.parametrize(
    ("storage", "cache"),
    [
        ("/shared/runs", "/shared/runs/.compile-cache"),
        ("file:///shared/runs/", "/shared/runs/.compile-cache"),
        ("s3://bucket/runs", "s3://bucket/runs/.compile-cache"),
    ],
)
def test_the_cache_lies_beside_the_runs(storage, cache):
    assert cache_of(storage) == cache
