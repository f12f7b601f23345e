"""RT01x: texts that YAML reads as something else, and what a reader of YAML refuses."""

import re
from collections.abc import Iterator

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.files import Written
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.rules.labels import annotation_mappings, label_mappings
from raytrain_eks.lint.served import is_served
from raytrain_eks.lint.tree import get, items, mapping, text
from raytrain_eks.spec.source import Path

_TEXTS = (("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "generateName"), ("metadata", "namespace"))
_TEXT_PARTS = {"ConfigMap": ("data", "binaryData"), "Secret": ("data", "stringData")}
"""Mappings of texts in kinds of the core group."""


def _not_texts(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if pod.owner.kind == "ConfigMap":
            continue
        for container in pod.containers:
            for index, entry in enumerate(items(container.data.get("env"))):
                path = (*container.path, "env", index, "value")
                if _not_text(pod.owner, path, get(entry, "value")):
                    yield _hit(pod.owner, path, text(get(entry, "name")))
            for key in ("command", "args"):
                for index, word in enumerate(items(container.data.get(key))):
                    if word is None or _not_text(pod.owner, (*container.path, key, index), word):
                        yield _hit(pod.owner, (*container.path, key, index), key)
        yield from _values(pod.owner, pod.spec.get("nodeSelector"), (*pod.path, "nodeSelector"))
    for resource in bundle.resources:
        yield from _in_object(resource)


def _in_object(resource: Resource) -> Iterator[Hit]:
    for steps in _TEXTS if is_served(resource) else ():
        path, value = (*resource.base, *steps), resource.get(*steps)
        if isinstance(value, bool | int | float) or _not_text(resource, path, text(value)):
            yield _hit(resource, path, str(steps[-1]))
    for path, found in (*label_mappings(resource), *annotation_mappings(resource)):
        yield from _values(resource, found, path)
    for kind, parts in _TEXT_PARTS.items():
        if resource.is_a("", kind):
            for part in parts:
                yield from _values(resource, resource.get(part), (*resource.base, part))
    if resource.is_a("storage.k8s.io", "StorageClass"):
        yield from _values(resource, resource.get("parameters"), (*resource.base, "parameters"))


def _values(resource: Resource, found: object, path: Path) -> Iterator[Hit]:
    for key, value in mapping(found).items():
        if _not_text(resource, (*path, key), value):
            yield _hit(resource, (*path, key), key)


_OLD_YAML = re.compile(r"(?i:y|n|yes|no|on|off)|[-+]?0b[01_]+|[-+]?[0-9]+(_[0-9]+)+")
"""Bare words that YAML 1.2 reads as texts and kubectl (YAML 1.1, go-yaml) as truth values or numbers."""


def _not_text(on: Resource, path: Path, value: object) -> bool:
    if isinstance(value, str) and isinstance(on.document, Written):
        return _OLD_YAML.fullmatch(value) is not None and on.document.plain(path) is not None
    # Of a part that cannot be read, such as a template's braces, an empty mapping is left.
    unreadable = value == {} and bool(on.document.problems)
    return value is not None and not isinstance(value, str) and not unreadable


def _hit(on: Resource, path: Path, name: str) -> Hit:
    written = on.document.texts.get(path) or text(get(on.document.data, *path))
    kind = type(get(on.document.data, *path)).__name__
    said = {"int": "a number", "float": "a number", "bool": "a truth value"}.get(kind, "no text")
    said = "a truth value or a number to kubectl" if kind == "str" else f"{said} in YAML"
    reason = f"{name}: {written or '...'} is {said}, and a text is expected"
    return Hit(on=on, path=path, reason=reason, fix=f'write "{written}" in quotes' if written else "write a text")


def _refused(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for document in bundle.documents:
        for problem in document.problems:
            owner = next((found for found in bundle.resources if found.document is document), Resource(document))
            mark = (problem.line, problem.column or 1) if problem.line else None
            reason = problem.rule if problem.path == "(file)" else f"{problem.path}: {problem.rule}"
            yield Hit(on=owner, path=owner.base, reason=reason, fix=problem.fix or "", mark=mark)


RULES = (
    Rule(
        id="RT010",
        severity="error",
        title="A number or truth value where a text is expected",
        why="Environment variables, labels, annotations, node selectors and arguments are texts. A bare `2e-5`, "
        "`0o17`, `true` or `8` is something else to kubectl, which refuses the object, or changes the value (2e-5 to "
        "0.00002, 0o17 to 15). Bare `yes`, `on` and `1_000` are texts in YAML 1.2, but not to kubectl.",
        fix="Write it in quotes.",
        check=_not_texts,
    ),
    Rule(
        id="RT011",
        severity="error",
        title="YAML that readers do not agree about",
        why="A key that stands twice keeps its first or its last value, depending on the reader; merge keys, foreign "
        "tags are read by some only.",
        fix="Write each key once, and trees in full.",
        check=_refused,
    ),
)
