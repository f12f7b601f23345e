"""What a job learns and how: the model, its adapters, the batch, the optimizer and the learning rate."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, TypeGuard

from pydantic import Field, NonNegativeFloat, PositiveFloat

from raytrain_eks.spec import quantity
from raytrain_eks.spec.job_data import Text
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Count, Share, StepsOrShare, Whole

SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("head_dim", "vocab_size", "n_embd", "n_layer", "n_head", "n_positions", "n_inner"),
)
"""Fields of a Hugging Face config that count something, in all families that have them."""
LARGEST_SIZE = 10**9
WHOLE_HEADS = ("arcee", "bert", "gemma2", "gpt2", "gpt_neox", "llama", "opt", "roberta")
"""Families whose code refuses a width that is no multiple of the heads (transformers 5.24); of others some do not."""


def is_size(value: object) -> TypeGuard[int]:
    """Whether a value of a config counts something: a whole number from 1 on that is not absurd."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= LARGEST_SIZE


def wrong_sizes(config: Mapping[str, Any]) -> Iterator[str]:
    """The fields of a config whose number is no size. A list (a size for each layer) and None are the family's."""
    for name in SIZES:
        value = config.get(name)
        if isinstance(value, str | int | float) and not is_size(value):
            yield name


class ModelSource(Model):
    """The model to train: pretrained by name or folder, or from scratch by a config."""

    name: Text | None = None
    """A name on the Hugging Face hub (`meta-llama/Llama-3.1-8B`), or a local folder with a `config.json`."""

    config: dict[str, Any] | None = None
    """A Hugging Face config to train from scratch: `model_type` and the fields that differ from its defaults. The
    vocabulary's size and the special tokens come from the tokenizer."""

    @rule
    def _one(self) -> Iterator[Problem]:
        if (self.name is None) == (self.config is None):
            fix = "`name` for a pretrained model, `config` to train one from scratch"
            yield Problem(path="", rule="needs exactly one of `name` and `config`", fix=fix)

    @rule
    def _family(self) -> Iterator[Problem]:
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            fix = "for example `model_type: llama`"
            yield Problem(path="config.model_type", rule="a config needs the model's family", fix=fix)

    @rule
    def _spelling(self) -> Iterator[Problem]:
        from raytrain_eks.spec.config_fields import family_meant, misspelt

        config = self.config or {}
        family = config.get("model_type")
        if isinstance(family, str) and (meant := family_meant(family)):
            rule = f"no family of transformers is called so; did you mean `{meant}`?"
            yield Problem(path="config.model_type", value=family, rule=rule)
        for name, meant in misspelt(config, SIZES):
            rule = f"no field of a {family} config, which would ignore it; did you mean `{meant}`?"
            yield Problem(path=f"config.{name}", rule=rule)

    @rule
    def _types(self) -> Iterator[Problem]:
        from raytrain_eks.spec.config_fields import mistyped

        config = self.config or {}
        for name, kind in mistyped(config):
            # What is no size is told below; a list of sizes, one for each layer, is some families' own.
            if name not in SIZES or isinstance(config[name], Mapping):
                yield Problem(path=f"config.{name}", rule=f"must be {kind}, or transformers refuses the config")

    @rule
    def _heads(self) -> Iterator[Problem]:
        config = self.config or {}
        width, heads = ("n_embd", "n_head") if "n_head" in config else ("hidden_size", "num_attention_heads")
        pairs = [(heads, "num_key_value_heads", "heads share keys and values in groups of one size")]
        if config.get("model_type") in WHOLE_HEADS:
            pairs.append((width, heads, "each head takes the same part of it"))
        for larger, smaller, why in pairs:
            whole, part = config.get(larger), config.get(smaller)
            if is_size(whole) and is_size(part) and whole % part:
                rule = f"must be a multiple of {smaller}, which is {part}: {why}"
                below, above = whole // part * part, (whole // part + 1) * part
                fix = f"write {below} or {above}" if below else f"write {above}"
                yield Problem(path=f"config.{larger}", rule=rule, fix=fix)

    @rule
    def _json(self) -> Iterator[Problem]:
        for path in _not_finite(self.config, "config"):
            yield Problem(path=path, rule="a config is JSON, which has no infinity and no NaN")

    @rule
    def _sizes(self) -> Iterator[Problem]:
        unlike = set(_not_finite(self.config, "config"))
        for path in (f"config.{name}" for name in wrong_sizes(self.config or {})):
            if path not in unlike:
                yield Problem(path=path, rule=f"must be a whole number from 1 to {LARGEST_SIZE:,}")

    @property
    def positions(self) -> int | None:
        """The longest sequence that a config allows, where it says so."""
        given = self.config or {}
        found = given.get("max_position_embeddings", given.get("n_positions"))
        return found if isinstance(found, int) and not isinstance(found, bool) else None


