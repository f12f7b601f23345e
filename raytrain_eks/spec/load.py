"""From a file to the model its `kind` names."""

from pathlib import Path
from typing import Any

from raytrain_eks.spec.model import Model, check, single
from raytrain_eks.spec.problem import Problem, SpecError, nearest
from raytrain_eks.spec.source import Document, read_documents

KINDS = {"Job": "raytrain_eks.spec.job", "Cluster": "raytrain_eks.spec.cluster"}
"""Kind -> the module that holds the model of the same name."""


def model_of(kind: str) -> type[Model]:
    """The model of a kind. Raises KeyError for one that is not known."""
    from importlib import import_module

    model: type[Model] = getattr(import_module(KINDS[kind]), kind)
    return model


def load(path: str | Path, *, expect: str | None = None) -> Any:
    """The Job or Cluster in a file. Raises SpecError with every problem, OSError when it cannot be read."""
    return of_document(read_document(path), expect=expect)


def read_document(path: str | Path) -> Document:
    """The single YAML document of a file. Raises SpecError when it is not UTF-8, not YAML, or not one document."""
    file = str(path)
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        problem = Problem(path="(file)", rule=f"not UTF-8 text (byte {error.start})", fix="save it as UTF-8", file=file)
        raise SpecError([problem]) from None
    return single(read_documents(text, file), file)


def of_document(document: Document, *, expect: str | None = None) -> Any:
    """The model that the document's `kind` names. Raises SpecError with every problem."""
    data = document.data
    kind = data.get("kind", expect) if isinstance(data, dict) else expect
    if kind not in KINDS or (expect and kind != expect):
        line, column = document.place(("kind",)) or (None, None)
        known = [expect] if expect else list(KINDS)
        guess = nearest(str(kind), known) if kind else None
        rule = f"must be {' or '.join(known)}" if kind else f"is required: {' or '.join(known)}"
        problem = Problem(path="kind", rule=rule, value=kind and str(kind), fix=guess and f"did you mean `{guess}`?")
        raise SpecError([problem.at(document.file, line, column)])
    return check(model_of(kind), document)
