"""From a file to a checked bundle: what `render`, `diff`, `explain` and `apply` have in common."""

from pathlib import Path
from typing import TYPE_CHECKING

from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator

    from raytrain_eks.lint import Finding
    from raytrain_eks.manifests.bundle import Bundle
    from raytrain_eks.plan.cluster import ClusterPlan
    from raytrain_eks.spec.problem import Problem
    from raytrain_eks.spec.source import Document


def read(path: str | Path) -> "tuple[ClusterPlan, Bundle]":
    """The plan and the bundle of a cluster file. Raises SpecError with every problem, OSError when unreadable."""
    from raytrain_eks.spec.load import read_document

    return from_document(read_document(path))


def from_document(document: "Document") -> "tuple[ClusterPlan, Bundle]":
    """The plan and the bundle of a cluster file that was read already. Raises SpecError with every problem."""
    from raytrain_eks.manifests.bundle import build
    from raytrain_eks.plan.cluster import resolve
    from raytrain_eks.spec.load import of_document

    plan = resolve(of_document(document, expect="Cluster"), document=document)
    return plan, build(plan)


def problems(document: "Document") -> "Iterator[Problem]":
    """What lint finds in the objects of a cluster file, as problems of the file. Raises SpecError with all others."""
    from raytrain_eks.lint import lint_objects
    from raytrain_eks.lint.of_cluster import settings
    from raytrain_eks.spec.problem import Problem

    plan, bundle = from_document(document)
    for finding in lint_objects(bundle.bodies, settings(plan)):
        if finding.severity == "error":
            path = f"{finding.object}: {finding.path}" if finding.path else finding.object
            yield Problem(path=path, rule=f"{finding.reason} ({finding.rule})", fix=finding.fix, file=document.file)


def refuse_what_cannot_run(
    plan: "ClusterPlan", bundle: "Bundle", consequence: str = "nothing was rendered"
) -> list[str]:
    """Lint the whole bundle. Raises Failure (exit 3) for errors; returns the warnings, as text."""
    from raytrain_eks.lint import lint_objects
    from raytrain_eks.lint.of_cluster import settings

    return [*_warnings(lint_objects(bundle.bodies, settings(plan)), consequence), *_examples(plan)]


def _examples(plan: "ClusterPlan") -> "Iterator[str]":
    """Lines of the file that still have the mark of `init`: an example, which no AWS account has."""
    from raytrain_eks.spec.first_cluster import FILL, to_fill_in

    file = plan.document.file if plan.document is not None else ""
    if file and Path(file).is_file():
        for number, key in to_fill_in(Path(file).read_text(encoding="utf-8", errors="replace")):
            yield f"{file}:{number}: {key} is an example still: write yours, and take `# {FILL}` away"


def refuse_findings(documents: "list[Document]", consequence: str) -> list[str]:
    """Lint objects that were rendered already. Raises Failure (exit 3) for errors; returns the warnings, as text."""
    from raytrain_eks.lint import lint

    return _warnings(lint(documents), consequence)


def _warnings(found: "list[Finding]", consequence: str) -> list[str]:
    errors = [str(finding) for finding in found if finding.severity == "error"]
    if errors:
        count = f"{len(errors)} finding{'s' if len(errors) != 1 else ''}"
        raise Failure("\n".join([*errors, f"{count}: this cannot run, so {consequence}"]), Outcome.FINDINGS)
    return [str(finding) for finding in found]
