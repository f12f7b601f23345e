"""Low-rank adapters (Hu et al. 2021) in a frozen model, by peft: put in, told apart from what is frozen, taken out.

peft's layers go into the model in place, so it stays the Hugging Face class that it is and every engine treats it like
any other. Frozen weights are no part of a checkpoint: a rank builds them again as at the start, out of the folder or
name that the job gives, or its config and seed. A fingerprint in each checkpoint tells whether they are the same.
"""

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError, nearest

ADAPTER = "default"
"""What peft calls an adapter that has no other name."""
BASE = "base"
"""Where a checkpoint's meta has the fingerprint of the frozen weights."""
SAMPLES = 64
"""Numbers of each weight that the fingerprint looks at. A model of other weights differs in nearly all of them; single
damaged numbers are the business of the model's own files."""


class EmptyAdapter(RuntimeError):
    """An adapter to be saved has a tensor that is empty, missing or not the one its name promises."""


def adapt(model: nn.Module, job: Job) -> None:
    """Freeze the model and put the job's adapters in, with weights that depend on the job's seed alone.

    Raises SpecError where a name in `lora.target_modules` is of no linear layer, or of one that shares its weight.
    """
    from peft import LoraConfig, inject_adapter_in_model
    from transformers.pytorch_utils import Conv1D

    assert job.lora is not None
    names = targets(model, job.lora.target_modules)
    rank = job.lora.rank
    config = LoraConfig(
        r=rank,
        lora_alpha=job.lora.alpha if job.lora.alpha is not None else 2 * rank,  # type: ignore[arg-type]
        lora_dropout=job.lora.dropout,
        target_modules=names,
        fan_in_fan_out=isinstance(model.get_submodule(names[0]), Conv1D),
        task_type=None if job.task == "mlm" else "CAUSAL_LM",
        base_model_name_or_path=job.model.name,
    )
    torch.manual_seed(job.seed)
    inject_adapter_in_model(config, model)


def targets(model: nn.Module, wanted: list[str] | None) -> list[str]:
    """Names of the linear layers that get an adapter, whole and in the model's order: all of the backbone, which the
    head is no part of, or those whose last words are a wanted name. Raises SpecError."""
    linear = dict(_linear(model))
    if wanted is None:
        backbone = {id(module) for module in getattr(model, "base_model", model).modules()}
        return [name for name, module in linear.items() if id(module) in backbone]
    problems = []
    for index, word in enumerate(wanted):
        if not any(_ends(name, word) for name in linear):
            known = sorted({name.rsplit(".", 1)[-1] for name in linear})
            guess = nearest(word, known)
            fix = f"did you mean `{guess}`?" if guess else f"there are {', '.join(known)}"
            rule = "this model has no linear layer of that name"
            problems.append(Problem(path=f"lora.target_modules.{index}", value=word, rule=rule, fix=fix))
    chosen = [name for name in linear if any(_ends(name, word) for word in wanted)]
    shared = _shared(model)
    for name in chosen:
        if id(linear[name].weight) in shared:
            rule = f"{name} shares its weight with another layer, which the adapter would change as well once merged"
            problems.append(Problem(path="lora.target_modules", rule=rule, fix="leave that layer out"))
    if problems:
        raise SpecError(problems)
    return chosen


def _linear(model: nn.Module) -> Iterator[tuple[str, Any]]:
    from transformers.pytorch_utils import Conv1D

    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | Conv1D):
            yield name, module


def _ends(name: str, word: str) -> bool:
    return name == word or name.endswith(f".{word}")


def _shared(model: nn.Module) -> set[int]:
    """Ids of weights that are in several places."""
    places = [id(weight) for _, weight in model.named_parameters(remove_duplicate=False)]
    return {place for place in places if places.count(place) > 1} if len(set(places)) < len(places) else set()


def layers(model: nn.Module) -> dict[str, Any]:
    """peft's layers by name; empty for a model without adapters."""
    if not hasattr(model, "peft_config"):
        return {}
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


