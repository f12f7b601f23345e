"""Tensor parallelism (Shoeybi et al. 2019) by DTensor, after the plan that transformers has for a model.

A plan names for each module how its weight is split: by columns (each rank computes some outputs), by rows (each rank
has some inputs, and the results are summed). Modules that the plan does not name are whole on every rank, and since
what goes in is alike, so are their gradients; the exceptions say so (`replicated_with_grad_allreduce`).
"""

import re
from typing import Any

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, parallelize_module

from raytrain_eks.spec.problem import Problem, SpecError

PARTIAL = "replicated_with_grad_allreduce"
"""Whole on every rank, but each sees only its own heads: gradients have to be summed over the tensor group."""
WHOLE = "replicate"


def style(name: str) -> ParallelStyle | None:
    """DTensor's style of a name in a plan of transformers; None for one that we do not have."""
    styles = {
        "colwise": lambda: ColwiseParallel(),
        "colwise_rep": lambda: ColwiseParallel(output_layouts=Replicate()),
        "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
        "rowwise": lambda: RowwiseParallel(),
        "rowwise_rep": lambda: RowwiseParallel(input_layouts=Replicate()),
        "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
        "embedding_rowwise": lambda: RowwiseParallel(input_layouts=Replicate()),
        "embedding_colwise": lambda: ColwiseParallel(output_layouts=Replicate()),
    }
    return styles[name]() if name in styles else None


def plan_of(model: nn.Module) -> dict[str, str]:
    """Module name -> style, for every module that the model's plan names. Raises SpecError where it has none."""
    patterns: dict[str, str] = getattr(model, "tp_plan", None) or {}
    found = {}
    for name, _ in model.named_modules():
        chosen = patterns.get(name) or patterns.get(re.sub(r"\.\d+(?=\.|$)", ".*", name))
        if chosen is not None:
            found[name] = chosen
    blocks = {name for name in found if "." in name and name != "lm_head"}
    if not blocks:
        rule = f"transformers has no tensor-parallel plan for {type(model).__name__}"
        fix = "write `fsdp: true` instead, or `engine: {kind: deepspeed, zero: 3}`"
        raise SpecError([Problem(path="engine.tensor", rule=rule, fix=fix)])
    return found


def check(model: nn.Module, plan: dict[str, str], ranks: int) -> None:
    """Raises SpecError when a style of the plan is not ours, or heads do not divide evenly over the ranks."""
    strange = sorted({each for each in plan.values() if each not in (PARTIAL, WHOLE) and style(each) is None})
    if strange:
        rule = f"the plan of {type(model).__name__} splits by {', '.join(strange)}, which this engine does not do"
        raise SpecError([Problem(path="engine.tensor", rule=rule, fix="write `fsdp: true` instead")])
    check_heads(model, ranks)


def check_heads(model: nn.Module, ranks: int) -> None:
    """Raises SpecError when the model's attention heads do not divide evenly over the ranks."""
    config: Any = getattr(model, "config", None)
    problems = []
    for field in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(config, field, None)
        if isinstance(heads, int) and heads % ranks:
            rule = f"the model's {field} is {heads}, which cannot be split over {ranks} workers"
            below = max(size for size in range(1, ranks) if heads % size == 0)
            fix = f"write {below}, or another divisor"
            problems.append(Problem(path="engine.tensor", value=str(ranks), rule=rule, fix=fix))
    if problems:
        raise SpecError(problems)


def split_layers(model: nn.Module, mesh: DeviceMesh) -> list[nn.Parameter]:
    """Split the layers of a whole model, the same one on every rank, over a 1-D mesh; the parameters whose gradients
    have to be summed over it. Raises SpecError where the model cannot be split."""
    plan = plan_of(model)
    check(model, plan, mesh.size())
    tied = _tied(model)
    partial = []
    for name, chosen in plan.items():
        module = model.get_submodule(name)
        if style(chosen) is not None:
            for layer in layers_of(module, chosen):
                parallelize_module(layer, mesh, style(chosen))
        elif chosen == PARTIAL:
            partial += list(module.parameters(recurse=False))
    _tie(model, tied, plan, mesh)
    return partial


def layers_of(module: nn.Module, chosen: str) -> list[nn.Module]:
    """The layers that a style is for: the module, or what peft put in its place. Of an adapter B A x the matrix that
    meets the split side is split with the frozen one; the other is small, and whole on every rank."""
    base = getattr(module, "base_layer", None)
    if base is None:
        return [module]
    adapters: Any = getattr(module, "lora_A" if chosen.startswith("rowwise") else "lora_B")
    return [base, *adapters.values()]


def _tied(model: nn.Module) -> list[list[tuple[str, str]]]:
    """Places (module, parameter) of each weight that is in several."""
    places: dict[int, list[tuple[str, str]]] = {}
    for name, module in model.named_modules():
        for parameter, weight in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(id(weight), []).append((name, parameter))
    return [found for found in places.values() if len(found) > 1]


def _tie(model: nn.Module, tied: list[list[tuple[str, str]]], plan: dict[str, str], mesh: DeviceMesh) -> None:
    """Make tied weights one again, which splitting module by module has parted."""
    for (first, parameter), *others in tied:
        kept = getattr(model.get_submodule(first), parameter)
        for name, other in others:
            module = model.get_submodule(name)
            if getattr(getattr(module, other), "placements", None) != getattr(kept, "placements", None):
                rule = f"{first}.{parameter} and {name}.{other} are one weight, and the plan splits them differently"
                raise SpecError([Problem(path="engine.tensor", rule=rule, fix="write `fsdp: true` instead")])
            setattr(module, other, kept)
