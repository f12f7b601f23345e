"""The base of everything that a person writes: strict pydantic models whose field docstrings are the documentation.

A field's docstring is its help text, its description in the JSON Schema and what `explain` prints. A field that cannot
change the result of a run (how often it is saved, where it runs) says so with `Aside()`; all others belong to the
run's identity.
"""

from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from raytrain_eks.spec.fields import field_names, metadata_in, tag_of
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Canonical
from raytrain_eks.spec.source import Document, Path, read_documents

Rule = TypeVar("Rule", bound=Callable[..., Iterator[Problem]])


def Aside(default: Any = ..., **extra: Any) -> Any:
    """A field that is no part of a run's identity: changing it does not change what is learnt."""
    return Field(default, json_schema_extra={"x-aside": True}, **extra)


def rule(method: Rule) -> Rule:
    """Mark a method as one rule of its node: it yields problems that need more than one field.

    Each rule is run by itself. In a file with other mistakes a rule is skipped that needs one of the broken fields,
    and the rest of them still run: so all problems of a file are found at once.
    """
    vars(method)["rule"] = True
    return method


class Model(BaseModel):
    """A node of the tree: unknown keys are refused, nothing is converted, values never change after reading."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, validate_default=False, defer_build=True
    )

    def problems(self) -> Iterator[Problem]:
        """Problems that need more than one field of this node, by all of its rules; paths are relative to it."""
        for name in rules_of(type(self)):
            yield from getattr(self, name)()

    def written(self) -> dict[str, Any]:
        """What a person would have to write: fields that were given, in the order of the model, as plain data.

        The `kind` of a node that has just one is always among them, since without it the node cannot be read.
        """
        found: dict[str, Any] = {}
        for name, key in zip(type(self).model_fields, field_names(type(self)), strict=True):
            if name in self.model_fields_set or (name == "kind" and tag_of(type(self))):
                found[key] = _written(getattr(self, name))
        return found

    def identity(self) -> dict[str, Any]:
        """All fields that can change the result of a run, defaults included, as plain data in one spelling.

        `4M` is 4000000 in it, `3.0%` is `3%`; it is equal to itself after a trip through JSON.
        """
        found: dict[str, Any] = {}
        for name, info in type(self).model_fields.items():
            if not (isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("x-aside")):
                found[info.alias or name] = _plain(getattr(self, name), _canonical(type(self), name))
        return found

    @classmethod
    def parse(cls, data: Any) -> Self:
        """The model of plain data. Raises SpecError with every problem in it."""
        from raytrain_eks.spec.check import check

        return check(cls, Document(file="", data=data))

    @classmethod
    def read(cls, text: str, file: str) -> Self:
        """The model of a YAML text with one document. Raises SpecError with every problem, placed in the file."""
        from raytrain_eks.spec.check import check, single

        return check(cls, single(read_documents(text, file, lenient=True), file))


@cache
def rules_of(model: type[Model]) -> tuple[str, ...]:
    """Names of the methods that are marked as rules, in the order of their writing, a base's first."""
    names: dict[str, None] = {}
    for owner in reversed(model.__mro__):
        functions = [value for value in list(vars(owner).values()) if isinstance(value, FunctionType)]
        names |= {function.__name__: None for function in functions if "rule" in vars(function)}
    return tuple(names)


def walk(value: Any, path: Path = ()) -> Iterator[tuple[Path, Model]]:
    """Every node of a tree with its path, the root first."""
    if isinstance(value, Model):
        yield path, value
        for name, key in zip(type(value).model_fields, field_names(type(value)), strict=True):
            yield from walk(getattr(value, name), (*path, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from walk(item, (*path, key))


@cache
def _canonical(model: type[Model], name: str) -> Callable[[Any], Any] | None:
    info = model.model_fields[name]
    found = [*info.metadata, *metadata_in(info.annotation)]
    return next((entry.of for entry in found if isinstance(entry, Canonical)), None)


def _plain(value: Any, canonical: Callable[[Any], Any] | None) -> Any:
    if isinstance(value, Model):
        return value.identity()
    if isinstance(value, list | tuple):
        return [_plain(item, canonical) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item, canonical) for key, item in value.items()}
    return canonical(value) if canonical and value is not None else value


def _written(value: Any) -> Any:
    if isinstance(value, Model):
        return value.written()
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if isinstance(value, dict):
        return {key: _written(item) for key, item in value.items()}
    return value
