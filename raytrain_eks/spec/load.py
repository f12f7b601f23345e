"""From a file to the model its `kind` names."""

import codecs
import sys
from pathlib import Path
from typing import Any

from raytrain_eks.spec.problem import Problem, SpecError, nearest
from raytrain_eks.spec.source import Document, read_documents
from raytrain_eks.spec.yaml_nodes import place_of

KINDS = {"Job": "raytrain_eks.spec.job", "Cluster": "raytrain_eks.spec.cluster", "Sweep": "raytrain_eks.spec.sweep"}
"""Kind -> the module that holds the model of the same name."""
LARGEST = 1024 * 1024
"""Bytes of a file that a person writes; a larger one is another file, and is not read to its end."""
LARGEST_BUNDLE = 16 * LARGEST
"""Bytes of a file that a program wrote: rendered objects with the definitions of their kinds, or a kubeconfig."""
_OTHER_ENCODINGS = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16", codecs.BOM_UTF32_BE: "UTF-32"}


def model_of(kind: str) -> Any:
    """The model (a subclass of `Model`) of a kind. Raises KeyError for one that is not known."""
    from importlib import import_module

    return getattr(import_module(KINDS[kind]), kind)


def load(path: str | Path, *, expect: str | None = None) -> Any:
    """The Job, Cluster or Sweep in a file, `-` for standard input.

    Raises SpecError with every problem of the file, and OSError when it cannot be read at all.
    """
    return of_document(read_document(path), expect=expect)


def read_document(path: str | Path) -> Document:
    """The single YAML document of a file, `-` for standard input.

    Raises SpecError when it is not UTF-8, not YAML, or not one document. What is wrong with the tree itself, such as
    a key that stands twice, lies in the document's `problems` and is reported by `of_document` with all the rest.
    """
    from raytrain_eks.spec.check import single

    file = "(stdin)" if str(path) == "-" else str(path)
    return single(read_documents(text_of(content_of(path), file), file, lenient=True), file)


def content_of(path: str | Path, most: int = LARGEST) -> bytes:
    """The bytes of a file, `-` for standard input; of a larger one just so many that `text_of` refuses it, since a
    device has no end. Raises OSError."""
    if str(path) == "-":
        return sys.stdin.buffer.read(most + 1) if sys.stdin else b""
    with open(path, "rb") as stream:
        try:
            return stream.read(most + 1)
        except OSError as error:
            # A read names no file, and what has no name is taken for a write to standard output.
            raise OSError(error.errno, error.strerror, str(path)) from None


def text_of(content: bytes, file: str, most: int = LARGEST) -> str:
    """The text of a file that a person wrote. Raises SpecError when it is too large, binary or not UTF-8."""
    if len(content) > most:
        raise _unreadable(file, f"larger than {most // 1024} KiB", "is this the right file?")
    for mark, name in _OTHER_ENCODINGS.items():
        if content.startswith(mark):
            raise _unreadable(file, f"the file is {name}", "save it as UTF-8")
    if b"\0" in content:
        raise _unreadable(file, "a binary file, not YAML", "is this the right file?")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8-sig")
        line, column = place_of(before, len(before))
        problem = Problem(path="(file)", rule="not UTF-8 text from here on", fix="save it as UTF-8")
        raise SpecError([problem.at(file, line, column)]) from None


def _unreadable(file: str, rule: str, fix: str) -> SpecError:
    return SpecError([Problem(path="(file)", rule=rule, fix=fix, file=file)])


def of_document(document: Document, *, expect: str | None = None) -> Any:
    """The model that the document's `kind` names. Raises SpecError with every problem.

    When `kind` is missing or misspelt, the rest is checked as the kind that it looks like.
    """
    from raytrain_eks.spec.check import check

    data = document.data
    if not isinstance(data, dict):
        return check(model_of(expect or "Job"), document)
    kind, known = data.get("kind"), [expect] if expect else list(KINDS)
    if kind is None and expect and "kind" not in data:
        return check(model_of(expect), document)
    if kind in known:
        return check(model_of(str(kind)), document)
    problem, meant = _kind_problem(document, kind, known), _meant(kind, data, known)
    if meant is None:
        raise SpecError([*document.problems, problem])
    assumed = Document(**{**vars(document), "data": {**data, "kind": meant}})
    try:
        check(model_of(meant), assumed)
    except SpecError as error:
        raise SpecError([problem, *error.problems]) from None
    raise SpecError([problem])


def _kind_problem(document: Document, kind: object, known: list[str]) -> Problem:
    rule = f"must be {' or '.join(known)}" if kind is not None else f"is required: {' or '.join(known)}"
    guess = nearest(str(kind), known) if isinstance(kind, str) else None
    other = f"this file is a {kind}" if isinstance(kind, str) and kind in KINDS else None
    if "apiVersion" in document.data:
        other = "Kubernetes manifests are checked by `raytrain-eks lint`"
    fix = f"did you mean `{guess}`?" if guess and other is None else other
    written = document.texts.get(("kind",)) if kind is not None else None
    place = document.place(("kind",)) or (None, None)
    return Problem(path="kind", rule=rule, value=written, fix=fix).at(document.file, *place)


def _meant(kind: object, data: dict[str, Any], known: list[str]) -> str | None:
    """The kind that a file without a valid one looks like: by its spelling, else by its fields; None when unclear."""
    from raytrain_eks.spec.fields import field_names

    if "apiVersion" in data or (isinstance(kind, str) and kind in KINDS):
        return None
    if isinstance(kind, str) and (guess := nearest(kind, known)):
        return guess
    fitting = {name: len(set(data) & set(field_names(model_of(name))) - {"kind", "name"}) for name in known}
    best = max(known, key=lambda name: fitting[name])
    alone = sum(count == fitting[best] for count in fitting.values()) == 1
    return best if fitting[best] and alone else None
