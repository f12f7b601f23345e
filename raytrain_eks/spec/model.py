"""The base of everything that a person writes: strict pydantic models whose field docstrings are the documentation.

A field's docstring is its help text, its description in the JSON Schema and what `explain` prints. A field that cannot
change the result of a run (how often it is saved, where it runs) says so with `Aside()`; all others belong to the
run's identity.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Self, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from raytrain_eks.spec.problem import Problem, SpecError, nearest
from raytrain_eks.spec.source import Document, Path, read_documents

AnyModel = TypeVar("AnyModel", bound=BaseModel)


def Aside(default: Any = ..., **extra: Any) -> Any:
    """A field that is no part of a run's identity: changing it does not change what is learnt."""
    return Field(default, json_schema_extra={"x-aside": True}, **extra)


class Model(BaseModel):
    """A node of the tree: unknown keys are refused, values never change after reading."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, defer_build=True)

    def problems(self) -> Iterator[Problem]:
        """Problems that need more than one field of this node; paths are relative to it. Subclasses override."""
        yield from ()

    def written(self) -> dict[str, Any]:
        """What a person would have to write: fields that were given, in the order of the model, as plain data."""
        return self.model_dump(mode="json", exclude_unset=True, by_alias=True)

    def identity(self) -> dict[str, Any]:
        """All fields that can change the result of a run, defaults included, as plain data."""
        found: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            if not (isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("x-aside")):
                found[name] = _plain(getattr(self, name))
        return found

    @classmethod
    def parse(cls, data: Any) -> Self:
        """The model of plain data. Raises SpecError with every problem in it."""
        return check(cls, Document(file="", data=data))

    @classmethod
    def read(cls, text: str, file: str) -> Self:
        """The model of a YAML text with one document. Raises SpecError with every problem, placed in the file."""
        return check(cls, single(read_documents(text, file), file))


def _plain(value: Any) -> Any:
    if isinstance(value, Model):
        return value.identity()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def single(documents: list[Document], file: str) -> Document:
    """The only document of a file. Raises SpecError when there is none, or more."""
    if len(documents) == 1:
        return documents[0]
    if not documents:
        raise SpecError([Problem(path="(file)", rule="the file is empty", fix="see `raytrain-eks init`", file=file)])
    line, column = documents[1].place(()) or (None, None)
    rule = f"one document is expected here, there are {len(documents)}"
    raise SpecError([Problem(path="(file)", rule=rule, fix="put each into a file of its own").at(file, line, column)])


def check(model: type[AnyModel], document: Document) -> AnyModel:
    """Validate one document against `model`. Raises SpecError with every problem, each with its place."""
    if not isinstance(document.data, Mapping):
        line, column = document.place(()) or (None, None)
        problem = Problem(path="(file)", rule=f"a mapping with the fields of a {model.__name__} is expected here")
        raise SpecError([problem.at(document.file, line, column)])
    try:
        value = model.model_validate(document.data)
    except ValidationError as error:
        found = [_problem(model, entry, document) for entry in error.errors(include_url=False)]
        raise SpecError(_sorted(found)) from None
    found = [_placed(problem, path, document) for path, problem in walk_problems(value)]
    if found:
        raise SpecError(_sorted(found))
    return value


def walk_problems(value: Any, path: Path = ()) -> Iterator[tuple[Path, Problem]]:
    """Every problem that the nodes of a valid tree report about themselves, with the path of the node."""
    if isinstance(value, Model):
        for problem in value.problems():
            yield path, problem
        for name in type(value).model_fields:
            yield from walk_problems(getattr(value, name), (*path, name))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk_problems(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk_problems(item, (*path, key))


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line or 0, problem.column or 0, problem.path, problem.rule))


def _placed(problem: Problem, base: Path, document: Document) -> Problem:
    """A node's own problem: its path is relative to the node; a first word that names no field stays with the node."""
    steps = tuple(int(part) if part.isdigit() else part for part in problem.path.split(".") if part)
    path = (*base, *steps)
    line, column = document.place(path) or (None, None)
    value = problem.value if problem.value is not None else document.texts.get(path)
    shown = Problem(path=dotted(document.data, path), rule=problem.rule, value=value, fix=problem.fix)
    return shown.at(document.file, line, column)


def dotted(data: Any, path: Path) -> str:
    """A path in dots; an entry of a list goes by its `name` where it has one."""
    words = []
    for step in path:
        if isinstance(step, int):
            item = data[step] if isinstance(data, list | tuple) and step < len(data) else None
            name = item.get("name") if isinstance(item, Mapping) else None
            words.append(name if isinstance(name, str) else str(step))
            data = item
        else:
            words.append(step)
            data = data.get(step) if isinstance(data, Mapping) else None
    return ".".join(words) or "(file)"


def _real_path(location: tuple[str | int, ...], data: Any, *, missing: bool) -> Path:
    """pydantic's location without the steps that are not in the data (tags of unions, names of validators)."""
    path: list[str | int] = []
    for position, step in enumerate(location):
        last = position == len(location) - 1
        if isinstance(data, Mapping) and isinstance(step, str) and (step in data or (last and missing)):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int) and step < len(data):
            path.append(step)
            data = data[step]
    return tuple(path)


