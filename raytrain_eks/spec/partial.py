"""The sound part of a broken file, as a model whose broken fields cannot be looked at.

Only so can a rule that needs two fields speak up while a third one is wrong: the rule runs on this model, and the
first touch of a broken field raises `BrokenField`, which skips the rule.
"""

import inspect
from collections.abc import Iterator, Mapping
from functools import cache
from types import UnionType
from typing import Annotated, Any, NoReturn, Union, get_args, get_origin

from pydantic import ValidationError, create_model

from raytrain_eks.spec.fields import models_in, tag_of
from raytrain_eks.spec.model import Model


class BrokenField(Exception):
    """A rule looked at a field that is missing or invalid, so it cannot say anything."""


def _touched(*arguments: Any, **options: Any) -> NoReturn:
    raise BrokenField


_OPERATIONS = """
getattr bool len iter contains getitem hash str repr format int float index call round
eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow neg abs
"""
Broken = type("Broken", (), {f"__{operation}__": _touched for operation in _OPERATIONS.split()})
BROKEN = Broken()


UNSOUND = (BrokenField, TypeError, ValueError, AttributeError, LookupError)
"""How a rule can end that was given a broken field: some functions look at the type before they touch a value."""


def partial(model: type[Model], data: Mapping[str, Any]) -> Model:
    """`model` of what is valid in `data`; BROKEN wherever a field is missing or has no valid value."""
    values: dict[str, Any] = {}
    for name, info in model.model_fields.items():
        key = info.alias or name
        if key in data:
            values[name] = _value(model, name, data[key])
        else:
            values[name] = BROKEN if info.is_required() else info.get_default(call_default_factory=True)
    given = {name for name, info in model.model_fields.items() if (info.alias or name) in data}
    return model.model_construct(given, **values)


def _value(model: type[Model], name: str, data: Any) -> Any:
    try:
        return _alone(model, name).model_validate({"value": data}).value  # type: ignore[attr-defined]
    except ValidationError:
        return _pieces(model.model_fields[name].annotation, data)


def _pieces(annotation: Any, data: Any) -> Any:
    """What is sound below an invalid value: of a mapping the model it is meant to be, of a list its entries."""
    branches = list(_branches(annotation))
    if isinstance(data, list):
        of_lists = [get_args(branch)[0] for branch in branches if get_origin(branch) is list]
        return [_pieces(of_lists[0], item) for item in data] if of_lists and models_in(of_lists[0]) else BROKEN
    if not isinstance(data, Mapping):
        return BROKEN
    candidates = [branch for branch in branches if inspect.isclass(branch) and issubclass(branch, Model)]
    if len(candidates) > 1:
        candidates = [found for found in candidates if tag_of(found) == data.get("kind")]
    return partial(candidates[0], data) if len(candidates) == 1 else BROKEN


def _branches(annotation: Any) -> Iterator[Any]:
    """The types of a union, without what `Annotated` adds to them."""
    if get_origin(annotation) is Annotated:
        yield from _branches(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for part in get_args(annotation):
            yield from _branches(part)
    else:
        yield annotation


@cache
def _alone(model: type[Model], name: str) -> type[Model]:
    """A model with one field, `value`, which is read as that field of `model` is."""
    info = model.model_fields[name]
    field: Any = (info.annotation, info._copy() if hasattr(info, "_copy") else info)
    return create_model(f"{model.__name__}_{name}", __base__=Model, value=field)
