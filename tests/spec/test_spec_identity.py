"""What makes two files the same run."""

import json

import pytest
from spec_job_file import job

from raytrain_eks.spec.identity import Difference, differences, identity_hash
from raytrain_eks.spec.job import Job

BASE = Job.parse(job())


def through_json(model):
    return json.loads(json.dumps(model.identity()))


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"cluster": "c.yaml"},
        {"workers": {"count": 7, "cpus": 1}},
        {"batch__micro": 2},
        {"engine": {"kind": "deepspeed", "zero": 1}},
        {"checkpoint": {"every": 5, "keep": 9, "keep_best": 0, "mirror": "s3://bucket/x"}},
        {"evaluate": {"every": 5, "sequences": 3}},
        {"stop": {"epochs": 100}},
        {"failures": {"restarts": 0, "hang": "1h"}},
        {"sample": {"prompts": ["x"]}},
        {"environment": {"A": "b"}},
        {"storage": "s3://bucket/x"},
        {"data__bad_rows": "50%"},
        # the same values in another spelling, and defaults written out
        {"batch__tokens": "4096"},
        {"optimizer__weight_decay": 0.1, "optimizer__betas": [0.9, 0.95]},
        {"schedule": {"warmup": "3.0%"}},
        {"data__held_out": "5.00%"},
        {"tokenizer__train__sample": 16_000_000},
        {"precision": "bf16"},
        {"seed": 0},
    ],
)
def test_what_changes_nothing_that_is_learnt(changes):
    other = Job.parse(job(**changes))
    assert identity_hash(other) == identity_hash(BASE)
    assert differences(through_json(BASE), other) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"optimizer__learning_rate": 0.002}, [("optimizer.learning_rate", 0.001, 0.002)]),
        ({"model__config__model_type": "qwen2"}, [("model.config.model_type", "llama", "qwen2")]),
        ({"model__config__x": 1}, [("model.config.x", None, 1)]),
        ({"tokenizer__train__vocab_size": 2000}, [("tokenizer.train.vocab_size", 1000, 2000)]),
        ({"data__train": "s3://bucket/x"}, [("data.train", "text", "s3://bucket/x")]),
        ({"data__held_out": "6%"}, [("data.held_out", "5%", "6%")]),
        ({"data__pack": False}, [("data.pack", True, False)]),
        ({"batch__tokens": "8192"}, [("batch.tokens", 4096, 8192)]),
        ({"batch": {"sequences": 16}}, [("batch.tokens", 4096, None), ("batch.sequences", None, 16)]),
        ({"schedule": {"kind": "linear"}}, [("schedule.kind", "cosine", "linear")]),
        ({"schedule": {"warmup": 5}}, [("schedule.warmup", "3%", 5)]),
        ({"precision": "fp32"}, [("precision", "bf16", "fp32")]),
        ({"seed": 1}, [("seed", 0, 1)]),
        ({"task": "mlm", "seed": 2}, [("task", "pretrain", "mlm"), ("seed", 0, 2)]),
    ],
)
def test_what_changes_the_result_is_named_with_both_values(changes, expected):
    other = Job.parse(job(**changes))
    assert identity_hash(other) != identity_hash(BASE)
    found = differences(through_json(BASE), other)
    assert [(one.path, one.old, one.new) for one in found] == expected


def test_a_mixture_is_compared_entry_by_entry():
    sources = [{"path": "a"}, {"path": "b", "weight": 2.0}]
    old = Job.parse(job(data__train=sources))
    new = Job.parse(job(data__train=[sources[0], {"path": "b", "weight": 3}]))
    assert differences(through_json(old), new) == [Difference(path="data.train.1.weight", old=2.0, new=3)]


def test_a_field_that_an_earlier_version_did_not_have_does_not_differ_at_its_default():
    known = through_json(BASE)
    del known["seed"], known["optimizer"]["clip"], known["schedule"]
    assert differences(known, BASE) == []
    other = Job.parse(job(seed=3))
    assert [one.path for one in differences(known, other)] == ["seed"]


def test_a_field_that_is_gone_is_named():
    known = through_json(BASE) | {"gone": 1}
    assert differences(known, BASE) == [Difference(path="gone", old=1, new=None)]


def test_numbers_compare_by_value_and_truth_values_do_not():
    known = through_json(BASE)
    known["optimizer"]["clip"] = 1
    assert differences(known, BASE) == []
    known["optimizer"]["clip"] = True
    assert [one.path for one in differences(known, BASE)] == ["optimizer.clip"]


def test_a_difference_reads_as_a_problem():
    text = str(Difference(path="seed", old=0, new=1).problem())
    assert text == "seed = 1\n  the run was started with 0"


def test_the_hash_is_stable():
    assert identity_hash(Job.parse(job())) == identity_hash(Job.parse(dict(reversed(job().items()))))
    assert len(identity_hash(BASE)) == 64
