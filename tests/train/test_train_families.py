"""Families of models: which ones keep packed documents apart, which are refused and why, and what is built."""

from pathlib import Path

import pytest
import torch

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.train.apart import apart, prove_apart, stand_in
from raytrain_eks.train.model import build_model, model_config, window
from raytrain_eks.train.sizes import shrunk

pytestmark = pytest.mark.slow

CAUSAL = ("llama", "qwen3", "mistral", "gpt2")
MASKED = ("bert", "roberta")
MORE = [
    *(
        (family, "pretrain")
        for family in ("qwen2", "gemma", "gemma2", "gemma3_text", "phi", "phi3", "olmo2", "gpt_neox")
    ),
    *((family, "pretrain") for family in ("opt", "mixtral", "qwen3_moe", "granite", "starcoder2", "smollm3", "lfm2")),
    *((family, "mlm") for family in ("distilbert", "electra", "albert", "modernbert", "xlm-roberta")),
]


class Words:
    """As much of a tokenizer as a config needs."""

    bos_token_id, eos_token_id, pad_token_id = 1, 2, 0

    def __init__(self, size: int = 97):
        self.size = size

    def __len__(self) -> int:
        return self.size


def job(task: str = "pretrain", model: dict | None = None, **fields) -> Job:
    return Job.parse(
        {
            "name": "x",
            "task": task,
            "model": model or {"config": {"model_type": "llama"}},
            **({} if model and "name" in model else {"tokenizer": {"name": "x"}}),
            "data": {"train": "x", "sequence_length": 16} | fields.pop("data", {}),
            "batch": {"sequences": 4},
            "optimizer": {"learning_rate": 0.1},
            "stop": {"steps": 1},
        }
        | fields
    )


def config_of(family: str):
    from transformers import AutoConfig

    return AutoConfig.for_model(family)


@pytest.mark.parametrize("family", CAUSAL)
def test_a_causal_family_keeps_documents_apart(family):
    assert prove_apart(job(), config_of(family))


@pytest.mark.parametrize("family", MASKED)
def test_a_masked_family_keeps_documents_apart(family):
    assert prove_apart(job("mlm"), config_of(family))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), MORE)
def test_many_families_keep_documents_apart(family, task):
    assert prove_apart(job(task), config_of(family))


def test_a_recurrent_family_is_refused_only_where_rows_are_packed():
    with pytest.raises(SpecError, match=r"data\.pack.*\n.*mixes documents of a packed row"):
        prove_apart(job(), config_of("recurrent_gemma"))
    assert prove_apart(job(data={"pack": False}), config_of("recurrent_gemma"))


def test_the_proof_can_fail():
    """A model that is given positions that do not restart, and one that is given no mask, is found."""
    model = stand_in(job(), config_of("llama"), "sdpa")
    assert apart(model, causal=True) < 1e-5
    forward = model.forward
    model.forward = lambda **given: forward(**given | {"attention_mask": None, "position_ids": None})
    assert apart(model, causal=True) > 1e-2


def small(family: str, **changed) -> dict:
    """A config to train from scratch, as a job has it."""
    sizes = shrunk(config_of(family).to_dict(), positions=32)
    wanted = {name: value for name, value in sizes.items() if isinstance(value, int | bool | str)}
    return {"model_type": family} | wanted | changed


@pytest.mark.parametrize(
    ("family", "task", "kind"),
    [
        ("llama", "pretrain", "LlamaForCausalLM"),
        ("qwen3", "sft", "Qwen3ForCausalLM"),
        ("gpt2", "pretrain", "GPT2LMHeadModel"),
        ("bert", "mlm", "BertForMaskedLM"),
    ],
)
def test_the_class_follows_the_task_and_the_seed_makes_the_weights(family, task, kind):
    fields = {"data": {"format": "jsonl"}} if task == "sft" else {}
    made = job(task, {"config": small(family)}, **fields)
    first = build_model(made, model_config(made, Words()))
    torch.manual_seed(12345)
    second = build_model(made, model_config(made, Words()))
    assert type(first).__name__ == kind
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))
    assert first.config.vocab_size == 97


def test_a_family_that_does_not_do_the_task_is_refused():
    made = job("mlm", {"config": small("llama")})
    with pytest.raises(SpecError, match="llama has no model for masked tokens"):
        build_model(made, model_config(made, Words()))


@pytest.mark.parametrize(
    ("family", "changed", "seen"),
    [
        ("llama", {}, None),
        ("mistral", {"sliding_window": 8}, 8),
        ("mistral", {"sliding_window": None}, None),
        ("qwen2", {"sliding_window": 8, "use_sliding_window": False}, None),
        ("gemma3_text", {"sliding_window": 8}, 8),
        ("gpt2", {}, None),
    ],
)
def test_how_far_back_a_model_sees(family, changed, seen):
    from transformers import AutoConfig

    assert window(AutoConfig.for_model(family, **changed)) == seen


def test_sequences_longer_than_the_window_are_refused():
    made = job("pretrain", {"config": small("mistral", sliding_window=8)})
    with pytest.raises(SpecError, match=r"sequence_length.*\n.*sliding window see, which is 8"):
        model_config(made, Words())
    model_config(job("pretrain", {"config": small("mistral", sliding_window=16)}), Words())


def test_positions_that_begin_later_reach_less_far():
    made = job("mlm", {"config": small("roberta", max_position_embeddings=16)})
    with pytest.raises(SpecError, match="has 16 positions and begins at number 1"):
        build_model(made, model_config(made, Words()))


def test_weights_that_are_missing_are_not_made_up(tmp_path: Path):
    from safetensors.torch import load_file, save_file

    made = job("pretrain", {"config": small("llama", tie_word_embeddings=False)})
    build_model(made, model_config(made, Words())).save_pretrained(tmp_path)
    named = job("pretrain", {"name": str(tmp_path)})
    build_model(named, model_config(named, Words()))
    weights = load_file(tmp_path / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SpecError, match=r"has no weights for lm_head\.weight"):
        build_model(named, model_config(named, Words()))


def test_a_folder_without_weights_is_refused_with_a_sentence(tmp_path: Path):
    made = job("pretrain", {"config": small("llama")})
    model_config(made, Words()).save_pretrained(tmp_path)
    named = job("pretrain", {"name": str(tmp_path)})
    with pytest.raises(SpecError, match="its weights cannot be opened"):
        build_model(named, model_config(named, Words()))


@pytest.mark.parametrize(
    ("family", "engine", "attention"),
    [
        ("llama", {"kind": "torch"}, "sdpa"),
        ("llama", {"kind": "torch", "attention": "eager"}, "eager"),
        ("gemma2", {"kind": "torch"}, "eager"),
    ],
)
def test_the_attention_of_a_family(family, engine, attention):
    from raytrain_eks.train import engines

    made = job("pretrain", {"config": small(family, sliding_window=16)}, engine=engine, precision="fp32")
    model = build_model(made, model_config(made, Words()))
    assert model.config._attn_implementation == attention
    built = engines.build(made, model, rank=0, world=1, micro=1, accumulation=1)
    assert model.config._attn_implementation == attention
    assert built.additive_masks == (attention == "eager")
    assert prove_apart(made, model.config)
