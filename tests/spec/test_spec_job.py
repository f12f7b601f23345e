"""The Job model: what it accepts, and each of its rules."""

import pytest
from spec_job_file import job

from raytrain_eks.spec.fields import all_models, field_docs
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.model import Model, rules_of
from raytrain_eks.spec.problem import SpecError

PRETRAINED = {"model": {"name": "org/model"}, "tokenizer": None}


def problems(data):
    with pytest.raises(SpecError) as raised:
        Job.parse(data)
    return {found.path: found for found in raised.value.problems}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"name": "a"},
        {"name": "a" * 47},
        {"batch": {"sequences": 3}},
        {"batch": {"sequences": 16, "micro": 3}},
        {"stop": {"tokens": "2G"}},
        {"stop": {"epochs": 1}},
        {"data__train": [{"path": "s3://bucket/prefix"}, {"path": "python-stdlib:", "weight": 3}]},
        {"data__train": "~/text"},
        {"engine": {"kind": "deepspeed", "zero": 3, "offload": "parameters"}},
        {"engine": {"kind": "xla", "warmup": 2, "stochastic_rounding": True}},
        {"schedule": {"kind": "wsd", "warmup": 10, "decay": "50%"}},
        {"optimizer__betas": [0, 0.95]},
        {"optimizer__clip": 1},
        {"data__held_out": "0%"},
        {"environment": {"A_1": "1"}},
        {"lora": {"rank": 8}, **PRETRAINED},
        {"task": "sft", "data__format": "jsonl", "data__column": "messages"},
    ],
)
def test_what_is_right(changes):
    Job.parse(job(**changes))


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"name": "Quick_Start"}, "name", "write quick-start"),
        ({"name": "a" * 48}, "name", "at most 47"),
        ({"name": "a\n"}, "name", "lower-case"),
        ({"name": "1a"}, "name", "a letter first"),
        ({"model": {}}, "model", "exactly one of `name` and `config`"),
        ({"model__name": "x", "tokenizer": {"name": "y"}}, "model", "exactly one of `name` and `config`"),
        ({"model": {"name": ""}, "tokenizer": None}, "model.name", "must not be empty"),
        ({"model__config": {}}, "model.config.model_type", "needs the model's family"),
        ({"model__config__x": float("nan")}, "model.config.x", "no NaN"),
        ({"model__config__max_position_embeddings": 128}, "data.sequence_length", "which is 128"),
        ({"model__config__n_positions": 128}, "data.sequence_length", "which is 128"),
        ({"model__config__vocab_size": 500}, "model.config.vocab_size", "smaller than the tokenizer's, which is 1000"),
        ({"model__config__hidden_size": 0}, "model.config.hidden_size", "a whole number from 1"),
        ({"model__config__hidden_size": "64"}, "model.config.hidden_size", "a whole number from 1"),
        ({"model__config__num_hidden_layers": 2.5}, "model.config.num_hidden_layers", "a whole number from 1"),
        ({"model__config__num_attention_heads": True}, "model.config.num_attention_heads", "a whole number from 1"),
        ({"model__config__intermediate_size": 10**30}, "model.config.intermediate_size", "to 1,000,000,000"),
        ({"tokenizer": None}, "tokenizer", "brings no tokenizer"),
        ({"tokenizer": {}}, "tokenizer", "exactly one of `name` and `train`"),
        ({"model": {"name": "x"}}, "tokenizer.train", "only the vocabulary of its own tokenizer"),
        ({"lora": {"rank": 8}}, "lora", "learn nothing"),
        ({"lora": {"rank": 0}, **PRETRAINED}, "lora.rank", "greater than or equal to 1"),
        ({"lora": {"rank": 8, "target_modules": []}, **PRETRAINED}, "lora.target_modules", "must not be empty"),
        ({"task": "sft"}, "data.format", "reads chats from rows"),
        ({"data__train": ""}, "data.train", "must not be empty"),
        ({"data__train": []}, "data.train", "must not be empty"),
        ({"data__train": 3}, "data.train", "must be text or a list"),
        ({"data__train": "python-stdlib"}, "data.train", "a colon is missing"),
        ({"data__train": "http://x/y"}, "data.train", "nothing else can be read"),
        ({"data__train": "file:///x"}, "data.train", "write the plain path, without `file://`: /x"),
        ({"data__train": "s3://"}, "data.train", "s3://bucket/prefix"),
        ({"data__train": [{"path": "a", "wieght": 1}]}, "data.train.0.wieght", "did you mean `weight`?"),
        ({"data__train": [{"path": "a", "weight": 0}]}, "data.train.0.weight", "greater than 0"),
        ({"data__train": "x/y.parquet"}, "data.train", "hold rows"),
        ({"data__files": "**/*.jsonl"}, "data.files", "hold rows"),
        ({"data__column": "messages"}, "data.column", "no columns"),
        ({"data__held_out": "100%"}, "data.held_out", "nothing to train on"),
        ({"data__held_out": 0.05}, "data.held_out", "write 5.00%"),
        ({"data__sequence_length": 4}, "data.sequence_length", "greater than or equal to 8"),
        ({"batch": {}}, "batch", "exactly one of `tokens` and `sequences`"),
        ({"batch": {"micro": 8}}, "batch", "exactly one of `tokens` and `sequences`"),
        ({"batch__sequences": 4}, "batch", "exactly one of `tokens` and `sequences`"),
        ({"batch__tokens": 4000}, "batch.tokens", "multiple of data.sequence_length, which is 256"),
        ({"batch__tokens": 100}, "batch.tokens", "multiple"),
        ({"batch__micro": 17}, "batch.micro", "global batch, which is 16 sequences"),
        ({"optimizer__betas": [0.9]}, "optimizer.betas", "entry 2 of the list is missing"),
        ({"optimizer__betas": [0.9, 1.0]}, "optimizer.betas", "below 1"),
        ({"optimizer__learning_rate": float("inf")}, "optimizer.learning_rate", "finite"),
        ({"optimizer__learning_rate": "1e-3"}, "optimizer.learning_rate", "must be a number"),
        ({"schedule__decay": "10%"}, "schedule.decay", "only `wsd`"),
        ({"schedule": {"kind": "constant", "minimum": "10%"}}, "schedule.minimum", "never falls"),
        ({"schedule": {"kind": "wsd", "warmup": "60%", "decay": "60%"}}, "schedule.decay", "more than the whole run"),
        ({"schedule__warmup": 11}, "schedule.warmup", "ends during its warm-up: stop.steps is 10"),
        ({"engine": {"kind": "deepspeed", "offload": "parameters"}}, "engine.offload", "zero is 2"),
        ({"engine": {"kind": "deepspeed", "zero": 0, "offload": "optimizer"}}, "engine.offload", "nothing to offload"),
        ({"engine": {"kind": "deepspeed", "zero": 4}}, "engine.zero", "must be 0, 1, 2 or 3"),
        ({"engine": {}}, "engine", "needs the field `kind`"),
        ({"engine": {"kind": "tpu"}}, "engine.kind", "must be auto, torch, deepspeed or xla"),
        (
            {"engine": {"kind": "xla", "stochastic_rounding": True}, "precision": "fp32"},
            "engine.stochastic_rounding",
            "precision is fp32",
        ),
        ({"engine": "torch"}, "engine", "a mapping"),
        ({"stop": {}}, "stop", "at least one of"),
        ({"stop": {"steps": 10**30}}, "stop.steps", "less than or equal"),
        ({"stop": {"epochs": 0}}, "stop.epochs", "greater than or equal to 0.000001"),
        ({"stop": {"epochs": 1e300}}, "stop.epochs", "less than or equal to 1000000"),
        ({"batch": {"sequences": 2**62}}, "batch.sequences", "write at most 10000000"),
        ({"batch": {"sequences": 10_000_001}}, "batch.sequences", "no run has as many"),
        ({"checkpoint": {"every": 0}}, "checkpoint.every", "number of steps"),
        ({"data__held_out": "0%", "evaluate__every": 5}, "evaluate.every", "nothing is held out"),
        ({"data__held_out": "0%", "checkpoint__keep_best": 2}, "checkpoint.keep_best", "nothing is held out"),
        ({"workers": {"group": "a100"}}, "workers.group", "names no cluster file"),
        ({"workers": {"count": 0}}, "workers.count", "greater than or equal to 1"),
        ({"workers": {"count": 2, "min": 3}}, "workers.min", "write at most 2"),
        ({"environment": {"A": 1}}, "environment.A", "must be text"),
        ({"environment": {"1A": "x"}}, "environment.1A", "no digit first"),
        ({"storage": "gs://x"}, "storage", "nothing else can be read"),
        ({"seed": -1}, "seed", "greater than or equal to 0"),
        ({"seed": True}, "seed", "must be a whole number"),
        ({"precision": "fp16"}, "precision", "must be bf16 or fp32"),
        ({"tast": "sft"}, "tast", "did you mean `task`?"),
        ({"zzzzzz": 1}, "zzzzzz", "unknown field"),
        ({"optimizer": None}, "optimizer", "required and missing"),
        ({"optimizer": None, "optimzer": {"learning_rate": 1e-3}}, "optimzer", "did you mean `optimizer`?"),
        ({"optimizer": {"learning_rat": 1e-3}}, "optimizer.learning_rat", "did you mean `learning_rate`?"),
    ],
)
def test_what_is_wrong_is_named_alone(changes, path, words):
    found = problems(job(**changes))
    assert list(found) == [path]
    assert words in f"{found[path].rule} {found[path].fix}"


