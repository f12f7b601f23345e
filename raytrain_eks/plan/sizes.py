"""How large a model is, from its Hugging Face config alone: exact counts of parameters, no weights and no torch.

Counts are those of transformers' own classes (5.24): of the causal language model, for BERT of the masked one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.spec.job_training import LARGEST_SIZE, SIZES, is_size
from raytrain_eks.spec.problem import shown

LLAMA_LIKE = ("llama", "mistral", "mixtral", "qwen2", "qwen3")
FAMILIES = (*LLAMA_LIKE, "gpt2", "bert")
COUNTED = (*SIZES, "num_local_experts", "num_experts_per_tok", "max_position_embeddings", "type_vocab_size")


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What memory, work and communication of a transformer follow from."""

    family: str
    layers: int
    width: int
    """d, the width of the residual stream."""
    heads: int
    key_heads: int
    """Heads of keys and values; fewer than `heads` where queries share them."""
    head_width: int
    inner: int
    """Width of the feed-forward part."""
    vocabulary: int
    tied: bool
    """Whether the head's matrix is the input embedding's."""
    experts: int
    active_experts: int
    parameters: int
    """All weights, tied ones once."""

    @property
    def embedding(self) -> int:
        """Weights of the input embedding."""
        return self.vocabulary * self.width

    @property
    def attention_width(self) -> int:
        """Heads times the width of a head."""
        return self.heads * self.head_width

    @property
    def linear(self) -> tuple[tuple[int, int], ...]:
        """Inputs and outputs of a layer's linear maps, those of each active expert."""
        keys = self.key_heads * self.head_width
        attention = [(self.width, self.attention_width), (self.width, keys), (self.width, keys)]
        attention.append((self.attention_width, self.width))
        gated = self.family in LLAMA_LIKE
        forward = [(self.width, self.inner)] * (2 if gated else 1) + [(self.inner, self.width)]
        return tuple(attention + forward * max(self.active_experts, 1))

    @property
    def active(self) -> int:
        """Weights that take part in the work on one token."""
        idle = max(self.experts - self.active_experts, 0)
        return self.parameters - self.layers * idle * 3 * self.width * self.inner


def of_config(config: Mapping[str, Any], *, vocabulary: int | None = None) -> Sizes | None:
    """The sizes of a config; None for a family whose arithmetic is not known here, or without its sizes.

    `vocabulary` stands in where the config leaves it to the tokenizer.
    """
    if unknown(config) is not None:
        return None
    family = str(config.get("model_type", ""))
    given = {key: value for key, value in config.items() if value is not None}
    given.setdefault("vocab_size", vocabulary)
    try:
        if family in LLAMA_LIKE:
            return _llama(family, given)
        if family == "gpt2":
            return _gpt2(given)
        if family == "bert":
            return _bert(given)
    except (KeyError, TypeError):
        return None
    return None


def unknown(config: Mapping[str, Any]) -> str | None:
    """Why a config's own words tell no sizes; None when they may."""
    family = str(config.get("model_type") or "")
    if family not in FAMILIES:
        return f"how the family {shown(family, most=40)} counts is not known here" if family else "it names no family"
    for name in COUNTED:
        if config.get(name) is not None and not is_size(config[name]):
            return f"its {name} is {shown(str(config[name]), most=40)}, not a whole number from 1 to {LARGEST_SIZE:,}"
    return None


def _llama(family: str, given: Mapping[str, Any]) -> Sizes:
    width, layers, heads = given["hidden_size"], given["num_hidden_layers"], given["num_attention_heads"]
    keys = given.get("num_key_value_heads", heads)
    head = given.get("head_dim", width // heads)
    inner, vocabulary = given["intermediate_size"], given["vocab_size"]
    tied = bool(given.get("tie_word_embeddings", False))
    experts = given.get("num_local_experts", 8) if family == "mixtral" else 0
    attention = 2 * width * heads * head + 2 * width * keys * head
    if family == "qwen2":
        attention += (heads + 2 * keys) * head
    if family == "qwen3":
        attention += 2 * head
    forward = 3 * width * inner
    if experts:
        forward = experts * forward + width * experts
    total = layers * (attention + forward + 2 * width) + width + vocabulary * width * (1 if tied else 2)
    return Sizes(
        family=family,
        layers=layers,
        width=width,
        heads=heads,
        key_heads=keys,
        head_width=head,
        inner=inner,
        vocabulary=vocabulary,
        tied=tied,
        experts=experts,
        active_experts=given.get("num_experts_per_tok", 2) if experts else 0,
        parameters=total,
    )


def _gpt2(given: Mapping[str, Any]) -> Sizes:
    width, layers = given.get("n_embd", 768), given.get("n_layer", 12)
    heads, vocabulary = given.get("n_head", 12), given["vocab_size"] or 50257
    inner = given.get("n_inner", 4 * width)
    each = 4 * width * width + 4 * width + 2 * width * inner + inner + width + 4 * width
    total = vocabulary * width + given.get("n_positions", 1024) * width + layers * each + 2 * width
    return _dense("gpt2", layers, width, heads, inner, vocabulary, total)


def _bert(given: Mapping[str, Any]) -> Sizes:
    width, layers, heads = given["hidden_size"], given["num_hidden_layers"], given["num_attention_heads"]
    inner, vocabulary = given["intermediate_size"], given["vocab_size"]
    positions, types = given.get("max_position_embeddings", 512), given.get("type_vocab_size", 2)
    each = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    head = width * width + width + 2 * width + vocabulary
    total = (vocabulary + positions + types) * width + 2 * width + layers * each + head
    return _dense("bert", layers, width, heads, inner, vocabulary, total)


def _dense(family: str, layers: int, width: int, heads: int, inner: int, vocabulary: int, total: int) -> Sizes:
    return Sizes(
        family=family,
        layers=layers,
        width=width,
        heads=heads,
        key_heads=heads,
        head_width=width // heads,
        inner=inner,
        vocabulary=vocabulary,
        tied=True,
        experts=0,
        active_experts=0,
        parameters=total,
    )
