"""What the fields of a model are: their written names, their documentation, the models that lie below them.

Reads the classes only; nothing here validates.
"""

import ast
import inspect
import itertools
import textwrap
from collections.abc import Iterator
from functools import cache
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo


def field_names(model: type[BaseModel]) -> list[str]:
    """The fields of a model as they are written in a file, in order."""
    return [info.alias or name for name, info in model.model_fields.items()]


def field_of(model: type[BaseModel], written: str | int) -> tuple[str, FieldInfo] | None:
    """The field that is written so, with its Python name; None when there is none."""
    for name, info in model.model_fields.items():
        if written == (info.alias or name):
            return name, info
    return None


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that occur in a type annotation: in a union, a list, a mapping, an alias."""
    annotation = getattr(annotation, "__value__", annotation)
    if inspect.isclass(annotation) and get_origin(annotation) is None:
        return [annotation] if issubclass(annotation, BaseModel) else []
    return [found for part in get_args(annotation) for found in models_in(part)]


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


def models_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[type[BaseModel]]:
    """The models that a pydantic location leads to; steps that name no field (indices, tags) narrow by tag or stay."""
    current: list[type[BaseModel]] = [model]
    for step in location:
        following = []
        for candidate in current:
            if (found := field_of(candidate, step)) is not None:
                following += models_in(found[1].annotation)
        tagged = [candidate for candidate in current if step == tag_of(candidate)]
        current = following or tagged or current
    return current


def fields_at(model: type[BaseModel], location: tuple[str | int, ...]) -> list[str]:
    """The names that may be written at a pydantic location, in order, each once."""
    return list(dict.fromkeys(name for found in models_at(model, location) for name in field_names(found)))


def tag_of(model: type[BaseModel]) -> str | None:
    """The one value that a model's `kind` can have; None when it has no `kind`, or a choice of them."""
    info = model.model_fields.get("kind")
    choices = get_args(info.annotation) if info else ()
    return str(choices[0]) if len(choices) == 1 else None


def metadata_in(annotation: Any) -> Iterator[Any]:
    """Everything that `Annotated` carries anywhere in a type, outermost first."""
    if metadata := getattr(annotation, "__metadata__", None):
        yield from metadata
    for part in get_args(annotation):
        yield from metadata_in(part)


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


def summary(model: type[BaseModel]) -> str:
    """The first line of a model's docstring: what the mapping describes."""
    return inspect.cleandoc(model.__doc__ or "").split("\n\n")[0].replace("\n", " ")