def test_rules_of_sound_fields_are_checked_beside_broken_ones():
    found = problems(
        job(
            name="X",
            batch__tokens=4000,
            engine={"kind": "deepspeed", "offload": "parameters"},
            optimizer__learning_rate=-1,
            optimizer__betas=[2, 2],
            model__config={"max_position_embeddings": 16},
            stop={},
            colour="red",
        )
    )
    assert set(found) == {
        "name",
        "batch.tokens",
        "engine.offload",
        "optimizer.learning_rate",
        "optimizer.betas",
        "model.config.model_type",
        "data.sequence_length",
        "stop",
        "colour",
    }


def test_a_rule_that_needs_a_broken_field_is_silent():
    assert list(problems(job(data__sequence_length="long"))) == ["data.sequence_length"]


def all_rules():
    return [(model, name) for model in all_models(Job) if issubclass(model, Model) for name in rules_of(model)]


def test_no_node_overrides_the_way_in_which_rules_are_run():
    assert len(all_rules()) > 15
    assert all(model.problems is Model.problems for model in all_models(Job))


@pytest.mark.parametrize("model", all_models(Job), ids=lambda model: model.__name__)
def test_every_field_says_what_it_does(model):
    docs = field_docs(model)
    assert model.__doc__
    for name in model.model_fields:
        assert len(docs.get(name, "")) > 5, f"{model.__name__}.{name} has no sentence under it"
        assert docs[name].endswith("."), f"{model.__name__}.{name} ends without a full stop"


@pytest.mark.parametrize(("batch", "sequences"), [({"tokens": "4096"}, 16), ({"sequences": 5}, 5)])
def test_global_sequences(batch, sequences):
    assert Job.parse(job(batch=batch)).global_sequences == sequences