def fingerprint(model: nn.Module) -> str:
    """SHA-256 of the frozen weights' names, shapes and some of their numbers, in hex; the same on every rank, and
    whichever layers have adapters. To be taken before an engine changes the model."""
    digest = hashlib.sha256()
    weights = {name.replace(".base_layer.", "."): weight for name, weight in model.named_parameters()}
    for name, weight in sorted(weights.items()):
        if not weight.requires_grad:
            flat = weight.detach().reshape(-1)
            places = torch.linspace(0, max(flat.numel() - 1, 0), min(SAMPLES, flat.numel()), dtype=torch.float64).long()
            digest.update(f"{name} {tuple(weight.shape)}\n".encode())
            digest.update(flat[places].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def base_of(model: nn.Module, job: Job) -> dict[str, str] | None:
    """What a checkpoint says of the weights that it does not hold: where they come from, and their fingerprint. None
    where nothing is frozen."""
    if job.lora is None:
        return None
    origin = job.model.name if job.model.name is not None else f"config and seed {job.seed}"
    return {"from": origin, "fingerprint": fingerprint(model)}


def check_base(meta: Mapping[str, Any], base: Mapping[str, str] | None) -> None:
    """Compare the frozen weights here with those that a checkpoint was trained on. Raises SpecError."""
    then = meta.get(BASE)
    if base is None and then is None:
        return
    if base is None or then is None:
        rule = f"the checkpoint holds {'the whole model' if then is None else 'adapters only'}, this job trains "
        rule += "adapters only" if base is not None else "the whole model"
        raise SpecError([Problem(path="lora", rule=rule, fix="give this run a new `name`")])
    if then["fingerprint"] != base["fingerprint"]:
        rule = f"holds other weights than those that the adapters were trained on (from {then['from']})"
        fix = "bring back the model that the run began with, or give this run a new `name`"
        raise SpecError([Problem(path="model.name", value=base["from"], rule=rule, fix=fix)])


def adapter_state(model: nn.Module) -> dict[str, Tensor]:
    """The adapters under the names that peft gives them in a file. Raises EmptyAdapter when one is not sound.

    Under ZeRO-3 and FSDP a weight that nobody gathered is empty; such a file would open, and do nothing.
    """
    found = {}
    for name, layer in layers(model).items():
        rank = layer.r[ADAPTER]
        shapes = {"lora_A": (rank, layer.in_features), "lora_B": (layer.out_features, rank)}
        for part, shape in shapes.items():
            weight = getattr(layer, part)[ADAPTER].weight.detach()
            if tuple(weight.shape) != shape or weight.is_meta:
                rule = f"{name}.{part} has shape {tuple(weight.shape)}, and must have {shape}"
                raise EmptyAdapter(f"{rule}: it was not gathered before it was saved")
            found[f"base_model.model.{name}.{part}.weight"] = weight.float().cpu().contiguous()
    if not found:
        raise EmptyAdapter("the model has no adapters")
    return found


def save_adapter(model: Any, folder: Path) -> None:
    """Write the adapters alone, as `peft.PeftModel.from_pretrained` opens them. Raises EmptyAdapter."""
    from safetensors.torch import save_file

    state = adapter_state(model)
    folder.mkdir(parents=True, exist_ok=True)
    config = model.peft_config[ADAPTER]
    config.inference_mode = True
    config.save_pretrained(str(folder))
    save_file(state, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def merge(model: nn.Module) -> None:
    """Add the adapters to the weights that they belong to, and take peft's layers out; the model is a plain one again.

    Raises EmptyAdapter where an adapter is not sound, ValueError where the sum is not finite.
    """
    adapter_state(model)
    for name, layer in layers(model).items():
        layer.merge(safe_merge=True)
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, layer.get_base_layer())
    del model.peft_config
    for weight in model.parameters():
        weight.requires_grad_(True)
