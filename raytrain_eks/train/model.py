"""Building the model of a job: from a Hugging Face config with random weights, or pretrained from a folder or hub; with
adapters where the job trains those alone."""

import os
from pathlib import Path
from typing import Any

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id")


def model_config(job: Job, tokenizer: Any) -> Any:
    """The `transformers` config of the job's model, its vocabulary and special tokens being the tokenizer's.

    Raises SpecError for a family that transformers does not know, a folder without `config.json`, a vocabulary that is
    smaller than the tokenizer's, and positions that are fewer than the sequence length.
    """
    config = _from_scratch(job, tokenizer) if job.model.config is not None else _pretrained(job)
    problems = []
    vocabulary = getattr(config, "vocab_size", None)
    if isinstance(vocabulary, int) and vocabulary < len(tokenizer):
        rule = f"is smaller than the tokenizer's vocabulary, which has {len(tokenizer)} entries"
        fix = "leave vocab_size out, or name the model's own tokenizer"
        problems.append(Problem(path="model.config.vocab_size", rule=rule, value=str(vocabulary), fix=fix))
    positions = getattr(config, "max_position_embeddings", None)
    if isinstance(positions, int) and positions < job.data.sequence_length:
        rule = f"is longer than the model's max_position_embeddings, which is {positions}"
        value = str(job.data.sequence_length)
        fix = f"write at most {positions}"
        problems.append(Problem(path="data.sequence_length", rule=rule, value=value, fix=fix))
    seen = window(config)
    if seen is not None and seen < job.data.sequence_length:
        rule = f"is longer than what the model's layers with a sliding window see, which is {seen} tokens: packed rows "
        rule += "have a mask of their own, which knows no window"
        value, fix = str(job.data.sequence_length), f"write at most {seen}, or `sliding_window: null` in the config"
        problems.append(Problem(path="data.sequence_length", rule=rule, value=value, fix=fix))
    if problems:
        raise SpecError(problems)
    return config


def _from_scratch(job: Job, tokenizer: Any) -> Any:
    from transformers import AutoConfig

    given = dict(job.model.config or {})
    family = given.pop("model_type")
    given.setdefault("vocab_size", len(tokenizer))
    for name in SPECIAL:
        given.setdefault(name, getattr(tokenizer, name, None))
    try:
        return AutoConfig.for_model(family, **given)
    except ValueError as error:
        rule = f"transformers does not accept this config: {str(error).splitlines()[0]}"
        raise SpecError([Problem(path="model.config", rule=rule, value=f"model_type {family}")]) from None
    except Exception as error:  # transformers' strict configs raise a class of huggingface_hub's own
        if "StrictDataclass" not in type(error).__name__:
            raise
        rule = f"transformers does not accept this config: {' '.join(str(error).split())}"
        raise SpecError([Problem(path="model.config", rule=rule)]) from None


def _pretrained(job: Job) -> Any:
    from transformers import AutoConfig

    check_folder(job)
    try:
        return AutoConfig.from_pretrained(job.model.name)
    except (OSError, ValueError) as error:
        rule = f"cannot be opened as a model: {str(error).splitlines()[0]}"
        fix = "give a local folder with config.json, or a name that the hub serves from here"
        raise SpecError([Problem(path="model.name", rule=rule, value=job.model.name, fix=fix)]) from None


def check_folder(job: Job) -> None:
    """Raises SpecError when `model.name` is a local folder that holds no model."""
    name = job.model.name
    looks_local = name is not None and (name.startswith((".", "/", "~")) or Path(name).is_dir())
    if not looks_local or name is None:
        return
    folder = Path(os.path.expanduser(name))
    if not (folder / "config.json").is_file():
        rule = "the folder has no config.json" if folder.is_dir() else "there is no such folder"
        fix = "give the folder of a Hugging Face model, as save_pretrained writes it"
        raise SpecError([Problem(path="model.name", rule=rule, value=name, fix=fix)])


