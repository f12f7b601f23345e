"""pydantic's findings in the words of the person who wrote the file: where, what was written, the rule, the fix."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from raytrain_eks.spec.check import dotted
from raytrain_eks.spec.fields import field_docs, field_of, fields_at, models_at, summary
from raytrain_eks.spec.problem import Problem, nearest
from raytrain_eks.spec.source import Document, Path, scalar

_TYPES = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
"""pydantic's error type -> what is expected, in a file's words."""
_WORDS_OF_1_1 = {
    "yes": True,
    "on": True,
    "y": True,
    "true": True,
    "no": False,
    "off": False,
    "n": False,
    "false": False,
}
"""What YAML 1.1 reads as true and false, and YAML 1.2 as text."""


def problems_of(model: type[BaseModel], error: ValidationError, document: Document) -> list[Problem]:
    """One problem per mistake; the branches of a union that the value was not meant for are left out."""
    entries = list(_meant(error.errors(include_url=False), document.data))
    misspelt = {
        (*path[:-1], nearest(str(entry["loc"][-1]), fields_at(model, entry["loc"][:-1])))
        for path, entry in entries
        if entry["type"] == "extra_forbidden"
    }
    # The line that is missing is there, under a name that is nearly right: one mistake, not two.
    entries = [(path, entry) for path, entry in entries if not (entry["type"] == "missing" and path in misspelt)]
    return [_problem(model, entry, path, document) for path, entry in entries]


def _meant(entries: list[Any], data: Any) -> Iterator[tuple[Path, Any]]:
    """Findings with their paths in the file, one branch of each union: the one whose kind of value was written."""
    by_union: dict[Path, dict[str, list[tuple[Path, Any]]]] = {}
    for entry in entries:
        if entry["loc"][-1:] == ("[key]",):
            yield tuple(entry["loc"][:-1]), entry
            continue
        missing = entry["type"] in ("missing", "extra_forbidden")
        path, branch, above = real_path(entry["loc"], data, missing=missing)
        if branch is None:
            yield path, entry
        else:
            by_union.setdefault(above, {}).setdefault(branch, []).append((path, entry))
    for above, branches in by_union.items():
        fitting = [found for found in branches.values() if not any(_wrong_kind(above, one) for one in found)]
        if fitting:
            yield from min(fitting, key=len)
            continue
        kinds = [_TYPES.get(found[0][1]["type"]) for found in branches.values()]
        wanted = " or ".join(dict.fromkeys(kind for kind in kinds if kind))
        first = next(iter(branches.values()))[0][1]
        yield above, {**first, "wanted": wanted} if len(branches) > 1 else first


def _wrong_kind(above: Path, found: tuple[Path, Any]) -> bool:
    path, entry = found
    return path == above and entry["type"] in _TYPES


def real_path(location: tuple[str | int, ...], data: Any, *, missing: bool) -> tuple[Path, str | None, Path]:
    """pydantic's location as a path in the data, the first step that is not in it, and the path up to there.

    Such a step is the name of a union's branch or of a validator. With `missing` the last step is a field's name.
    """
    path: list[str | int] = []
    branch, above = None, 0
    for position, step in enumerate(location):
        last = position == len(location) - 1
        if isinstance(data, Mapping) and isinstance(step, str) and (step in data or (last and missing)):
            path.append(step)
            data = data.get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int) and step < len(data):
            path.append(step)
            data = data[step]
        elif branch is None and not (isinstance(data, Mapping) and data.get("kind") == step):
            branch, above = str(step), len(path)
    return tuple(path), branch, tuple(path[:above])


def _problem(model: type[BaseModel], entry: Any, path: Path, document: Document) -> Problem:
    kind, location = entry["type"], entry["loc"]
    if kind == "extra_forbidden":
        return _unknown(model, location, path, document)
    if kind == "missing":
        return _missing(model, location, path, document)
    if kind == "union_tag_invalid":
        path = (*path, entry["ctx"]["discriminator"].strip("'"))
    if location[-1:] == ("[key]",):
        place = document.place(path, key=True) or (None, None)
        return Problem(path=dotted(document.data, path), rule=_rule(entry, None)[0]).at(document.file, *place)
    line, column = document.place(path) or (None, None)
    value = document.texts.get(path)
    if entry["input"] is None:
        rule, fix = _empty(model, location)
        value = None if value == "" else value
    else:
        rule, fix = _rule(entry, value)
        value = _short(entry["input"]) if value is None else value
    return Problem(path=dotted(document.data, path), rule=rule, value=value, fix=fix).at(document.file, line, column)


def _unknown(model: type[BaseModel], location: Path, path: Path, document: Document) -> Problem:
    key, known = str(location[-1]), fields_at(model, location[:-1])
    guess = nearest(key, known)
    rule = "unknown field" + (f"; did you mean `{guess}`?" if guess else "")
    fix = None if guess else f"known here: {', '.join(known)}"
    place = document.place(path, key=True) or (None, None)
    return Problem(path=dotted(document.data, path), rule=rule, fix=fix).at(document.file, *place)


def _missing(model: type[BaseModel], location: Path, path: Path, document: Document) -> Problem:
    place = document.place(path) or (None, None)
    rule, fix = "is required and missing", None
    if isinstance(location[-1], int):
        rule = f"entry {location[-1] + 1} of the list is missing"
    for candidate in models_at(model, location[:-1]):
        if (found := field_of(candidate, location[-1])) and (text := field_docs(candidate).get(found[0])):
            fix = text.split("\n")[0]
    return Problem(path=dotted(document.data, path), rule=rule, fix=fix).at(document.file, *place)


def _empty(model: type[BaseModel], location: Path) -> tuple[str, str | None]:
    """A key with nothing behind its colon: what belongs there."""
    owners = models_at(model, location[:-1]) if location else []
    field = next((found[1] for owner in owners if (found := field_of(owner, location[-1]))), None)
    below = models_at(model, location) if field is not None else []
    below = [found for found in below if found not in owners]
    fix = None
    if len(below) == 1:
        fix = f"{summary(below[0])} Fields: {', '.join(fields_at(below[0], ()))}"
    elif field is not None and not field.is_required():
        fix = "leave the line out to take the default"
    return "nothing is written behind the colon", fix


def _rule(entry: Any, text: str | None) -> tuple[str, str | None]:
    kind, context, value = entry["type"], entry.get("ctx", {}), entry["input"]
    if kind == "value_error":
        return str(context["error"]), None
    if wanted := entry.get("wanted") or _TYPES.get(kind):
        return f"must be {wanted}", _habit(wanted, value, text)
    if kind in ("literal_error", "enum", "union_tag_invalid"):
        expected = context.get("expected") or context["expected_tags"]
        choices = [word.strip(" '") for word in expected.replace(" or ", ", ").split(", ")]
        guess = nearest(str(value.get("kind") if isinstance(value, Mapping) else value), choices)
        return f"must be {_or(choices)}", f"did you mean `{guess}`?" if guess else None
    if kind == "union_tag_not_found":
        return f"needs the field `{context['discriminator'].strip(chr(39))}`", None
    if kind == "finite_number":
        return "must be a finite number", None
    if kind in ("string_too_short", "too_short") and context.get("min_length") == 1:
        return "must not be empty", None
    if kind == "string_pattern_mismatch":
        return f"must match {context['pattern']}", None
    message = str(entry["msg"]).removeprefix("Input ").removeprefix("Value error, ")
    return message.replace("should be", "must be").replace("should have", "must have"), None


def _or(choices: list[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"


def _habit(wanted: str, value: Any, text: str | None) -> str | None:
    """What a value of another type was probably meant to be, when a habit or YAML's own reading explains it."""
    if wanted == "true or false" and str(value).lower() in _WORDS_OF_1_1:
        written = str(_WORDS_OF_1_1[str(value).lower()]).lower()
        why = "without quotes" if str(value) == written else f"since in YAML 1.2 `{value}` is text"
        return f"write {written}, {why}"
    if wanted == "text" and isinstance(value, bool | int | float):
        return f'put it in quotes: "{text if text is not None else value}"'
    if "number" in wanted and isinstance(value, str):
        bare = value.replace("_", "").replace(",", "").strip()
        number = scalar(bare)
        if isinstance(number, int | float) and not isinstance(number, bool):
            return f"write {bare}" + ("" if bare != value else " without quotes")
    if wanted == "a whole number" and isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return f"write {int(value)}"
    return "write each entry on its own line after a dash, or as [a, b]" if wanted == "a list" else None


def _short(value: Any) -> str | None:
    if isinstance(value, Mapping):
        return "{...}" if value else "{}"
    if isinstance(value, list | tuple):
        return "[...]" if value else "[]"
    return str(value)
