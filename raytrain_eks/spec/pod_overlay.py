"""The piece of a pod that a file brings itself: checked against the pod's fields, merged as kubectl's strategic merge.

Rules of the merge (k8s.io/apimachinery/pkg/util/strategicpatch): mappings are merged; lists whose entries have a key
(containers and volumes by name, ports by containerPort, mounts by mountPath) are merged by it, a new entry comes last;
other lists are replaced; null removes a field; `$patch: delete` in an entry removes that entry, `$patch: replace` in a
mapping replaces it. A volume of the same name is replaced whole, since it has one source.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from raytrain_eks.spec import quantity
from raytrain_eks.spec.problem import Problem, nearest

ROOT = "PodTemplate"
PATCH = "$patch"
_SCALARS: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "boolean": (bool,),
    "number": (int, float),
    "quantity": (str, int, float),
}
_WORDS = {"string": "text", "integer": "a whole number", "boolean": "true or false", "number": "a number"}


@cache
def fields_of() -> dict[str, dict[str, str]]:
    """Type -> field -> entry of the table of a pod's fields; see `build_pod_fields` for how an entry reads."""
    table: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "pod_fields.json").read_text("utf-8"))
    return table


def problems(piece: Mapping[str, Any], path: str) -> Iterator[Problem]:
    """What is wrong with a piece of a pod; `path` is where it stands in the file, such as `workers.0.pod`."""
    yield from _check(piece, ROOT, path)


def merged(body: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """A pod template with a piece merged over it. Neither of the two is changed."""
    return _object(dict(body), piece, ROOT) if piece else dict(body)


def _list_of(entry: str) -> tuple[str, str, bool]:
    """`[Volume||name]` -> ("Volume", "name", True): type of the entries, merge key, whether an entry is replaced."""
    inner, _, key = entry[1:-1].partition("|")
    return inner, key.lstrip("|"), key.startswith("|")


def _check(value: Any, entry: str, path: str) -> Iterator[Problem]:
    if value is None:
        return
    if entry.startswith("["):
        yield from _check_list(value, entry, path)
    elif entry.startswith("{"):
        if not isinstance(value, Mapping):
            yield Problem(path=path, value=_short(value), rule="a mapping is expected here")
            return
        for key, item in value.items():
            if entry != "{any}":
                yield from _check(item, entry[1:-1], f"{path}.{key}")
    elif entry in _SCALARS:
        yield from _check_scalar(value, entry, path)
    elif not isinstance(value, Mapping):
        yield Problem(path=path, value=_short(value), rule=f"a mapping with the fields of a {entry} is expected here")
    else:
        fields = fields_of()[entry]
        for key, item in value.items():
            if key == PATCH:
                if item not in ("delete", "replace"):
                    yield Problem(path=f"{path}.{key}", value=_short(item), rule="must be delete or replace")
            elif key not in fields:
                guess = nearest(str(key), fields)
                rule = f"a {entry} has no such field" + (f"; did you mean `{guess}`?" if guess else "")
                fix = None if guess else f"known here: {', '.join(fields)}"
                yield Problem(path=f"{path}.{key}", rule=rule, fix=fix)
            else:
                yield from _check(item, fields[key], f"{path}.{key}")


def _check_list(value: Any, entry: str, path: str) -> Iterator[Problem]:
    if not isinstance(value, list | tuple):
        yield Problem(path=path, value=_short(value), rule="a list is expected here")
        return
    inner, key, _ = _list_of(entry)
    for index, item in enumerate(value):
        if item is None:
            fix = "fill it, or take the dash out"
            yield Problem(path=f"{path}.{index}", rule="an entry of the list is empty", fix=fix)
        if key and isinstance(item, Mapping) and key not in item:
            rule = f"entries of this list are merged by `{key}`, and this one has none"
            yield Problem(path=f"{path}.{index}", rule=rule)
        yield from _check(item, inner, f"{path}.{index}")


def _check_scalar(value: Any, entry: str, path: str) -> Iterator[Problem]:
    wrong = not isinstance(value, _SCALARS[entry]) or (isinstance(value, bool) and entry != "boolean")
    if wrong:
        word = _WORDS.get(entry, "a quantity")
        quoted = f'put quotes around it: "{str(value).lower() if isinstance(value, bool) else value}"'
        fix = quoted if entry == "string" and isinstance(value, bool | int | float) else None
        yield Problem(path=path, value=_short(value), rule=f"must be {word}", fix=fix)
    elif entry == "quantity" and ".resources." in f"{path}.":
        try:
            quantity.parse(value)
        except ValueError as error:
            yield Problem(path=path, value=_short(value), rule=str(error))


def _short(value: Any) -> str:
    return "{...}" if isinstance(value, Mapping) else "[...]" if isinstance(value, list) else str(value)


def _object(base: dict[str, Any], piece: Mapping[str, Any], type: str) -> dict[str, Any]:
    fields = fields_of().get(type, {})
    out = {} if piece.get(PATCH) == "replace" else dict(base)
    for key, value in piece.items():
        if key == PATCH:
            continue
        if value is None:
            out.pop(key, None)
        else:
            out[key] = _value(out.get(key), value, fields.get(key, "any"))
    return out


def _value(base: Any, piece: Any, entry: str) -> Any:
    if isinstance(piece, Mapping):
        inner = entry if entry in fields_of() else ""
        return _object(dict(base) if isinstance(base, Mapping) else {}, piece, inner)
    if isinstance(piece, list | tuple):
        return _entries(base if isinstance(base, list) else [], piece, entry)
    return piece


def _entries(base: list[Any], piece: list[Any] | tuple[Any, ...], entry: str) -> list[Any]:
    inner, key, whole = _list_of(entry) if entry.startswith("[") else ("", "", False)
    if not key:
        return [_value(None, item, inner) for item in piece]
    out = list(base)
    for item in piece:
        at = next((i for i, old in enumerate(out) if isinstance(old, Mapping) and old.get(key) == item.get(key)), None)
        if item.get(PATCH) == "delete":
            if at is not None:
                del out[at]
        elif at is None:
            out.append(_object({}, item, inner))
        else:
            out[at] = _object({} if whole else dict(out[at]), item, inner)
    return out