def _not_finite(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _not_finite(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _not_finite(item, f"{path}.{index}")


class Batch(Model):
    """The global batch of one optimizer step, the same at any number of workers."""

    tokens: Count | None = None
    """Tokens of the global batch (`4096`, `4M`), padding included: a multiple of `data.sequence_length`."""

    sequences: Whole | None = None
    """The global batch in sequences; instead of `tokens`."""

    micro: Whole | None = Aside(None)
    """Sequences of one forward and backward pass on one worker; accumulation follows from it. More need more memory.
    None: derived."""

    @rule
    def _one(self) -> Iterator[Problem]:
        if (self.tokens is None) == (self.sequences is None):
            fix = "for example `tokens: 4096`"
            yield Problem(path="", rule="needs exactly one of `tokens` and `sequences`", fix=fix)


class Optimizer(Model):
    """AdamW with decoupled weight decay (Loshchilov and Hutter 2019), which skips biases and norms."""

    learning_rate: PositiveFloat
    """The peak of the schedule, such as 3.0e-4."""

    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of matrices, times the learning rate at each step; biases and norms have none."""

    betas: Annotated[tuple[float, float], Field(strict=False)] = (0.9, 0.95)
    """Decay rates of the first and second moment per step, each at least 0 and below 1."""

    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""

    clip: PositiveFloat | None = 1.0
    """The largest global gradient norm; a larger one is scaled down to it. null: no clipping."""

    @rule
    def _betas(self) -> Iterator[Problem]:
        if not all(0 <= beta < 1 for beta in self.betas):
            yield Problem(path="betas", rule="each must be at least 0 and below 1", fix="usual are [0.9, 0.95]")


class Schedule(Model):
    """The learning rate over optimizer steps."""

    kind: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    """After the warm-up: a cosine or a line down to `minimum` at the last step, constant, or `wsd` (warm-up, stable,
    decay): constant until the last `decay` of the run, then a line down to `minimum`."""

    warmup: StepsOrShare = "3%"
    """Steps (`100`), or the part of the run (`3%`), in which the rate rises linearly to its peak."""

    minimum: Share = "10%"
    """The rate of the last step, as a part of the peak."""

    decay: StepsOrShare = "20%"
    """Only for `wsd`: steps, or the part of the run, in which the rate falls."""

    @rule
    def _decay_is_wsds(self) -> Iterator[Problem]:
        if "decay" in self.model_fields_set and self.kind != "wsd":
            fix = "write `kind: wsd`, or leave `decay` out"
            yield Problem(path="decay", rule=f"only `wsd` has a decay of its own; kind is {self.kind}", fix=fix)

    @rule
    def _constant_has_no_minimum(self) -> Iterator[Problem]:
        if "minimum" in self.model_fields_set and self.kind == "constant":
            yield Problem(
                path="minimum", rule="a constant rate never falls", fix="leave it out, or choose another kind"
            )

    @rule
    def _phases_fit(self) -> Iterator[Problem]:
        if self.kind != "wsd" or not isinstance(self.warmup, str) or not isinstance(self.decay, str):
            return
        if quantity.share(self.warmup) + quantity.share(self.decay) > 1:
            yield Problem(path="decay", rule=f"warm-up ({self.warmup}) and decay are more than the whole run")


class Lora(Model):
    """Low-rank adapters (Hu et al. 2021) on a frozen model."""

    rank: Whole
    """The inner dimension of the adapters; their number of parameters grows with it."""

    alpha: PositiveFloat | None = None
    """Scale of the adapters: what they add is multiplied by alpha/rank. None: twice the rank."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout in front of the adapters, as a probability."""

    target_modules: Annotated[list[Text], Field(min_length=1)] | None = None
    """Names of the linear layers that get one. None: all of them but the head."""


class Masking(Model):
    """What a masked language model has to find out (only with `task: mlm`). Each epoch hides other tokens; of the
    chosen ones 80% become the mask token, 10% a random one, 10% stay (Devlin et al. 2019)."""

    share: Share = "15%"
    """The part of each row's tokens that is chosen, rounded, at least one."""

    whole_words: bool = False
    """Choose all tokens of a word or none, instead of one by one."""

    @rule
    def _some(self) -> Iterator[Problem]:
        if not 0 < quantity.share(self.share) < 1:
            yield Problem(
                path="share", rule="leaves nothing to find out, or nothing to find it out from", fix="for example 15%"
            )
