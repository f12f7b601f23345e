"""Small models of any family of transformers: the config of a large one with small numbers in it."""

from collections.abc import Mapping
from typing import Any

SMALL: dict[str, int] = {
    # Llama, Qwen, Mistral, Gemma, BERT and most others
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "head_dim": 16,
    "embedding_size": 64,
    # GPT-2, GPT-J, Falcon
    "n_embd": 64,
    "n_inner": 128,
    "n_layer": 2,
    "n_head": 4,
    # OPT, DistilBERT, MPT
    "ffn_dim": 128,
    "word_embed_proj_dim": 64,
    "dim": 64,
    "hidden_dim": 128,
    "n_layers": 2,
    "n_heads": 4,
    "d_model": 64,
    # mixtures of experts
    "num_local_experts": 4,
    "num_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
"""Field of a config -> its value in a small model."""
POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len")
GROUPED = 2
"""Key-value heads of a model in which several query heads share one."""
LEFT_OUT = {
    *("layer_types", "_name_or_path", "architectures", "dtype", "torch_dtype", "quantization_config"),
    *("transformers_version", "model_type", "vocab_size", "pruned_heads", "id2label", "label2id"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "sep_token_id", "cls_token_id", "decoder_start_token_id"),
    *("max_window_layers",),
}
"""Fields that belong to the large model's weights or tokenizer, or that have one entry for each of its layers."""


def shrunk(config: Mapping[str, Any], *, positions: int, vocabulary: int | None = None) -> dict[str, Any]:
    """The fields of a small config of the same family: what is not a size stays what it was (tied weights, biases,
    activations, rotary embeddings). `vocabulary`: None leaves it out."""
    small = {name: value for name, value in config.items() if name not in LEFT_OUT and value is not None}
    small |= {name: size for name, size in SMALL.items() if isinstance(config.get(name), int)}
    small |= {name: positions for name in POSITIONS if isinstance(config.get(name), int)}
    heads, keys = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if isinstance(heads, int) and isinstance(keys, int) and keys < heads:
        small["num_key_value_heads"] = GROUPED
    if vocabulary is not None:
        small["vocab_size"] = vocabulary
    return small
