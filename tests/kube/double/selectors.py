"""Label and field selectors, as lists and watches take them."""

import re
from collections.abc import Callable
from typing import Any

Body = dict[str, Any]
Test = Callable[[Body], bool]

_SET = re.compile(r"^\s*(?P<key>[^\s!,()=]+)\s+(?P<op>in|notin)\s*\((?P<values>[^)]*)\)\s*$")
_EQUAL = re.compile(r"^\s*(?P<key>[^\s!=]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s=!]*)\s*$")
_EXISTS = re.compile(r"^\s*(?P<no>!?)\s*(?P<key>[^\s!=()]+)\s*$")
_EVERYWHERE = {"metadata.name", "metadata.namespace"}
_FIELDS = {
    "pods": {
        *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
        *("status.phase", "status.podIP", "status.nominatedNodeName"),
    },
    "events": {
        *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion")),
        *("involvedObject.fieldPath", "reason", "reportingComponent", "source", "type"),
    },
    "nodes": {"spec.unschedulable"},
    "secrets": {"type"},
    "namespaces": {"status.phase"},
    "jobs": {"status.successful"},
}


class SelectorError(Exception):
    """The selector cannot be read; the message is the API server's."""


def labels(text: str) -> Test:
    """The test that a label selector is."""
    tests = [_requirement(part) for part in re.split(r",(?![^(]*\))", text) if part.strip()]
    return lambda body: all(test(body.get("metadata", {}).get("labels") or {}) for test in tests)


def _requirement(text: str) -> Callable[[dict[str, str]], bool]:
    if match := _SET.match(text):
        values = {value.strip() for value in match["values"].split(",")}
        key, wanted = match["key"], match["op"] == "in"
        return lambda given: (given.get(key) in values) == wanted
    if match := _EQUAL.match(text):
        key, value, same = match["key"], match["value"], match["op"] != "!="
        return lambda given: (given.get(key) == value) == same
    if match := _EXISTS.match(text):
        key, wanted = match["key"], not match["no"]
        return lambda given: (key in given) == wanted
    raise SelectorError(f"unable to parse requirement: found '{text}'")


def fields(text: str, plural: str) -> Test:
    """The test that a field selector is; a resource knows a few fields only."""
    known = _EVERYWHERE | _FIELDS.get(plural, set())
    tests = []
    for part in filter(None, text.split(",")):
        match = _EQUAL.match(part)
        if not match:
            raise SelectorError(f"invalid selector: '{part}'; can't understand '{part}'")
        if match["key"] not in known:
            raise SelectorError(f"field label not supported: {match['key']}")
        tests.append((match["key"], match["value"], match["op"] != "!="))
    return lambda body: all((_field(body, key) == value) == same for key, value, same in tests)


def _field(body: Any, path: str) -> str:
    if path == "source":
        path = "source.component"
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return str(body).lower() if isinstance(body, bool) else "" if body is None else str(body)
