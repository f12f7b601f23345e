"""Findings that somebody meant: the annotation `raytrain-eks/lint-ignore: "RT101=reason; RT402=reason"`.

On an object it silences the rule for the whole object, on a pod template for findings inside of it. A reason is
required: it is for the next reader.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import text
from raytrain_eks.spec.problem import nearest
from raytrain_eks.spec.source import Path

ANNOTATION = "raytrain-eks/lint-ignore"


def _entries(annotations: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for entry in text(annotations.get(ANNOTATION)).replace("\n", ";").split(";"):
        if entry.strip():
            id, _, reason = entry.partition("=")
            yield id.strip(), reason.strip()


def _annotated(bundle: Bundle) -> Iterator[tuple[Resource, Path, Path, Mapping[str, Any]]]:
    """Object, path of the part that is silenced, path of the annotations, the annotations."""
    for resource in bundle.resources:
        if ANNOTATION in resource.annotations:
            yield resource, resource.base, (*resource.base, "metadata", "annotations"), resource.annotations
    for pod in bundle.pods:
        if ANNOTATION in pod.annotations:
            above = pod.path[:-1]
            yield pod.owner, above, (*above, "metadata", "annotations"), pod.annotations


def silenced(bundle: Bundle, rule: str, hit: Hit) -> bool:
    """Whether the finding of a rule is meant to be so."""
    return any(
        id == rule and reason
        for resource, part, _, annotations in _annotated(bundle)
        if resource is hit.on and hit.path[: len(part)] == part
        for id, reason in _entries(annotations)
    )


def _bad_entries(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    from raytrain_eks.lint.registry import rules

    for resource, _, path, annotations in _annotated(bundle):
        for id, reason in _entries(annotations):
            place = (*path, ANNOTATION)
            if id not in rules():
                guess = nearest(id, rules())
                fix = f"did you mean {guess}?" if guess else "write the id of a rule, such as RT101"
                yield Hit(on=resource, path=place, reason=f"{id or 'nothing'} is no rule", fix=fix)
            elif not reason:
                yield Hit(
                    on=resource, path=place, reason=f"{id} is silenced without a reason", fix=f'write "{id}=reason"'
                )


RULES = (
    Rule(
        id="RT001",
        severity="error",
        title="A silence without a rule or a reason",
        why="An annotation raytrain-eks/lint-ignore names rules and says why: `RT101=measured, it fits`. Without a "
        "reason nobody can tell later whether it still holds, so the finding is shown all the same.",
        fix='Write "RULE=reason", several separated by semicolons.',
        check=_bad_entries,
    ),
)
