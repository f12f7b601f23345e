"""From a wish such as `H100:8` to instance types, with the choice said.

Only whole nodes are offered: accelerators that are left over would be paid for and idle.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from raytrain_eks.catalog.instance import Instance, instances
from raytrain_eks.spec.problem import Problem, SpecError, nearest

_WISH = re.compile(r"([A-Za-z0-9 -]*?[A-Za-z0-9])(?:-(\d+)G(?:i?B)?)?(?::(\d+))?\Z")


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One way to get the accelerators that were asked for."""

    instance: Instance
    nodes: int
    said: str
    """The choice as a sentence: what was taken, and why this one before the next."""


def resolve_gpus(wish: str, *, path: str = "gpus") -> list[Choice]:
    """Ways to get `NAME:COUNT`, `NAME-80GB:COUNT` or `NAME` (one device), the best first; never empty.

    Fewest nodes first, then the least device memory, then the fewest vCPU, then by name: the cheapest that holds what
    was asked, where prices are not known. Raises SpecError for an unknown name or a count that fills no whole nodes.
    """
    match = _WISH.match(wish.strip())
    if not match:
        rule, fix = "is not an accelerator and a count", "write for example H100:8 or A100-80GB:8"
        raise SpecError([Problem(path=path, value=wish, rule=rule, fix=fix)])
    name, size, count = match.group(1), match.group(2), int(match.group(3) or 1)
    offered = [found for found in instances() if found.accelerators and _same(found, name, size)]
    if not offered:
        raise SpecError([_unknown(wish, name, size, path)])
    fitting = [found for found in offered if count and count % found.accelerators == 0]
    if not fitting:
        sizes = ", ".join(str(each) for each in sorted({found.accelerators for found in offered}))
        rule = f"{name} comes {sizes} to a node, and {count} fills no whole nodes"
        raise SpecError([Problem(path=path, value=wish, rule=rule, fix=f"ask for a multiple of one of {sizes}")])
    fitting.sort(key=lambda found: _order(found, count))
    return [
        Choice(instance=found, nodes=count // found.accelerators, said=_sentence(wish, found, count, fitting))
        for found in fitting
    ]


def _same(found: Instance, name: str, size: str | None) -> bool:
    if found.accelerator.lower().replace(" ", "") != name.lower().replace(" ", ""):
        return False
    # A brochure's 80 GB may be 80 or 79.6 GiB: within a tenth is the same device.
    return size is None or abs((found.accelerator_memory or Decimal(0)) / 2**30 - int(size)) <= Decimal(size) / 10


def _order(found: Instance, count: int) -> tuple[int, Decimal, int, str]:
    return count // found.accelerators, found.accelerator_memory or Decimal(0), found.vcpu, found.type


def _device_memory(found: Instance) -> str:
    return f", {found.accelerator_memory / 2**30:.0f} GiB each" if found.accelerator_memory else ""


def _sentence(wish: str, found: Instance, count: int, fitting: list[Instance]) -> str:
    nodes = count // found.accelerators
    each = f"{found.accelerators} x {found.accelerator}{_device_memory(found)}"
    text = f"{wish} is {nodes} x {found.type} ({each})"
    others = [f"{other.type}{_device_memory(other)}" for other in fitting if other.type != found.type][:3]
    return text + (f"; also possible: {'; '.join(others)}" if others else "")


def _unknown(wish: str, name: str, size: str | None, path: str) -> Problem:
    if size and device_memories(name):
        rule = f"there is no {name} with {size} GB"
        return Problem(path=path, value=wish, rule=rule, fix=f"{name} has {', '.join(device_memories(name))}")
    names = sorted({found.accelerator for found in instances() if found.accelerators})
    guess = nearest(name, names)
    fix = f"did you mean `{guess}`?" if guess else f"known: {', '.join(names)}"
    return Problem(path=path, value=wish, rule=f"no instance type has an accelerator named {name}", fix=fix)


def device_memories(name: str) -> list[str]:
    """The device memories that an accelerator comes with, such as `40 GiB`, `80 GiB`."""
    found = {item.accelerator_memory for item in instances() if item.accelerators and _same(item, name, None)}
    return [f"{amount / 2**30:.0f} GiB" for amount in sorted(amount for amount in found if amount)]
