"""Between a write and the store: unknown fields, defaults, validation, what must not change."""

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from double import defaults, refusal, validation
from double.kinds import Kind
from double.store import Body, Store

if TYPE_CHECKING:
    from double.writes import Write

_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d+)?")
_TABLES = ("requests", "limits", "hard", "capacity", "allocatable")
_FIXED: dict[str, tuple[str, ...]] = {
    "storageclasses": ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    "persistentvolumeclaims": ("spec.storageClassName", "spec.accessModes", "spec.selector", "spec.volumeMode"),
    "jobs": ("spec.template", "spec.selector", "spec.completions", "spec.completionMode"),
    "daemonsets": ("spec.selector",),
    "deployments": ("spec.selector",),
    "statefulsets": ("spec.selector", "spec.serviceName", "spec.podManagementPolicy"),
    "rolebindings": ("roleRef",),
    "clusterrolebindings": ("roleRef",),
    "priorityclasses": ("value",),
    "secrets": ("type",),
}
"""What an update of one of Kubernetes' own resources must leave as it is."""


class Admission:
    """Looks at objects before they are kept. `warnings` are those of the write just done."""

    def __init__(self, store: Store):
        self.store = store
        self.warnings: list[str] = []

    def namespace_takes(self, kind: Kind, namespace: str, name: str) -> None:
        """Refuses a new object in a namespace that is missing or going."""
        if not kind.namespaced:
            return
        namespaces = self.store.kinds.named("namespaces")
        found = self.store.get(namespaces, "", namespace)
        if found is None:
            raise refusal.not_found(namespaces, namespace)
        if found["metadata"].get("deletionTimestamp"):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise refusal.forbidden(kind, name, why)

    def typed(self, kind: Kind, applied: Body) -> None:
        """Refuses an applied configuration that the schema has no place for."""
        shape = kind.versions[applied["apiVersion"].rpartition("/")[2]]
        unknown = shape.unknown(applied)
        if unknown:
            meta = applied["metadata"]
            place = f"{meta.get('namespace', '')}/{meta['name']}; {applied['apiVersion']}, Kind={kind.name}"
            errors = "\n".join(f".{path}: field not declared in schema" for path in unknown)
            raise refusal.Refusal(500, "", f"failed to create typed patch object ({place}): {errors}")

    def admit(self, kind: Kind, write: "Write", body: Body, live: Body | None) -> Body:
        """The body as it would be kept; raises a Refusal for one that would not."""
        shape = kind.versions[write.version or kind.storage]
        name = body["metadata"]["name"]
        unknown = shape.unknown(body)
        if unknown and write.validation == "Strict":
            errors = ", ".join(f'unknown field "{path}"' for path in unknown)
            text = f"strict decoding error: {errors}"
            if not kind.custom:
                text = f'{kind.name} in version "{write.version}" cannot be handled as a {kind.name}: {text}'
            raise refusal.bad_request(text)
        self.warnings = [f'unknown field "{path}"' for path in unknown] if write.validation == "Warn" else []
        body = shape.fill(shape.prune(body))
        if kind.custom:
            causes = list(validation.values(shape, body))
            causes = causes or list(validation.rules(shape, body, live))
        else:
            defaults.fill(kind, body, live)
            causes = list(self._own(kind, write, body, live))
        causes = list(validation.names(kind, body)) + causes if live is None else causes
        if causes:
            raise refusal.invalid(kind, name, causes)
        body["apiVersion"] = kind.api(kind.storage)
        return body

    def _own(self, kind: Kind, write: "Write", body: Body, live: Body | None) -> Any:
        shape = kind.versions[kind.storage]
        found = list(validation.values(shape, body))
        for reason, field, message in found:
            if reason == "FieldValueTypeInvalid":
                match = re.search(r"of type (\w+): \"(\w+)\"", message)
                assert match
                text = f"json: cannot unmarshal {match[2]} into Go struct field {kind.name}.{field} of type {match[1]}"
                version = write.version or kind.storage
                raise refusal.bad_request(
                    f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {text}'
                )
        for value in _quantities(body):
            if not _QUANTITY.fullmatch(str(value)):
                text = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                version = write.version or kind.storage
                raise refusal.bad_request(
                    f'{kind.name} in version "{version}" cannot be handled as a {kind.name}: {text}'
                )
        yield from found
        if live is not None:
            for path in self._changed(kind, body, live):
                shown = json.dumps(_at(body, path))
                yield "FieldValueInvalid", path, f"Invalid value: {shown}: field is immutable"

    def _changed(self, kind: Kind, body: Body, live: Body) -> list[str]:
        fixed = _FIXED.get(kind.plural, ())
        if live.get("immutable"):
            fixed = (*fixed, "data", "binaryData", "immutable")
        return [path for path in fixed if _at(body, path) != _at(live, path)]


def _at(body: Any, path: str) -> Any:
    for part in path.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body


def _quantities(value: Any) -> Iterator[Any]:
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else []):
        if key in _TABLES and isinstance(inner, dict):
            yield from inner.values()
        else:
            yield from _quantities(inner)
