"""From documents to findings."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.lint.bundle import bundle
from raytrain_eks.lint.finding import Finding, Hit, Rule, Settings
from raytrain_eks.lint.registry import rules
from raytrain_eks.lint.silence import silenced
from raytrain_eks.spec.source import Document


@dataclass(frozen=True)
class Report:
    """What was found, and how much of it was meant to be so."""

    findings: list[Finding]
    silenced: dict[str, int]
    """Rule -> findings that an annotation silences."""
    objects: int
    """How many objects were looked at."""


def examine(documents: Iterable[Document | Mapping[str, Any]], settings: Settings = Settings()) -> Report:  # noqa: B008
    """Every rule on every object, all looked at together; findings in the order of files, lines and rules."""
    picture = bundle(documents)
    found: dict[tuple[Any, ...], Finding] = {}
    hushed: dict[str, int] = {}
    order = {id(document): number for number, document in enumerate(picture.documents)}
    for rule in rules().values():
        for hit in rule.check(picture, settings):
            if silenced(picture, rule.id, hit):
                hushed[rule.id] = hushed.get(rule.id, 0) + 1
                continue
            finding = _finding(rule, hit)
            place = (order.get(id(hit.on.document), 0), finding.line or 0, finding.column or 0, rule.id)
            found.setdefault((*place, finding.path, finding.reason), finding)
    return Report([found[key] for key in sorted(found)], hushed, len(picture.resources))


def lint(documents: Iterable[Document | Mapping[str, Any]], settings: Settings = Settings()) -> list[Finding]:  # noqa: B008
    """The findings on documents, or on plain objects (which have no lines)."""
    return examine(documents, settings).findings


def lint_objects(objects: Iterable[Mapping[str, Any]], settings: Settings = Settings()) -> list[Finding]:  # noqa: B008
    """The findings on plain objects, such as those that are about to be rendered or applied."""
    return examine(objects, settings).findings


def _finding(rule: Rule, hit: Hit) -> Finding:
    from raytrain_eks.spec.check import dotted

    line, column = hit.mark or hit.on.document.place(hit.path, key=hit.key) or (None, None)
    inside = hit.path[len(hit.on.base) :]
    return Finding(
        rule=rule.id,
        severity=rule.severity,
        file=hit.on.document.file,
        line=line,
        column=column,
        object=hit.on.title.strip(),
        path=dotted(hit.on.data, inside) if inside else "",
        reason=hit.reason,
        fix=hit.fix,
    )
