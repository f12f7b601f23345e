"""Memory by engine, what fits, and what an accelerator cannot run."""

import pytest

from raytrain_eks.catalog import instance
from raytrain_eks.plan.forecast import alternatives, device_of, forecast
from raytrain_eks.plan.known import by_name
from raytrain_eks.plan.memory import memory_of
from raytrain_eks.plan.sizes import of_config
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError

GB = 1e9


def job(engine: dict, **fields) -> Job:
    base = {
        "name": "x",
        "model": {"name": "meta-llama/Llama-3.1-8B"},
        "data": {"train": "x", "sequence_length": 4096},
        "batch": {"sequences": 64, "micro": 1},
        "optimizer": {"learning_rate": 1.0},
        "engine": engine,
        "stop": {"steps": 100},
    }
    return Job.parse(base | fields)


def sizes(name: str = "llama-3-8b"):
    found = of_config(by_name(name) or {})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("engine", "weights", "gradients", "moments", "host"),
    [
        # Of P = 8.03e9 on 8 workers: 4 P, 4 P and 8 P bytes, each divided by 8 where it is sharded.
        ({"kind": "torch"}, 32.12, 32.12, 64.24, 0),
        ({"kind": "deepspeed", "zero": 0}, 32.12, 32.12, 64.24, 0),
        ({"kind": "deepspeed", "zero": 1}, 32.12, 32.12, 8.03, 0),
        ({"kind": "deepspeed", "zero": 2}, 32.12, 4.015, 8.03, 0),
        ({"kind": "deepspeed", "zero": 3}, 4.015, 4.015, 8.03, 0),
        ({"kind": "torch", "fsdp": True}, 4.015, 4.015, 8.03, 0),
        ({"kind": "torch", "fsdp": True, "tensor": 2}, 4.015, 4.015, 8.03, 0),
        ({"kind": "torch", "tensor": 8}, 4.015, 4.015, 8.03, 0),
        ({"kind": "deepspeed", "zero": 2, "offload": "optimizer"}, 32.12, 4.015, 0, 16.06),
        ({"kind": "deepspeed", "zero": 3, "offload": "parameters"}, 0, 4.015, 0, 20.08),
        ({"kind": "xla"}, 32.12, 32.12, 64.24, 0),
        ({"kind": "xla", "stochastic_rounding": True}, 16.06, 16.06, 32.12, 0),
    ],
)
def test_the_state_of_each_engine(engine, weights, gradients, moments, host):
    found = memory_of(job(engine), sizes(), world=8, micro=1)
    parts = [found.weights / GB, found.gradients / GB, found.moments / GB, found.host / GB]
    assert parts == pytest.approx([weights, gradients, moments, host], rel=1e-2, abs=1e-9)


def test_adapters_train_little():
    small = memory_of(job({"kind": "torch", "fsdp": True}, lora={"rank": 16}), sizes(), world=8, micro=1)
    assert small.weights == memory_of(job({"kind": "torch", "fsdp": True}), sizes(), world=8, micro=1).weights
    # 16 x (inputs + outputs) of seven maps in 32 layers: 41,943,040 weights (peft's own count).
    assert small.gradients * 8 / 4 == 41_943_040


def test_logits_and_recomputation():
    """16 GiB of fp32 logits at 32,768 tokens of a vocabulary of 128,256 (ml-engineering's measurement), 34 s b h."""
    long = {"data": {"train": "x", "sequence_length": 32768}}
    found = memory_of(job({"kind": "torch"}, **long), sizes(), world=1, micro=1)
    assert found.logits == pytest.approx(15.66 * 2**30 * 10 / 4, rel=1e-3)
    assert found.activations == 34 * 32768 * 4096 * 32
    full = memory_of(job({"kind": "torch", "activation_checkpointing": "full"}, **long), sizes(), world=1, micro=1)
    assert full.activations == 32 * 2 * 32768 * 4096 + 34 * 32768 * 4096


@pytest.mark.parametrize(
    ("type", "name", "memory", "flops"),
    [
        ("p4d.24xlarge", "A100", 40 * 2**30, 312e12),
        ("p5.48xlarge", "H100", 80 * 2**30, 989e12),
        ("trn1.32xlarge", "NeuronCore of Trainium1", 16 * 2**30, 95e12),
    ],
)
def test_an_accelerator_as_a_worker_sees_it(type, name, memory, flops):
    found = device_of(instance(type))
    assert found is not None
    assert (found.name, found.memory) == (name, memory)
    assert found.flops == pytest.approx(flops, rel=0.01)


def test_no_accelerator():
    assert device_of(instance("m6i.2xlarge")) is None
    assert device_of(None) is None
    told = forecast(job({"kind": "torch"}), sizes(), None, world=2)
    assert (told.fits, told.tokens_per_second, told.seconds) == (None, None, None)


def test_what_does_not_fit_and_what_would():
    told = forecast(job({"kind": "torch"}), sizes(), instance("p4d.24xlarge"), world=32)
    assert told.fits is False
    found = alternatives(job({"kind": "torch"}), sizes(), instance("p4d.24xlarge"), world=32)
    assert found
    assert all(each.fits for _, each in found)
    assert {"kind": "torch"} not in [other.written()["engine"] for other, _ in found]
    assert alternatives(job({"kind": "torch"}), sizes("llama-3.1-405b"), instance("g6.xlarge"), world=1) == []


def test_alternatives_of_adapters_leave_out_what_they_cannot_have():
    lora = job({"kind": "xla"}, lora={"rank": 8})
    found = alternatives(lora, sizes("llama-3-70b"), instance("p5.48xlarge"), world=64)
    assert found
    assert all(other.lora is not None for other, _ in found)


def test_time_at_the_assumed_utilisation():
    told = forecast(job({"kind": "torch", "fsdp": True}), sizes(), instance("p5.48xlarge"), world=32)
    # torchtitan's 6,785 tokens/s a GPU at 39.73 % were for sequences of 8,192; shorter ones cost less a token.
    assert told.tokens_per_second is not None
    assert told.tokens_per_second / 32 == pytest.approx(7670, rel=0.02)
    assert told.seconds == pytest.approx(100 * 64 * 4096 / told.tokens_per_second)


@pytest.mark.parametrize(
    ("type", "engine", "said"),
    [
        ("trn1.32xlarge", {"kind": "torch"}, "native PyTorch begins with Trainium2"),
        ("trn1.32xlarge", {"kind": "auto"}, "write `engine: {kind: xla}`"),
        ("trn2.48xlarge", {"kind": "deepspeed"}, "no kernels for Trainium2"),
        ("p5.48xlarge", {"kind": "xla"}, "has GPUs"),
    ],
)
def test_engines_that_an_accelerator_cannot_run(type, engine, said):
    with pytest.raises(SpecError, match=said.replace("{", r"\{")):
        forecast(job(engine), sizes(), instance(type), world=8)


@pytest.mark.parametrize(("type", "engine"), [("trn2.48xlarge", {"kind": "torch"}), ("trn1.32xlarge", {"kind": "xla"})])
def test_engines_that_it_can(type, engine):
    forecast(job(engine), sizes(), instance(type), world=8)
