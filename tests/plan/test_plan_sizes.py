"""Parameter counts are exact, by the config and by the name."""

import os

import pytest

from raytrain_eks.plan.known import by_name, model_of, rows
from raytrain_eks.plan.sizes import of_config
from raytrain_eks.spec.job import Job

# What transformers 5.24 counts on the meta device.
COUNTS = {
    "meta-llama/Llama-2-7b-hf": 6738415616,
    "Llama-2-13B": 13015864320,
    "Llama-2-70b-chat-hf": 68976648192,
    "meta-llama/Meta-Llama-3-8B-Instruct": 8030261248,
    "/shared/models/Llama-3.1-70B": 70553706496,
    "meta-llama/Llama-3.1-405B": 405853388800,
    "meta-llama/Llama-3.2-1B": 1235814400,
    "meta-llama/Llama-3.2-3B-Instruct/": 3212749824,
    "mistralai/Mixtral-8x7B-v0.1": 46702792704,
    "mistralai/Mistral-7B-v0.3": 7241732096,
    "TinyLlama-1.1B-Chat-v1.0": 1100048384,
    "google-bert/bert-large-uncased": 335174458,
    "gpt2": 124439808,
    "openai-community/gpt2-medium": 354823168,
    "gpt2-large": 774030080,
    "gpt2-xl": 1557611200,
}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_known_names(name, count):
    found = of_config(by_name(name) or {})
    assert found is not None
    assert found.parameters == count


def test_experts_that_idle_do_no_work():
    found = of_config(by_name("mixtral-8x7b") or {})
    assert found is not None
    assert found.active == 12879925248


@pytest.mark.parametrize("name", ["somebody/mystery-7b", "FacebookAI/roberta-large", ""])
def test_names_that_say_nothing(name):
    assert by_name(name) is None


@pytest.mark.slow
@pytest.mark.parametrize("row", rows(), ids=lambda row: row["pattern"])
def test_transformers_counts_the_same(row):
    """Every row as a model without memory, and two of the families whose sizes no name is known for."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

    given = {key: value for key, value in row.items() if key not in ("pattern", "model_type")}
    for family in {row["model_type"], *(["qwen2", "qwen3"] if row["pattern"] == "tinyllama" else [])}:
        kind = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
        extra = {"head_dim": 64} if family == "qwen3" else {}
        with torch.device("meta"):
            model = kind.from_config(AutoConfig.for_model(family, **given, **extra))
        found = of_config({"model_type": family, **given, **extra})
        assert found is not None
        assert found.parameters == sum(weight.numel() for weight in model.parameters())


def job(**fields) -> Job:
    base = {
        "name": "x",
        "data": {"train": "x", "sequence_length": 256},
        "batch": {"sequences": 8},
        "optimizer": {"learning_rate": 1.0},
        "stop": {"steps": 1},
    }
    return Job.parse(base | fields)


def test_the_vocabulary_of_a_tokenizer_to_be_trained():
    config = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 4}
    config |= {"num_attention_heads": 4, "tie_word_embeddings": True}
    sizes, source = model_of(job(model={"config": config}, tokenizer={"train": {"vocab_size": 4096}}))
    assert sizes is not None
    assert (sizes.parameters, source) == (4212992, "the job's config")


def test_a_folder_is_read_before_its_name_is(tmp_path):
    folder = tmp_path / "llama-3-8b"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 2, "vocab_size": 9}'
    )
    sizes, source = model_of(job(model={"name": str(folder)}))
    assert sizes is not None
    assert (sizes.family, sizes.layers) == ("gpt2", 1)
    assert source == str(folder / "config.json")
    (folder / "config.json").write_text("not JSON")
    sizes, _ = model_of(job(model={"name": str(folder)}))
    assert sizes is not None
    assert sizes.parameters == COUNTS["meta-llama/Meta-Llama-3-8B-Instruct"]
    assert model_of(job(model={"name": "somebody/mystery"}))[0] is None


WHOLE = '"intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "vocab_size": 9'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f'{{"model_type": "llama", "hidden_size": 0, {WHOLE}}}', "its hidden_size is 0, not a whole number"),
        (f'{{"model_type": "llama", "hidden_size": "8", {WHOLE}}}', "its hidden_size is 8, not a whole number"),
        (f'{{"model_type": "llama", "hidden_size": Infinity, {WHOLE}}}', "its hidden_size is inf"),
        (f'{{"model_type": "llama", "hidden_size": 1e999, {WHOLE}}}', "its hidden_size is inf"),
        (f'{{"model_type": "llama", "hidden_size": [8, 8], {WHOLE}}}', "its hidden_size is [8, 8]"),
        ('{"model_type": "mixtral", "num_local_experts": -1}', "its num_local_experts is -1"),
        ('{"model_type": "llama"}', "it does not say all sizes"),
        ('{"model_type": "t5"}', "how the family t5 counts is not known here"),
        ('{"model_type": null}', "it names no family"),
        ("[1, 2]", "no config.json can be read here"),
        ("[" * 100_000, "no config.json can be read here"),
        ("\xff", "no config.json can be read here"),
        (" " * 2**20 + "{}", "no config.json can be read here"),
    ],
)
def test_a_config_that_tells_no_sizes_has_a_reason(text, reason, tmp_path):
    (tmp_path / "config.json").write_bytes(text.encode("latin-1"))
    sizes, source = model_of(job(model={"name": str(tmp_path)}))
    assert sizes is None
    assert reason in source


@pytest.mark.timeout(20)
def test_a_config_that_is_no_file_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "config.json")
    assert model_of(job(model={"name": str(tmp_path)}))[0] is None
    assert model_of(job(model={"name": "~nobody-of-this-name/x"}))[0] is None
