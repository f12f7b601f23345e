"""From a document to its model, or to every problem in it, each with its place.

pydantic finds what is wrong with single fields. The rules of the nodes (`Model.problems`) are then run over all of the
tree that is sound, also when another part of it is not.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError

from raytrain_eks.spec.model import Model, rules_of, walk
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.spec.source import Document, Path

AnyModel = TypeVar("AnyModel", bound=Model)


def single(documents: list[Document], file: str) -> Document:
    """The only document of a file. Raises SpecError when there is none, or more."""
    if len(documents) == 1:
        return documents[0]
    if not documents:
        fix = "`raytrain-eks init job` and `raytrain-eks init cluster` write a first one"
        raise SpecError([Problem(path="(file)", rule="nothing is written in the file", fix=fix, file=file)])
    line, column = documents[1].place(()) or (None, None)
    rule = f"one document is expected here, there are {len(documents)}"
    raise SpecError([Problem(path="(file)", rule=rule, fix="put each into a file of its own").at(file, line, column)])


def check(model: type[AnyModel], document: Document) -> AnyModel:
    """Validate one document against `model`. Raises SpecError with every problem, each with its place."""
    if not isinstance(document.data, Mapping):
        line, column = document.place(()) or (None, None)
        what = f"a mapping with the fields of a {model.__name__} is expected here"
        problem = Problem(path="(file)", rule=what, fix="for example `name: first`").at(document.file, line, column)
        raise SpecError([*document.problems, problem] if document.data is not None else document.problems or [problem])
    try:
        value = model.model_validate(document.data)
    except ValidationError as error:
        from raytrain_eks.spec.mistakes import problems_of
        from raytrain_eks.spec.partial import UNSOUND, partial

        # What the reader refused is nothing in the tree, and need not be told as such.
        refused = {(problem.line, problem.column) for problem in document.problems if problem.line}
        of_fields = [each for each in problems_of(model, error, document) if (each.line, each.column) not in refused]
        found = [*document.problems, *of_fields]
        raise SpecError(located(_rules(partial(model, document.data), unsound=UNSOUND), document, also=found)) from None
    found = located(_rules(value), document, also=document.problems)
    if found:
        raise SpecError(found)
    return value


def located(
    problems: Iterable[Problem | tuple[Path, Problem]], document: Document, *, also: Iterable[Problem] = ()
) -> list[Problem]:
    """Problems of nodes with their places in the document, in its order, each once; `also` has places already.

    A problem's path is relative to the node whose path comes with it, or to the root.
    """
    found: dict[Problem, None] = dict.fromkeys(also)
    for entry in problems:
        base, problem = entry if isinstance(entry, tuple) else ((), entry)
        found[_placed(problem, base, document)] = None
    return sorted(found, key=lambda each: (each.line or 0, each.column or 0, each.path, each.rule))


def _rules(value: Model, *, unsound: tuple[type[Exception], ...] = ()) -> Iterator[tuple[Path, Problem]]:
    """Problems that the nodes of a tree report about themselves; a rule that raises one of `unsound` ends there."""
    for path, node in walk(value):
        if type(node).problems is not Model.problems:
            reports = [node.problems]
        else:
            reports = [getattr(node, name) for name in rules_of(type(node))]
        for report in reports:
            with contextlib.suppress(*unsound):
                for problem in report():
                    yield path, problem


def _placed(problem: Problem, base: Path, document: Document) -> Problem:
    path = (*base, *_steps(problem.path, base, document.data))
    line, column = document.place(path) or (None, None)
    value = problem.value if problem.value is not None else document.texts.get(path) or None
    found = Problem(path=dotted(document.data, path), rule=problem.rule, value=value, fix=problem.fix)
    return found.at(document.file, line, column)


def _steps(path: str, base: Path, data: Any) -> Path:
    """A dotted path as steps; a number is an index only where a list stands, a name there is that of an entry."""
    for above in base:
        data = _below(data, above)
    steps: list[str | int] = []
    words = path.split(".") if path else []
    while words:
        word = words.pop(0)
        # A key may itself hold dots, as those of a sweep's space do.
        while isinstance(data, Mapping) and word not in data and words and _begins(data, f"{word}.{words[0]}"):
            word = f"{word}.{words.pop(0)}"
        step: str | int = word
        if isinstance(data, list | tuple):
            named = [index for index, item in enumerate(data) if isinstance(item, Mapping) and item.get("name") == word]
            step = named[0] if named else int(word) if word.isdigit() else word
        steps.append(step)
        data = _below(data, step)
    return tuple(steps)


def _begins(data: Mapping[str, Any], word: str) -> bool:
    return any(key == word or str(key).startswith(f"{word}.") for key in data)


def _below(data: Any, step: str | int) -> Any:
    if isinstance(data, Mapping):
        return data.get(step)
    return data[step] if isinstance(data, list | tuple) and isinstance(step, int) and step < len(data) else None


def dotted(data: Any, path: Path) -> str:
    """A path in dots; an entry of a list goes by its `name` where it has one of its own."""
    words = []
    for step in path:
        item = _below(data, step)
        if isinstance(step, int):
            names = (
                [entry.get("name") for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []
            )
            name = item.get("name") if isinstance(item, Mapping) else None
            words.append(name if isinstance(name, str) and name and names.count(name) == 1 else str(step))
        else:
            words.append(str(step))
        data = item
    return ".".join(words) or "(file)"
