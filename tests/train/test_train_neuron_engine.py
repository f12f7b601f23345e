"""The native engine's class on a CPU in place of the device, with stand-ins for TorchNeuron's module and compiler."""

import types

import numpy as np
import pytest
import torch

from raytrain_eks.spec.job import Job
from raytrain_eks.train import engines
from raytrain_eks.train.compile_guard import NewGraph
from raytrain_eks.train.engines import common

pytestmark = pytest.mark.slow

MODEL = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
MODEL |= {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}


def job(**engine) -> Job:
    return Job.parse(
        {
            "kind": "Job",
            "name": "native",
            "model": {"config": {"model_type": "llama", **MODEL}},
            "tokenizer": {"name": "none"},
            "data": {"train": "nowhere", "format": "text", "sequence_length": 16},
            "batch": {"sequences": 2},
            "optimizer": {"learning_rate": 1e-3},
            "precision": "fp32",
            "engine": {"kind": "torch", **engine},
            "stop": {"steps": 2},
        }
    )


def model():
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    return LlamaForCausalLM(LlamaConfig(**MODEL, tie_word_embeddings=True)).float()


def batch(length: int = 16) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(length).integers(1, 64, (2, length))
    whole = np.ones_like(ids)
    return {"input_ids": ids, "labels": ids, "position_ids": np.arange(length)[None].repeat(2, 0), "segment_ids": whole}


@pytest.fixture
def native(monkeypatch):
    """The CPU in place of the device, and a compiler `neuron` that counts what it is given."""
    compiled = []

    def compiler(graph, inputs):
        compiled.append(graph)
        return graph.forward

    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    torch._dynamo.register_backend(compiler, name="neuron")
    monkeypatch.setattr(common, "native_device", lambda local_rank=0: torch.device("cpu"))
    yield compiled
    torch._dynamo.backends.registry._COMPILER_FNS.pop("neuron", None)
    torch._dynamo.backends.registry._BACKENDS.pop("neuron", None)
    torch._dynamo.reset()


def steps(engine, count: int, length: int = 16) -> list[list[float]]:
    told = []
    for _ in range(count):
        loss = engine.micro_step(engine.put(batch(length)), 2 * length - 2, last=True)
        told.append(engine.read(loss, engine.step(1e-3)))
    return told


def test_the_engine_is_chosen_by_the_device(native):
    from raytrain_eks.train.engines.neuron import NeuronEngine

    assert isinstance(engines.build(job(), model(), rank=0, world=1, micro=2, accumulation=1), NeuronEngine)


def test_eager_steps_are_the_torch_engines(native):
    from raytrain_eks.train.engines.torch import TorchEngine

    built = engines.build(job(), model(), rank=0, world=1, micro=2, accumulation=1)
    other = TorchEngine(job(), model(), rank=0, world=1)
    np.testing.assert_allclose(steps(built, 3), steps(other, 3), rtol=1e-6)
    assert native == []


def test_compiled_steps_are_the_same_and_a_new_shape_is_refused(native):
    from raytrain_eks.train.engines.torch import TorchEngine

    built = engines.build(job(compile=True), model(), rank=0, world=1, micro=2, accumulation=1)
    other = TorchEngine(job(), model(), rank=0, world=1)
    np.testing.assert_allclose(steps(built, 4), steps(other, 4), rtol=1e-5)
    graphs = len(native)
    assert graphs >= 1
    with pytest.raises(NewGraph, match=r"batch of \[2, 24\].*keep batches at \[2, 16\]"):
        steps(built, 1, length=24)
    assert len(native) == graphs
    whole = built.full_model()
    whole(input_ids=torch.ones(1, 5, dtype=torch.long))
    assert len(native) == graphs
    assert whole.lm_head.weight is whole.model.embed_tokens.weight


@pytest.mark.parametrize(
    ("name", "devices", "local_rank", "expected"),
    [
        ("neuron", 1, 3, "neuron:0"),
        ("neuron", 4, 3, "neuron:3"),
        ("neuron", 0, 0, None),
        ("privateuseone", 1, 0, None),
    ],
)
def test_the_device_is_found_where_torch_neuron_registered_it(monkeypatch, name, devices, local_rank, expected):
    module = types.SimpleNamespace(is_available=lambda: devices > 0, device_count=lambda: devices)
    monkeypatch.setattr(torch, "neuron", module, raising=False)
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: name)
    monkeypatch.setattr(common.torch, "device", lambda kind, index: f"{kind}:{index}")
    assert common.native_device(local_rank) == expected