def model_class(task: str) -> Any:
    """transformers' class for a task: a language model that gives the next token, or masked ones."""
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

    return AutoModelForMaskedLM if task == "mlm" else AutoModelForCausalLM


def attention_of(job: Job, config: Any) -> str:
    """The attention that the model is built with: what the engine asks for, SDPA, or `eager` for the few families that
    have no other. FlashAttention is the engine's to set, where it runs."""
    wanted = getattr(job.engine, "attention", "auto")
    if wanted in ("sdpa", "eager"):
        return str(wanted)
    found = model_class(job.task)._model_mapping.get(type(config), None)
    return "sdpa" if getattr(found, "_supports_sdpa", True) else "eager"


def keeps_type(job: Job) -> bool:
    """Whether weights stay in the type of their files until the engine splits them, which makes them float32 then: each
    rank reads the whole model, which as float32 would take twice as much of its node's memory."""
    return getattr(job.engine, "fsdp", False) and job.lora is None


def build_model(job: Job, config: Any) -> Any:
    """The model with its initial weights, the same on every rank: float32 (but see `keeps_type`), no cache; with `lora`
    frozen, and with fresh adapters in it. Raises SpecError for a family that does not do the task, for files that
    cannot be opened, and for weights that are missing in them: random ones would take their place."""
    import torch

    torch.manual_seed(job.seed)
    auto = model_class(job.task)
    if type(config) not in auto._model_mapping:
        does = "masked tokens" if job.task == "mlm" else "next tokens"
        rule = f"{config.model_type} has no model for {does} in transformers"
        raise SpecError([Problem(path="task", value=job.task, rule=rule, fix="choose a family that has one")])
    options = {"attn_implementation": attention_of(job, config), "dtype": torch.float32}
    if job.model.config is not None:
        model = auto.from_config(config, **options)
    else:
        model = _opened(job, auto, config, options | ({"dtype": "auto"} if keeps_type(job) else {}))
    model.config.use_cache = False
    # What it is trained and exported in.
    model.config.dtype = torch.float32
    _check_positions(job, model)
    if job.lora is not None:
        from raytrain_eks.train.lora import adapt

        adapt(model, job)
    return model


def _opened(job: Job, auto: Any, config: Any, options: dict[str, Any]) -> Any:
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        name = os.path.expanduser(str(job.model.name))
        model, told = auto.from_pretrained(name, config=config, output_loading_info=True, **options)
    except (OSError, ValueError) as error:
        rule = f"its weights cannot be opened: {str(error).splitlines()[0]}"
        fix = "give a local folder with safetensors, or a name that the hub serves from here"
        raise SpecError([Problem(path="model.name", rule=rule, value=job.model.name, fix=fix)]) from None
    missing = sorted(told["missing_keys"])
    if missing:
        rule = f"has no weights for {missing[0]}" + (f" and {len(missing) - 1} others" if len(missing) > 1 else "")
        fix = "give a model that was trained for this task"
        raise SpecError([Problem(path="model.name", rule=rule, value=job.model.name, fix=fix)])
    return model


def _check_positions(job: Job, model: Any) -> None:
    """RoBERTa's first positions are never used, so it reaches less far than its config says. Raises SpecError."""
    from raytrain_eks.train.masking import position_offset

    offset, positions = position_offset(model), getattr(model.config, "max_position_embeddings", None)
    if offset and isinstance(positions, int) and positions - offset < job.data.sequence_length:
        rule = f"is longer than the model reaches: it has {positions} positions and begins at number {offset}"
        value, fix = str(job.data.sequence_length), f"write at most {positions - offset}"
        raise SpecError([Problem(path="data.sequence_length", rule=rule, value=value, fix=fix)])


def window(config: Any) -> int | None:
    """How far back the layers with a sliding window or chunks of attention see, in tokens; None where all see all."""
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and not {"sliding_attention", "chunked_attention"}.intersection(kinds):
        return None
    if kinds is None and not getattr(config, "use_sliding_window", True):
        return None
    found = [getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size")]
    return min((size for size in found if isinstance(size, int)), default=None)
