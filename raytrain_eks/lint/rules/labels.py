"""RT309: keys and values of labels, selectors and annotations.

Sources: k8s.io/apimachinery/pkg/util/validation (IsQualifiedName, IsValidLabelValue) and pkg/api/validation
(ValidateAnnotations, which compares keys in lower case, TotalAnnotationSizeLimitB).
"""

import re
from collections.abc import Iterator, Mapping

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.served import is_served
from raytrain_eks.lint.tree import mapping, placeholder
from raytrain_eks.spec.kubernetes import is_label_key, is_label_value
from raytrain_eks.spec.problem import shown
from raytrain_eks.spec.source import Path

_OPAQUE = ("ConfigMap", "Secret", "CustomResourceDefinition")
"""Kinds in which a mapping of this shape is data, or a schema."""
_LABELS = ("matchLabels", "nodeSelector")
LARGEST = 256 * 1024
"""Bytes of all keys and values of an object's annotations."""


def label_mappings(resource: Resource) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """Every mapping of labels in an object, with its path: its own, those of its templates, and selectors by labels; of
    what no API server reads only its own."""
    for path, above, key, found in _mappings(resource):
        if key in _LABELS or (key == "labels" and above == "metadata"):
            yield path, found
    if resource.is_a("", "Service", "ReplicationController"):
        yield (*resource.base, "spec", "selector"), mapping(resource.get("spec", "selector"))


def annotation_mappings(resource: Resource) -> Iterator[tuple[Path, Mapping[str, object]]]:
    """The annotations of an object and of its templates, each with its path."""
    for path, above, key, found in _mappings(resource):
        if key == "annotations" and above == "metadata":
            yield path, found


def _mappings(resource: Resource) -> Iterator[tuple[Path, str, str, Mapping[str, object]]]:
    """Path, the key above, the key itself and the mapping, of the object's metadata and of all that templates hold."""
    for key, value in mapping(resource.get("metadata")).items():
        if isinstance(value, Mapping):
            yield (*resource.base, "metadata", key), "metadata", key, value
    if resource.kind not in _OPAQUE and is_served(resource):
        yield from _below(resource.get("spec"), (*resource.base, "spec"))


def _below(value: object, path: Path) -> Iterator[tuple[Path, str, str, Mapping[str, object]]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(item, (*path, index))
    for key, part in mapping(value).items():
        if not isinstance(part, Mapping | list):
            continue
        if key == "metadata" and isinstance(part, Mapping) and "spec" in mapping(value):
            for inner, found in part.items():
                if isinstance(found, Mapping):
                    yield (*path, key, inner), key, inner, found
        elif key in _LABELS and isinstance(part, Mapping):
            yield (*path, key), str(path[-1]), key, part
        else:
            yield from _below(part, (*path, key))


def _labels(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        for path, found in label_mappings(resource):
            for key, value in found.items():
                yield from _key(resource, (*path, key), key, key, "label")
                if isinstance(value, str) and not placeholder(value) and not is_label_value(value):
                    yield _value(resource, (*path, key), key, value)
        for path, found in annotation_mappings(resource):
            for key in found:
                yield from _key(resource, (*path, key), key, key.lower(), "annotation")
            size = sum(
                len(key.encode()) + len(value.encode()) for key, value in found.items() if isinstance(value, str)
            )
            if size > LARGEST:
                reason = f"the annotations have {size} bytes, and an object's have at most {LARGEST}"
                yield Hit(on=resource, path=path, reason=reason, fix="keep the text in a ConfigMap")


def _key(on: Resource, path: Path, key: str, tested: str, what: str) -> Iterator[Hit]:
    if placeholder(key) or is_label_key(tested):
        return
    prefix, slash, _ = key.rpartition("/")
    said = f"the key of this {what}, {shown(key)}, is no qualified name"
    rule = "at most 63 letters, digits, -, _ and dots, with a letter or digit at both ends"
    if slash and not is_label_key(f"{prefix.lower() if what == 'annotation' else prefix}/x"):
        rule = "a lower-case DNS name before the one slash"
    near = re.sub(r"[^A-Za-z0-9._/-]+", "-", key).lower()
    near = near if is_label_key(near) else "app.kubernetes.io/name"
    yield Hit(on=on, path=path, reason=f"{said}: it needs {rule}", fix=f"for example {near}", key=True)


def _value(on: Resource, path: Path, key: str, value: str) -> Hit:
    if len(value) > 63:
        reason = f"{shown(key)}: a label's value has at most 63 letters, this one has {len(value)}"
        return Hit(on=on, path=path, reason=reason, fix="shorten it, or write it as an annotation")
    reason = f"{shown(key)}: {shown(value)} is no label's value: letters, digits, -, _ and dots, with a letter or digit"
    fix = "write it as an annotation, whose values may be any text, or replace what is not allowed"
    return Hit(on=on, path=path, reason=f"{reason} at both ends", fix=fix)


RULES = (
    Rule(
        id="RT309",
        severity="error",
        title="A label or annotation that Kubernetes refuses",
        why="Keys are qualified names: `name` or `domain/name`, the name at most 63 long. Values of labels and of "
        "selectors by labels have at most 63 letters, digits, dashes, underscores and dots. The API server refuses the "
        "whole object; in a pod template the pods, which then never appear.",
        fix="Write what people read as an annotation, whose values are free.",
        check=_labels,
    ),
)
