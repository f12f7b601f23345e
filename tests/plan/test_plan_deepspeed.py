"""DeepSpeed's JSON follows from the job, and one's own settings must not contradict it."""

import json

import pytest

from raytrain_eks.plan.deepspeed import config
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError


def job(precision="bf16", **engine):
    return Job.parse(
        {
            "name": "zero",
            "model": {"name": "x"},
            "data": {"train": "x", "sequence_length": 8},
            "batch": {"sequences": 48},
            "optimizer": {"learning_rate": 0.01, "clip": 0.5},
            "precision": precision,
            "engine": {"kind": "deepspeed", **engine},
            "stop": {"steps": 1},
        }
    )


def made(own=None, precision="bf16", cuda=False, **engine):
    return config(job(precision, **engine), world=4, micro=3, accumulation=4, cuda=cuda, own=own)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize("cuda", [False, True])
def test_nothing_is_left_to_the_library(zero, cuda):
    found = made(zero=zero, cuda=cuda)
    assert '"auto"' not in json.dumps(found)
    batch = found["train_batch_size"], found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]
    assert batch == (48, 3, 4)
    assert found["zero_optimization"]["stage"] == zero
    assert found["torch_autocast"] == {"enabled": True, "dtype": "bfloat16"}
    # ZeRO-0 does not tell the norm, so the engine clips there.
    assert found["gradient_clipping"] == (0.5 if zero else 0.0)


@pytest.mark.parametrize(
    ("zero", "offload", "keys"),
    [
        (1, "none", []),
        (1, "optimizer", ["offload_optimizer"]),
        (3, "parameters", ["offload_optimizer", "offload_param"]),
    ],
)
def test_offloading(zero, offload, keys):
    found = made(zero=zero, offload=offload)["zero_optimization"]
    assert sorted(key for key in found if key.startswith("offload")) == keys


def test_precision_fp32_has_no_autocast():
    assert "torch_autocast" not in made(precision="fp32")


@pytest.mark.parametrize(
    ("own", "path", "words"),
    [
        ({"train_batch_size": 64}, "train_batch_size", "48"),
        ({"gradient_accumulation_steps": 1}, "gradient_accumulation_steps", "4"),
        ({"gradient_clipping": 1.0}, "gradient_clipping", "optimizer.clip is 0.5"),
        ({"fp16": {"enabled": True}}, "fp16.enabled", "precision is bf16"),
        ({"bf16": {"enabled": False}}, "bf16.enabled", "precision is bf16"),
        ({"optimizer": {"type": "Lamb"}}, "optimizer.type", "AdamW"),
        ({"optimizer": {"type": "AdamW", "params": {"lr": 0.1}}}, "optimizer.params.lr", "0.01"),
        ({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 9}}}, "scheduler.params", "schedule"),
        ({"zero_optimization": {"stage": 3}}, "zero_optimization.stage", "engine.zero is 2"),
        ({"zero_optimization": {"offload_param": {"device": "cpu"}}}, "offload_param.device", "engine.offload is none"),
        ({"zero_optimization": {"offload_optimizer": {"device": "nvme"}}}, "offload_optimizer.device", "memory"),
        ({"zero_optimization": {"reduce_bucket_size": "auto"}}, "reduce_bucket_size", "no value"),
        ({"zero_force_ds_cpu_optimizer": True}, "zero_force_ds_cpu_optimizer", "needs False"),
        ({"torch_autocast": {"dtype": "float16"}}, "torch_autocast.dtype", "bfloat16"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_contradictions_are_refused(own, path, words):
    with pytest.raises(SpecError) as refused:
        made(own, zero=2, offload="none")
    (problem,) = refused.value.problems
    assert path in problem.path
    assert words in problem.rule


def test_all_contradictions_are_told_at_once():
    own = {"train_batch_size": 1, "gradient_clipping": 2, "fp16": {"enabled": True}}
    with pytest.raises(SpecError) as refused:
        made(own)
    assert len(refused.value.problems) == 3


def test_settings_that_agree_are_taken_and_others_added():
    own = {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": 3,
        "gradient_clipping": 0.5,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": [0.9, 0.95]}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
        "zero_optimization": {"stage": 3, "overlap_comm": False, "reduce_bucket_size": 1000},
        "wall_clock_breakdown": True,
        "comms_logger": {"enabled": True},
    }
    found = made(own, cuda=True)
    expected = made(zero=3, cuda=True)
    expected["zero_optimization"] |= {"overlap_comm": False, "reduce_bucket_size": 1000}
    assert found == expected | {"wall_clock_breakdown": True, "comms_logger": {"enabled": True}}


def test_what_the_job_leaves_open_is_as_the_settings_say():
    own = {"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu", "pin_memory": True}}}
    found = made(own)["zero_optimization"]
    assert found["stage"] == 3
    assert found["offload_param"] == {"device": "cpu", "pin_memory": True}
    assert found["offload_optimizer"]["device"] == "cpu"
