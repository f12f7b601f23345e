"""The three kinds of patch that are no apply: JSON (RFC 6902), merge (RFC 7386) and Kubernetes' strategic merge."""

from typing import Any

from double.plain import copied
from double.schema import Shape


class PatchError(Exception):
    """The patch does not fit the object; the message is the API server's."""


def json_patch(body: Any, operations: list[dict[str, Any]]) -> Any:
    """The object after a JSON patch."""
    body = copied(body)
    for operation in operations:
        parts = _pointer(operation["path"])
        op = operation["op"]
        if op in ("move", "copy"):
            value = copied(_at(body, _pointer(operation["from"])))
            if op == "move":
                _take(body, _pointer(operation["from"]))
            _put(body, parts, value)
        elif op == "add":
            _put(body, parts, copied(operation["value"]))
        elif op == "remove":
            _take(body, parts)
        elif op == "replace":
            _take(body, parts)
            _put(body, parts, copied(operation["value"]))
        elif op == "test":
            if _at(body, parts) != operation["value"]:
                raise PatchError(f"testing value {operation['path']} failed: test failed")
        else:
            raise PatchError(f"unexpected kind: {op}")
    return body


def _pointer(text: str) -> list[str]:
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _at(body: Any, parts: list[str]) -> Any:
    for part in parts:
        try:
            body = body[int(part)] if isinstance(body, list) else body[part]
        except (KeyError, IndexError, ValueError, TypeError):
            raise PatchError(f"jsonpatch doc is missing path: /{'/'.join(parts)}: missing value") from None
    return body


def _put(body: Any, parts: list[str], value: Any) -> None:
    parent = _at(body, parts[:-1])
    if isinstance(parent, list):
        parent.insert(len(parent) if parts[-1] == "-" else int(parts[-1]), value)
    else:
        parent[parts[-1]] = value


def _take(body: Any, parts: list[str]) -> None:
    _at(body, parts)
    parent = _at(body, parts[:-1])
    del parent[int(parts[-1]) if isinstance(parent, list) else parts[-1]]


def merge_patch(body: Any, patch: Any) -> Any:
    """The object after a merge patch: null takes a field out, a list replaces the list."""
    if not isinstance(patch, dict):
        return copied(patch)
    out = dict(body) if isinstance(body, dict) else {}
    for name, inner in patch.items():
        if inner is None:
            out.pop(name, None)
        else:
            out[name] = merge_patch(out.get(name), inner)
    return out


def strategic(shape: Shape, body: Any, patch: Any) -> Any:
    """The object after a strategic merge patch: lists with a merge key are merged by it."""
    if not isinstance(patch, dict):
        return copied(patch)
    if patch.get("$patch") == "replace":
        return {name: copied(inner) for name, inner in patch.items() if name != "$patch"}
    out = dict(body) if isinstance(body, dict) else {}
    if "$retainKeys" in patch:
        out = {name: inner for name, inner in out.items() if name in patch["$retainKeys"]}
    for name, inner in patch.items():
        if name.startswith("$setElementOrder/") or name in ("$retainKeys", "$patch"):
            continue
        if name.startswith("$deleteFromPrimitiveList/"):
            target = name.partition("/")[2]
            out[target] = [item for item in out.get(target, []) if item not in inner]
        elif inner is None:
            out.pop(name, None)
        elif isinstance(inner, list):
            out[name] = _strategic_list(shape.field(name), out.get(name) or [], inner)
        else:
            out[name] = strategic(shape.field(name), out.get(name), inner)
    return out


def _strategic_list(shape: Shape, live: list[Any], patch: list[Any]) -> list[Any]:
    if "merge" not in str(shape.schema.get("x-kubernetes-patch-strategy", "")):
        return copied(patch)
    key = shape.schema.get("x-kubernetes-patch-merge-key")
    if key is None:
        return live + [item for item in patch if item not in live]
    if any(item.get("$patch") == "replace" for item in patch):
        return [copied(item) for item in patch if "$patch" not in item]
    out = list(live)
    for item in patch:
        index = next((i for i, known in enumerate(out) if known.get(key) == item.get(key)), None)
        if item.get("$patch") == "delete":
            out = [known for known in out if known.get(key) != item.get(key)]
        elif index is None:
            out.append(strategic(shape.item(), {}, item))
        else:
            out[index] = strategic(shape.item(), out[index], item)
    return out
