"""What an API server says to the values of an object, in its words: types, required fields, patterns, names and CEL."""

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import cel

from double.kinds import Kind
from double.schema import Shape

Cause = tuple[str, str, str]
"""Reason, field and message of one finding."""
_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "null": type(None),
    "integer": int,
    "number": (int, float),
}
_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_LABEL_1035 = r"[a-z]([-a-z0-9]*[a-z0-9])?"
_VALUE = r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?"
_OF_NAME = {
    "subdomain": (
        _SUBDOMAIN,
        253,
        "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
        f"and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SUBDOMAIN}')",
    ),
    "label": (
        _LABEL,
        63,
        "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
        f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')",
    ),
    "label1035": (
        _LABEL_1035,
        63,
        "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
        "character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation "
        f"is '{_LABEL_1035}')",
    ),
}
_A_LABEL = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    f"end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    f"'{_VALUE}')"
)


def type_name(value: Any) -> str:
    """The JSON type of a value, as messages name it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    return {dict: "object", list: "array", str: "string", int: "integer", float: "number"}[type(value)]


def names(kind: Kind, body: dict[str, Any]) -> Iterator[Cause]:
    """Findings about name and labels."""
    meta = body["metadata"]
    name = meta["name"]
    if kind.group == "rbac.authorization.k8s.io":
        if name in (".", "..") or "/" in name or "%" in name:
            yield "FieldValueInvalid", "metadata.name", f"Invalid value: {json.dumps(name)}: may not contain '/' or '%'"
    else:
        rule = {"namespaces": "label", "services": "label1035"}.get(kind.plural, "subdomain")
        pattern, longest, text = _OF_NAME[rule]
        if len(name) > longest:
            text = f"must be no more than {longest} characters"
        if len(name) > longest or not re.fullmatch(pattern, name):
            yield "FieldValueInvalid", "metadata.name", f"Invalid value: {json.dumps(name)}: {text}"
    for value in (meta.get("labels") or {}).values():
        if not isinstance(value, str):
            continue
        if len(value) > 63:
            yield (
                "FieldValueInvalid",
                "metadata.labels",
                f"Invalid value: {json.dumps(value)}: must be no more than 63 bytes",
            )
        elif not re.fullmatch(_VALUE, value):
            yield "FieldValueInvalid", "metadata.labels", f"Invalid value: {json.dumps(value)}: {_A_LABEL}"


def values(shape: Shape, value: Any, path: str = "") -> Iterator[Cause]:
    """Findings about a value and everything in it."""
    types = shape.types
    if types and not any(_is(value, name) for name in types):
        given, wanted = type_name(value), next(name for name in types if name != "null")
        message = f'Invalid value: "{given}": {path} in body must be of type {wanted}: "{given}"'
        yield "FieldValueTypeInvalid", path, message
        return
    if value is None:
        return
    yield from _constraints(shape.schema, value, path)
    if isinstance(value, dict):
        for name in shape.schema.get("required", ()):
            if value.get(name) is None:
                yield "FieldValueRequired", _below(path, name), "Required value"
        for name, inner in value.items():
            if shape.declared(name):
                yield from values(shape.field(name), inner, _below(path, name))
    elif isinstance(value, list):
        if shape.list_type != "atomic":
            yield from _duplicates(shape, value, path)
        for index, inner in enumerate(value):
            yield from values(shape.item(), inner, f"{path}[{index}]")


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is(value: Any, name: str) -> bool:
    if isinstance(value, bool):
        return name == "boolean"
    if name == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES[name])  # type: ignore[arg-type]


def _duplicates(shape: Shape, value: list[Any], path: str) -> Iterator[Cause]:
    seen = []
    for index, item in enumerate(value):
        key = shape.item_key(item) if shape.list_type == "map" else item
        if key in seen:
            yield "FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {json.dumps(key)}"
        seen.append(key)


def _constraints(schema: dict[str, Any], value: Any, path: str) -> Iterator[Cause]:
    """The finding of each bound of the schema that the value is past."""
    shown = json.dumps(value) if not isinstance(value, dict | list) else f'"{type_name(value)}"'
    size = len(value) if isinstance(value, str | list | dict) else None
    bounds: list[tuple[str, type | tuple[type, ...], Any, str, str]] = [
        ("minLength", str, size, shown, "should be at least {} chars long"),
        ("minimum", (int, float), value, shown, "should be greater than or equal to {}"),
        ("maximum", (int, float), value, shown, "should be less than or equal to {}"),
        ("minItems", list, size, str(size), "should have at least {} items"),
        ("minProperties", dict, size, str(size), "should have at least {} properties"),
    ]
    if "enum" in schema and value not in schema["enum"]:
        known = ", ".join(json.dumps(one) for one in schema["enum"])
        yield "FieldValueNotSupported", path, f"Unsupported value: {shown}: supported values: {known}"
    if isinstance(value, str) and "pattern" in schema and not re.search(schema["pattern"], value):
        yield "FieldValueInvalid", path, f"Invalid value: {shown}: {path} in body should match '{schema['pattern']}'"
    if isinstance(value, str) and len(value) > schema.get("maxLength", len(value)):
        yield "FieldValueTooLong", path, f"Too long: may not be more than {schema['maxLength']} bytes"
    for key, of in (("maxItems", list), ("maxProperties", dict)):
        if isinstance(value, of) and key in schema and len(value) > schema[key]:
            yield "FieldValueTooMany", path, f"Too many: {size}: must have at most {schema[key]} items"
    for key, types, measure, given, text in bounds:
        if key in schema and isinstance(value, types) and not isinstance(value, bool):
            bound = schema[key]
            if measure > bound if key == "maximum" else measure < bound:
                message = f"Invalid value: {given}: {path} in body {text.format(bound)}"
                yield "FieldValueInvalid", path, message
    yield from _combined(schema, value, path)


def _combined(schema: dict[str, Any], value: Any, path: str) -> Iterator[Cause]:
    if "x-kubernetes-int-or-string" in schema:
        return

    def fits(part: dict[str, Any]) -> bool:
        return not any(values(Shape(part, core=False), value, path))

    for part in schema.get("allOf", ()):
        yield from values(Shape(part, core=False), value, path)
    if "anyOf" in schema and not any(map(fits, schema["anyOf"])):
        yield "FieldValueInvalid", path, f'Invalid value: "": "{path}" must validate at least one schema (anyOf)'
    if "oneOf" in schema and sum(map(fits, schema["oneOf"])) != 1:
        text = f'Invalid value: "": "{path}" must validate one and only one schema (oneOf)'
        yield "FieldValueInvalid", path, f"{text}. Found none valid" if not any(map(fits, schema["oneOf"])) else text
    if "not" in schema and fits(schema["not"]):
        yield "FieldValueInvalid", path, f'Invalid value: "": "{path}" must not validate the schema (not)'


_ABSENT: Any = object()


def rules(shape: Shape, value: Any, old: Any = None, path: str = "") -> Iterator[Cause]:
    """Findings of the CEL rules (`x-kubernetes-validations`) of a value that fits its schema; rules that look at the
    value before (`oldSelf`) hold where there was none."""
    yield from _rules(shape, value, _ABSENT if old is None else old, path)


def _rules(shape: Shape, value: Any, old: Any, path: str) -> Iterator[Cause]:
    for entry in shape.schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in entry["rule"] and old is _ABSENT:
            continue
        if not holds(entry["rule"], value, old):
            text = entry.get("message") or f"failed rule: {entry['rule']}"
            reason = entry.get("reason", "FieldValueInvalid")
            field = path + entry.get("fieldPath", "")
            yield reason, field, f'Invalid value: "{type_name(value)}": {text}'
    if isinstance(value, dict):
        for name, inner in value.items():
            if shape.declared(name) and not shape.loose:
                before = old.get(name, _ABSENT) if isinstance(old, dict) else _ABSENT
                yield from _rules(shape.field(name), inner, before, _below(path, name))
    elif isinstance(value, list):
        item = shape.item()
        for index, inner in enumerate(value):
            before = _ABSENT
            if shape.list_type == "map" and isinstance(old, list):
                key = shape.item_key(inner)
                before = next((one for one in old if shape.item_key(one) == key), _ABSENT)
            yield from _rules(item, inner, before, f"{path}[{index}]")


@cache
def _program(rule: str) -> Any:
    return cel.compile(rule)


def _find(text: str, pattern: str) -> str:
    match = re.search(pattern, text)
    return match.group(0) if match else ""


def holds(rule: str, value: Any, old: Any = _ABSENT) -> bool:
    """Whether a CEL rule holds for a value."""
    context = cel.Context()
    context.add_variable("self", value)
    if old is not _ABSENT:
        context.add_variable("oldSelf", old)
    context.add_function("find", _find)
    context.add_function("split", lambda text, by: text.split(by))
    return bool(_program(rule).execute(context))
