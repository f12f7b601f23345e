"""What a field is: its sentence, its type in words, its default, its values, and the fields below it.

A path begins with the kind of file: `job.data.sequence_length`, `cluster.workers.capacity`.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import BaseModel

from raytrain_eks.spec.fields import field_docs, field_names, field_of, models_in, summary, tag_of
from raytrain_eks.spec.load import KINDS, model_of
from raytrain_eks.spec.problem import nearest
from raytrain_eks.spec.schema import json_schema
from raytrain_eks.spec.write import flow

_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false", "null": "null"}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What there is to know about one field, or about a kind of file."""

    path: str
    text: str
    """Its documentation."""
    type: str
    """Its type in words, with its limits: `whole number, at least 8`."""
    required: bool
    default: str | None
    """As it would be written; None when the field is required, or its default is a mapping of defaults."""
    values: tuple[str, ...]
    """All values that it can have, when they are few."""
    fields: tuple["Explanation", ...] = ()
    """The fields below it, without theirs."""

    def as_data(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        own = {"path": self.path, "type": self.type, "required": self.required, "default": self.default}
        below = {"fields": [field.as_data() for field in self.fields]} if self.fields else {}
        return {**own, "values": list(self.values), "text": self.text, **below}


def kinds() -> dict[str, str]:
    """Word that a path begins with -> what the kind of file is."""
    return {kind.lower(): summary(model_of(kind)) for kind in KINDS}


def explain(path: str) -> Explanation:
    """What the field at `path` is. Raises KeyError with a sentence that names the nearest path when there is none."""
    first, *words = path.split(".")
    kind = next((kind for kind in KINDS if kind.lower() == first.lower()), None)
    if kind is None:
        guess = nearest(first, kinds())
        hint = f"did you mean `{'.'.join([guess, *words])}`?" if guess else f"paths begin with {' or '.join(kinds())}"
        raise KeyError(f"there is no kind of file `{first}`; {hint}")
    model = model_of(kind)
    schema = _schema(model)
    here, owners, found = kind.lower(), [model], None
    for word in words:
        candidates = [owner for owner in owners if field_of(owner, word)]
        if not candidates:
            raise KeyError(_unknown(here, word, owners))
        here = f"{here}.{word}"
        found = _field(here, word, candidates, schema)
        owners = [below for owner in candidates for below in models_in(field_of(owner, word)[1].annotation)]  # type: ignore[index]
    if found is None:
        found = Explanation(
            path=here, text=summary(model), type="file", required=True, default=None, values=(), fields=()
        )
    return _with_fields(found, owners, schema)


@cache
def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return json_schema(model)


def _unknown(here: str, word: str, owners: list[type[BaseModel]]) -> str:
    known = [name for owner in owners for name in field_names(owner)]
    if not known:
        return f"{here} has no fields below it"
    guess = nearest(word, known)
    hint = f"did you mean `{here}.{guess}`?" if guess else f"there are {', '.join(dict.fromkeys(known))}"
    return f"{here} has no field `{word}`; {hint}"


def _with_fields(found: Explanation, owners: list[type[BaseModel]], schema: dict[str, Any]) -> Explanation:
    below: dict[str, Explanation] = {}
    for owner in owners:
        for name in field_names(owner):
            having = [other for other in owners if field_of(other, name)]
            below.setdefault(name, _field(f"{found.path}.{name}", name, having, schema))
    return Explanation(**{**vars(found), "fields": tuple(below.values())})


def _field(path: str, written: str, owners: list[type[BaseModel]], schema: dict[str, Any]) -> Explanation:
    """One field; of a union every branch that has it contributes its values, its text only when they differ."""
    entries = [_properties(owner, schema)[written] for owner in owners]
    names = [field_of(owner, written)[0] for owner in owners]  # type: ignore[index]
    docs = [field_docs(owner).get(name, "") for owner, name in zip(owners, names, strict=True)]
    texts = list(dict.fromkeys(docs))
    if len(owners) > 1 and len(texts) > 1:
        told = [f"{tag_of(owner) or owner.__name__}: {doc}" for owner, doc in zip(owners, docs, strict=True)]
        texts = ["\n".join(told)]
    required = any(written in _part(owner, schema).get("required", []) for owner in owners)
    has_default = len(owners) == 1 and not required and "default" in entries[0]
    return Explanation(
        path=path,
        text=texts[0],
        type=" or ".join(dict.fromkeys(word for entry in entries for word in _types(entry, schema))),
        required=required,
        default=flow(entries[0]["default"]) if has_default else None,
        values=tuple(dict.fromkeys(value for entry in entries for value in _values(entry))),
    )


def _part(model: type[BaseModel], schema: dict[str, Any]) -> dict[str, Any]:
    part: dict[str, Any] = schema["$defs"].get(model.__name__, schema)
    return part


def _properties(model: type[BaseModel], schema: dict[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = _part(model, schema)["properties"]
    return properties


def _values(entry: dict[str, Any]) -> list[str]:
    found = [str(flow(value)) for value in entry.get("enum", [entry["const"]] if "const" in entry else [])]
    for branch in [*entry.get("anyOf", []), *entry.get("oneOf", [])]:
        found += _values(branch)
    return found


def _types(entry: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """The types of a schema in words, each with its limits."""
    branches = [*entry.get("anyOf", []), *entry.get("oneOf", [])]
    if branches:
        return list(dict.fromkeys(word for branch in branches for word in _types(branch, schema)))
    if "$ref" in entry:
        part = schema["$defs"][entry["$ref"].rpartition("/")[2]]
        return ["mapping"] if part.get("type") == "object" else _types(part, schema)
    if "const" in entry or "enum" in entry:
        return ["one word" if entry.get("type", "string") == "string" else _WORDS.get(entry["type"], entry["type"])]
    if entry.get("type") == "array":
        return [f"list of {' or '.join(_types(entry.get('items', {}), schema))}"]
    if entry.get("type") == "object":
        extra = entry.get("additionalProperties")
        return [f"mapping to {' or '.join(_types(extra, schema))}" if isinstance(extra, dict) and extra else "mapping"]
    return [_WORDS.get(entry.get("type", ""), "anything") + _limits(entry)]


def _limits(entry: dict[str, Any]) -> str:
    words = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most", "exclusiveMaximum": "below"}
    found = [f"{text} {entry[key]}" for key, text in words.items() if key in entry and abs(entry[key]) < 2**53]
    examples = " or ".join(map(str, entry.get("examples", [])))
    return "".join(f", {limit}" for limit in found) + (f" such as {examples}" if examples else "")
