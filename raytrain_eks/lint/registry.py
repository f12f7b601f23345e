"""All rules, by id."""

from functools import cache
from importlib import import_module

from raytrain_eks.lint.finding import Rule

MODULES = (
    "silence",
    "rules.text",
    "rules.fit",
    "rules.placement",
    "rules.architecture",
    "rules.references",
    "rules.versions",
    "rules.structure",
    "rules.objects",
    "rules.names",
    "rules.labels",
    "rules.pod_types",
    "rules.network",
    "rules.training",
    "rules.ray_train",
    "rules.karpenter",
    "rules.storage",
    "rules.operator",
    "rules.ray",
    "rules.exposure",
    "rules.queues",
)
"""One module for each subject; each has a tuple RULES."""


@cache
def rules() -> dict[str, Rule]:
    """Id -> rule, in the order of the ids."""
    found: dict[str, Rule] = {}
    for name in MODULES:
        for rule in import_module(f"raytrain_eks.lint.{name}").RULES:
            assert rule.id not in found, f"two rules have the id {rule.id}"
            found[rule.id] = rule
    return dict(sorted(found.items()))
