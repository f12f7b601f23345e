"""`gpu=H100,efa>=16`: conditions on the facts of instance types, all of which must hold."""

import re
from collections.abc import Callable
from decimal import Decimal
from fnmatch import fnmatchcase

from raytrain_eks.catalog.instance import Instance, instances
from raytrain_eks.spec import quantity
from raytrain_eks.spec.problem import Problem, SpecError, nearest

Number = Callable[[Instance], Decimal | int | float | None]

TEXTS: dict[str, Callable[[Instance], str]] = {
    "type": lambda found: found.type,
    "family": lambda found: found.type.partition(".")[0],
    "arch": lambda found: found.arch,
    "gpu": lambda found: found.accelerator,
    "accelerator": lambda found: found.accelerator,
    "vendor": lambda found: found.vendor,
    "link": lambda found: found.link,
}
"""Names that stand for a text: `=` and `!=`, without regard to case, with `*` for anything."""
NUMBERS: dict[str, Number] = {
    "vcpu": lambda found: found.vcpu,
    "memory": lambda found: found.memory,
    "gpus": lambda found: found.accelerators,
    "accelerators": lambda found: found.accelerators,
    "gpu_memory": lambda found: found.accelerator_memory,
    "neuron_cores": lambda found: found.neuron_cores,
    "efa": lambda found: found.efa,
    "network": lambda found: found.network,
    "nvme": lambda found: found.nvme,
    "cpu": lambda found: found.allocatable_cpu,
    "allocatable_memory": lambda found: found.allocatable_memory,
    "pods": lambda found: found.allocatable_pods,
}
"""Names that stand for a quantity: `memory>=1Ti`, `network>=100G` (bits per second), `nvme>0`."""
_CONDITION = re.compile(r"\s*([A-Za-z_]+)\s*(>=|<=|!=|==|=|>|<)\s*([^,<>=!]+?)\s*\Z")
_COMPARE: dict[str, Callable[[Decimal, Decimal], bool]] = {
    "=": lambda left, right: left == right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}


def where(expression: str) -> list[Instance]:
    """The types for which every condition holds, sorted by name. Raises SpecError with every bad condition."""
    tests: list[Callable[[Instance], bool]] = []
    problems: list[Problem] = []
    for part in expression.split(","):
        try:
            tests.append(_condition(part))
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return [found for found in instances() if all(test(found) for test in tests)]


def _condition(part: str) -> Callable[[Instance], bool]:
    match = _CONDITION.match(part)
    if not match:
        example = "efa>=16, gpu=H100, vendor=AWS"
        known = ", ".join([*TEXTS, *NUMBERS])
        rule, fix = "is not a condition", f"write a name, one of = != >= <= > <, and a value: {example}; names: {known}"
        raise SpecError([Problem(path="where", value=part.strip() or "(empty)", rule=rule, fix=fix)])
    name, operator, value = match.groups()
    if name in TEXTS:
        return _text_condition(part, TEXTS[name], operator, value)
    if name in NUMBERS:
        return _number_condition(part, NUMBERS[name], operator, value)
    guess = nearest(name, [*TEXTS, *NUMBERS])
    fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join([*TEXTS, *NUMBERS])}"
    raise SpecError([Problem(path="where", value=part.strip(), rule=f"no fact is named {name}", fix=fix)])


def _text_condition(
    part: str, fact: Callable[[Instance], str], operator: str, value: str
) -> Callable[[Instance], bool]:
    if operator not in ("=", "==", "!="):
        rule = f"a text has no order, so `{operator}` says nothing"
        raise SpecError([Problem(path="where", value=part.strip(), rule=rule, fix="use = or !=, with * for anything")])
    wanted = operator != "!="
    return lambda found: fnmatchcase(fact(found).lower(), value.lower()) == wanted


def _number_condition(part: str, fact: Number, operator: str, value: str) -> Callable[[Instance], bool]:
    try:
        right = quantity.parse(value)
    except ValueError as error:
        raise SpecError([Problem(path="where", value=part.strip(), rule=str(error))]) from None
    compare = _COMPARE[operator]

    def holds(found: Instance) -> bool:
        left = fact(found)
        return left is not None and compare(Decimal(left), right)

    return holds
