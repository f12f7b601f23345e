"""RT510, RT511: programs for Ray Train in config maps and entrypoints."""

import ast
from collections.abc import Iterator

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.programs import Program, programs
from raytrain_eks.lint.resource import Resource


def _trees(bundle: Bundle) -> Iterator[tuple[Resource, Program, ast.Module]]:
    """Every Python program that speaks of TorchTrainer."""
    for resource in bundle.resources:
        for program in programs(resource, bundle.pods_of(resource)):
            if "TorchTrainer" not in program.text:
                continue
            try:
                yield resource, program, ast.parse(program.text)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                continue


def _called(node: ast.AST, name: str) -> ast.Call | None:
    if not isinstance(node, ast.Call):
        return None
    function = node.func
    said = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return node if said == name else None


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((keyword.value for keyword in call.keywords if keyword.arg == name), None)


def _several_each(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource, program, tree in _trees(bundle):
        for node in ast.walk(tree):
            call = _called(node, "ScalingConfig")
            asked = _keyword(call, "resources_per_worker") if call else None
            if not isinstance(asked, ast.Dict):
                continue
            for key, value in zip(asked.keys, asked.values, strict=True):
                name = key.value if isinstance(key, ast.Constant) else None
                count = value.value if isinstance(value, ast.Constant) else None
                if name in ("GPU", "neuron_cores") and isinstance(count, int | float) and count > 1:
                    reason = f"line {value.lineno}: a worker is one process, takes {count} {name} and uses one"
                    fix = (
                        f'write resources_per_worker={{"{name}": 1}}, and num_workers as many as there are accelerators'
                    )
                    yield Hit(on=resource, path=program.path, reason=reason, fix=fix)


def _other_api(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource, program, tree in _trees(bundle):
        for node in ast.walk(tree):
            call = _called(node, "CheckpointConfig")
            if call and _keyword(call, "checkpoint_frequency") is not None:
                reason = f"line {call.lineno}: TorchTrainer refuses checkpoint_frequency: the loop decides"
                fix = "leave it out, and call train.report(metrics, checkpoint=...) when one is due"
                yield Hit(on=resource, path=program.path, reason=reason, fix=fix)
            if isinstance(node, ast.With):
                for item in node.items:
                    if found := _called(item.context_expr, "get_checkpoint"):
                        reason = f"line {found.lineno}: get_checkpoint() gives what to resume from, or None"
                        fix = "write a folder and call train.report(metrics, checkpoint=Checkpoint.from_directory(...))"
                        yield Hit(on=resource, path=program.path, reason=reason, fix=fix)


RULES = (
    Rule(
        id="RT510",
        severity="error",
        title="One Ray Train worker with several accelerators",
        why="A Ray Train worker is one process. With several GPUs in resources_per_worker and an ordinary loop it uses "
        "the first one, and the others are reserved and idle.",
        fix="One worker for each accelerator.",
        check=_several_each,
    ),
    Rule(
        id="RT511",
        severity="error",
        title="Ray Train's API is another",
        why="TorchTrainer raises for checkpoint_frequency, and a Checkpoint from get_checkpoint() is None on the first "
        "start and no context manager, so the program fails at its first checkpoint.",
        fix="Report checkpoints with ray.train.report.",
        check=_other_api,
    ),
)
