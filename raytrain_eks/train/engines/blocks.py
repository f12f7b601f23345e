"""What is done to a model before it is distributed: its attention kernel, activation checkpointing, compilation.

Blocks get another `forward`, and no wrapper modules: so parameters keep their names, and what FSDP and DeepSpeed hang
on a block stays outside of what is computed again or compiled.
"""

import importlib.util
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

FLASH = "flash_attention_2"


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The transformer blocks: entries of module lists that transformers says must not be split over devices."""
    whole = set(getattr(model, "_no_split_modules", None) or ())
    for module in model.modules():
        whole |= set(getattr(module, "_no_split_modules", None) or ())
    listed = [entry for module in model.modules() if isinstance(module, nn.ModuleList) for entry in module]
    return [entry for entry in listed if type(entry).__name__ in whole]


def set_attention(job: Job, model: nn.Module, device: torch.device) -> bool:
    """Choose the attention kernel; whether it is FlashAttention's, which takes documents apart by their position ids.

    Raises SpecError where the one asked for cannot run here.
    """
    wanted = getattr(job.engine, "attention", "auto")
    reason = flash_refusal(job, device)
    if wanted == "auto":
        wanted = FLASH if reason is None else getattr(model.config, "_attn_implementation", "sdpa")
    elif wanted == FLASH and reason is not None:
        fix = "write `attention: auto`, which takes it where it runs"
        raise SpecError([Problem(path="engine.attention", value=wanted, rule=reason, fix=fix)])
    if hasattr(model, "set_attn_implementation"):
        model.set_attn_implementation(wanted)
    return wanted == FLASH


def flash_refusal(job: Job, device: torch.device) -> str | None:
    """Why FlashAttention cannot run; None when it can."""
    if device.type != "cuda":
        return f"FlashAttention runs on GPUs, and the workers train on {device.type}"
    if job.precision != "bf16":
        return f"FlashAttention computes in bf16, and precision is {job.precision}"
    if job.task == "mlm":
        return "its packed form is used for causal models only"
    return None if importlib.util.find_spec("flash_attn") else "the package flash_attn is not installed"


def checkpoint_activations(blocks: list[nn.Module], kind: str) -> None:
    """Compute blocks again in the backward pass: `full`, or `selective`, all but matrix products and attention."""
    if kind == "none":
        return
    if not blocks:
        rule = "this model names no transformer blocks that could be computed again"
        raise SpecError([Problem(path="engine.activation_checkpointing", value=kind, rule=rule, fix="write `none`")])
    options: dict[str, Any] = {"use_reentrant": False}
    if kind == "selective":
        options["context_fn"] = partial(create_selective_checkpoint_contexts, _policy)
    for block in blocks:
        block.forward = _recomputed(block.forward, options)


def _recomputed(forward: Callable[..., Any], options: dict[str, Any]) -> Callable[..., Any]:
    @wraps(forward)
    def computed(*given: Any, **named: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*given, **named)
        return checkpoint(forward, *given, **options, **named)

    return computed


_KEPT = {
    torch.ops.aten.mm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten._scaled_dot_product_flash_attention.default,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default,
    torch.ops.aten._scaled_dot_product_efficient_attention.default,
    torch.ops.aten._scaled_dot_product_cudnn_attention.default,
}
"""Operators whose results stay: computing them again is most of a forward pass, and their results are small beside what
norms, activations and casts leave."""


def _policy(_context: Any, operator: Any, *_given: Any, **_named: Any) -> CheckpointPolicy:
    return CheckpointPolicy.MUST_SAVE if operator in _KEPT else CheckpointPolicy.PREFER_RECOMPUTE


def compile_blocks(blocks: list[nn.Module]) -> None:
    """Compile each block's forward for its first shape; equal blocks share the code."""
    for block in blocks:
        block.forward = torch.compile(block.forward, dynamic=False)


def widen_outside(model: nn.Module, blocks: list[nn.Module]) -> None:
    """Make what is outside of the blocks fp32, in place."""
    inside = {id(module) for block in blocks for module in block.modules()}
    for module in model.modules():
        if id(module) not in inside:
            module._apply(lambda tensor: tensor.float() if tensor.is_floating_point() else tensor, recurse=False)


def plain(model: nn.Module) -> nn.Module:
    """The model with its own forwards again, for text of any length."""
    for module in model.modules():
        vars(module).pop("forward", None)
    return model
