"""Misspelt fields of a model's config are told; whatever else a config holds is left alone."""

import csv
from importlib.util import find_spec

import pytest

from raytrain_eks.spec import build_config_fields
from raytrain_eks.spec.config_fields import family_meant, misspelt, mistyped, one_slip
from raytrain_eks.spec.job_training import SIZES, ModelSource
from raytrain_eks.spec.problem import SpecError


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"model_type": "llama", "hidden_szie": 64}, {"hidden_szie": "hidden_size"}),
        ({"model_type": "llama", "num_hiden_layers": 2}, {"num_hiden_layers": "num_hidden_layers"}),
        ({"model_type": "llama", "intermediate_sizes": 2}, {"intermediate_sizes": "intermediate_size"}),
        ({"model_type": "qwen3", "vocabsize": 2}, {"vocabsize": "vocab_size"}),
        ({"model_type": "qwen3", "hidden-size": 2}, {"hidden-size": "hidden_size"}),
        ({"model_type": "bert", "numAttentionHeads": 2}, {"numAttentionHeads": "num_attention_heads"}),
        ({"model_type": "gpt2", "n_heads": 2, "n_layers": 2}, {"n_heads": "n_head", "n_layers": "n_layer"}),
        ({"model_type": "llama", "tie_word_embedding": True}, {"tie_word_embedding": "tie_word_embeddings"}),
    ],
)
def test_a_slip_is_told_with_the_field_that_was_meant(config, found):
    assert dict(misspelt(config, SIZES)) == found


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "llama", "hidden_size": 64, "rope_theta": 1e4, "rope_scaling": {}, "torch_dtype": "float32"},
        {"model_type": "gpt2", "hidden_size": 64, "n_ctx": 64, "task_specific_params": {}},
        {"model_type": "distilbert", "dim": 64, "n_heads": 2, "bos_token_id": 0, "sep_token_id": 1},
        {"model_type": "llama", "_attn_implementation": "sdpa", "my_own_field": 3, "note": "x"},
        {"model_type": "gpt2", "n_layer": 2, "n_layers": 2},
        {"model_type": "my_family", "hidden_szie": 64},
        {"model_type": "llama", "hid": 64, "hidden": 64},
        {"model_type": None, "hidden_szie": 64},
        {"hidden_szie": 64},
    ],
)
def test_what_is_no_slip_is_left_alone(config):
    assert list(misspelt(config, SIZES)) == []


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"tie_word_embeddings": "no"}, {"tie_word_embeddings": "true or false"}),
        ({"rms_norm_eps": "1e-5"}, {"rms_norm_eps": "a number"}),
        ({"hidden_act": 3, "pretraining_tp": 1.5}, {"hidden_act": "text", "pretraining_tp": "a whole number"}),
        ({"use_cache": 1, "attention_dropout": True}, {"use_cache": "true or false", "attention_dropout": "a number"}),
        ({"rms_norm_eps": 1, "use_cache": False, "hidden_act": "silu", "head_dim": None, "mine": {}}, {}),
        ({"eos_token_id": [1, 2], "rope_parameters": {"rope_theta": 1e4}}, {}),
    ],
)
def test_values_of_another_type(fields, found):
    assert dict(mistyped({"model_type": "llama", **fields})) == found
    assert dict(mistyped({"model_type": "my_family", **fields})) == {}


@pytest.mark.parametrize(
    ("config", "path", "words"),
    [
        ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 7}, "config.hidden_size", "63 or 70"),
        ({"model_type": "gpt2", "n_embd": 3, "n_head": 4}, "config.n_embd", "write 4"),
        (
            {"model_type": "qwen3", "num_attention_heads": 8, "num_key_value_heads": 3},
            "config.num_attention_heads",
            "6 or 9",
        ),
        ({"model_type": "qwen3", "hidden_size": 64, "num_attention_heads": 7}, None, ""),
        ({"model_type": "llama", "hidden_size": 64, "num_attention_heads": 8, "num_key_value_heads": 2}, None, ""),
        ({"model_type": "llama", "num_attention_heads": 7}, None, ""),
        ({"model_type": "llama", "hidden_size": [64], "num_attention_heads": 7}, None, ""),
    ],
)
def test_heads_divide_what_they_share(config, path, words):
    if path is None:
        assert ModelSource.parse({"config": config})
        return
    with pytest.raises(SpecError) as error:
        ModelSource.parse({"config": config})
    (problem,) = error.value.problems
    assert problem.path == path
    assert words in problem.fix


def test_one_mistake_in_a_size_is_one_problem():
    for size in ("64", 64.5, 0, True, {}):
        with pytest.raises(SpecError) as error:
            ModelSource.parse({"config": {"model_type": "llama", "hidden_size": size}})
        assert [problem.path for problem in error.value.problems] == ["config.hidden_size"], size
    assert ModelSource.parse({"config": {"model_type": "llama", "hidden_size": [64]}})


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        *(("lama", "llama"), ("mistrall", "mistral"), ("bret", "bert"), ("gpt-2", "gpt2"), ("Llama", "llama")),
        *(("xlm_roberta", "xlm-roberta"), ("llama", None), ("qwen4", None), ("olmoe2", None), ("opt2", None)),
        *(("mllama", None), ("gpt_neo", None), ("foo", None), ("phi4", None), ("my_llama", None), ("", None)),
    ],
)
def test_families(written, meant):
    assert family_meant(written) == meant


@pytest.mark.parametrize(
    ("written", "name", "expected"),
    [
        *(("szie", "size", True), ("siz", "size", True), ("ssize", "size", True), ("sixe", "size", True)),
        *(("size", "size", True), ("isez", "size", False), ("sizing", "size", False), ("", "size", False)),
        *(("a", "", False), ("ab", "ba", True), ("abc", "acbd", False)),
    ],
)
def test_one_slip(written, name, expected):
    assert one_slip(written, name) is expected


def test_the_message_names_family_and_field():
    with pytest.raises(SpecError) as error:
        ModelSource.parse({"config": {"model_type": "llama", "hidden_szie": 64}})
    (problem,) = error.value.problems
    assert problem.path == "config.hidden_szie"
    assert problem.rule == "no field of a llama config, which would ignore it; did you mean `hidden_size`?"
    with pytest.raises(SpecError, match="no family of transformers is called so; did you mean `llama`"):
        ModelSource.parse({"config": {"model_type": "lama"}})


def test_no_family_of_the_table_is_taken_for_another():
    with build_config_fields.TARGET.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["family"] for row in rows if row["family"] and family_meant(row["family"])] == []
    for row in rows:
        if row["fields"] and row["family"]:
            fields = [word.partition(":")[0] for word in row["fields"].split()]
            assert list(misspelt({"model_type": row["family"], **dict.fromkeys(fields, 1)}, SIZES)) == []


def test_the_table_is_what_transformers_has():
    if find_spec("transformers") is None:  # to import it would bring torch
        pytest.skip("transformers is not installed")
    source, version = build_config_fields.folder()
    with build_config_fields.TARGET.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if {row["source"] for row in rows} != {f"transformers {version}"}:
        pytest.skip(f"the table is of {rows[0]['source']}, installed is {version}")
    built = build_config_fields.table(source)
    assert {row["family"]: tuple(row["fields"].split()) for row in rows} == built
