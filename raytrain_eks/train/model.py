"""Building the model of a job: from a Hugging Face config with random weights, or pretrained from a folder or hub."""

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


def build_model(job: Job, config: Any) -> Any:
    """The model with its initial weights, the same on every rank: float32, attention by SDPA, no cache."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(job.seed)
    if job.model.config is not None:
        model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa", dtype=torch.float32)
    else:
        model = AutoModelForCausalLM.from_pretrained(
            job.model.name, config=config, attn_implementation="sdpa", dtype=torch.float32
        )
    model.config.use_cache = False
    return model