def _problem(model: type[BaseModel], entry: Any, document: Document) -> Problem:
    kind, location = entry["type"], entry["loc"]
    path = _real_path(location, document.data, missing=kind in ("missing", "extra_forbidden"))
    is_key = kind == "extra_forbidden"
    if kind == "union_tag_invalid":
        path = (*path, entry["ctx"]["discriminator"].strip("'"))
    line, column = document.place(path, key=is_key) or (None, None)
    shown = dotted(document.data, path)
    if is_key:
        guess = nearest(str(location[-1]), _fields_at(model, location[:-1]))
        known = ", ".join(_fields_at(model, location[:-1]))
        rule = "unknown field" + (f"; did you mean `{guess}`?" if guess else "")
        fix = None if guess else f"known here: {known}"
        return Problem(path=shown, rule=rule, fix=fix).at(document.file, line, column)
    if kind == "missing":
        return Problem(path=shown, rule="is required and missing", fix=_hint(model, location)).at(
            document.file, line, column
        )
    value = document.texts.get(path, _short(entry["input"]))
    rule, fix = _rule(entry)
    return Problem(path=shown, rule=rule, value=value, fix=fix).at(document.file, line, column)


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, list | tuple):
        return "[...]"
    return "(empty)" if value is None else str(value)


def _rule(entry: Any) -> tuple[str, str | None]:
    kind, context = entry["type"], entry.get("ctx", {})
    if kind == "value_error":
        return str(context["error"]), None
    if kind in ("literal_error", "enum"):
        expected = context["expected"].replace("'", "")
        guess = nearest(str(entry["input"]), expected.replace(" or ", ", ").split(", "))
        return f"must be one of {expected}", f"did you mean `{guess}`?" if guess else None
    if kind == "union_tag_invalid":
        expected = context["expected_tags"].replace("'", "")
        return f"must be one of {expected}", None
    if kind == "union_tag_not_found":
        return f"needs the field `{context['discriminator'].strip(chr(39))}`", None
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "a mapping is expected here", None
    message = entry["msg"]
    return message.removeprefix("Input ").replace("Value error, ", ""), None


def _hint(model: type[BaseModel], location: tuple[str | int, ...]) -> str | None:
    for candidate in _models_at(model, location[:-1]):
        if text := field_docs(candidate).get(str(location[-1])):
            return text.split("\n")[0]
    return None


def _fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    names: dict[str, None] = {}
    for candidate in _models_at(model, location):
        names |= dict.fromkeys(field_names(candidate))
    return list(names)


def field_names(model: type[BaseModel]) -> list[str]:
    """The fields of a model as they are written in a file, in order."""
    return [info.alias or name for name, info in model.model_fields.items()]


def _models_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The models that a pydantic location leads to; steps that name no field (indices, tags) narrow by tag or stay."""
    current: list[type[BaseModel]] = [model]
    for step in location:
        following = []
        for candidate in current:
            info = next((i for n, i in candidate.model_fields.items() if step in (n, i.alias)), None)
            if info is not None:
                following += models_in(info.annotation)
        tagged = [candidate for candidate in current if step == _tag(candidate)]
        current = following or tagged or current
    return current


def _tag(model: type[BaseModel]) -> str | None:
    info = model.model_fields.get("kind")
    choices = get_args(info.annotation) if info else ()
    return str(choices[0]) if len(choices) == 1 else None


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that occur in a type annotation: in a union, a list, a mapping, an alias."""
    annotation = getattr(annotation, "__value__", annotation)
    if inspect.isclass(annotation) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [found for part in get_args(annotation) for found in models_in(part)]


@cache
def field_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field name -> its docstring, read from the source on demand, so that importing a model stays cheap."""
    docs: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not (issubclass(owner, BaseModel) and owner.__module__.startswith("raytrain_eks")):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for before, after in itertools.pairwise(statements):
            target = before.target if isinstance(before, ast.AnnAssign) else None
            if isinstance(target, ast.Name) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[target.id] = inspect.cleandoc(str(after.value.value))
    return docs


def json_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON Schema (2020-12) of a model, each field with its docstring, for editors."""
    schema = TypeAdapter(model).json_schema(by_alias=True)
    by_title = {found.__name__: found for found in all_models(model)}
    for title, part in [(model.__name__, schema), *schema.get("$defs", {}).items()]:
        docs = field_docs(by_title[title]) if title in by_title else {}
        for name, entry in part.get("properties", {}).items():
            entry.pop("x-aside", None)
            if name in docs:
                entry["description"] = docs[name]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def all_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """`model` and every model reachable from its fields, each once."""
    found: dict[type[BaseModel], None] = {model: None}
    queue = [model]
    while queue:
        for info in queue.pop().model_fields.values():
            fresh = [part for part in models_in(info.annotation) if part not in found]
            found |= dict.fromkeys(fresh)
            queue += fresh
    return list(found)
