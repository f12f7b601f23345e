"""Schemas as the double walks them: what a field is, how its lists merge, what is filled in, refused or dropped.

A `Shape` is one node of a schema. Shapes of Kubernetes' own types come from OpenAPI definitions with references,
those of custom resources from structural schemas; the marks `x-kubernetes-*` are the same in both.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

from double.plain import copied

VERSION = "1.33"
"""Of the Kubernetes that is played."""
_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_LOOSE = frozenset(
    {
        "io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1",
        "io.k8s.apimachinery.pkg.runtime.RawExtension",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON",
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps",
    }
)
"""Types whose inside is anybody's."""


@cache
def _definitions() -> dict[str, Any]:
    import kubernetes_validate

    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema" / f"v{VERSION}.0-local"
    found: dict[str, Any] = json.loads((folder / "_definitions.json").read_text())["$defs"]
    return found


@cache
def _names() -> dict[tuple[str, str, str], str]:
    return {
        (entry["group"], entry["version"], entry["kind"]): name
        for name, definition in _definitions().items()
        for entry in definition.get("x-kubernetes-group-version-kind", [])
    }


class Shape:
    """One node of a schema."""

    def __init__(self, schema: dict[str, Any], *, core: bool, loose: bool = False):
        self.loose = loose or bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self.schema = schema
        self.core = core
        self._fields: dict[str, Shape] = {}

    @property
    def types(self) -> tuple[str, ...]:
        """JSON types a value may have; empty: any."""
        if self.schema.get("x-kubernetes-int-or-string") or ("oneOf" in self.schema and self.core):
            return ("integer", "string") if "integer" in json.dumps(self.schema) else ("number", "string")
        given = self.schema.get("type", ())
        types = (given,) if isinstance(given, str) else tuple(given)
        return (*types, "null") if self.schema.get("nullable") and "null" not in types else types

    @property
    def list_type(self) -> str:
        """`map`, `set` or `atomic`; lists without a mark are atomic."""
        return str(self.schema.get("x-kubernetes-list-type", "atomic"))

    @property
    def list_keys(self) -> list[str]:
        """The fields that tell an item of a `map` list."""
        return list(self.schema.get("x-kubernetes-list-map-keys", ()))

    @property
    def atomic(self) -> bool:
        """A mapping that belongs to one manager as a whole."""
        return self.schema.get("x-kubernetes-map-type") == "atomic"

    @property
    def properties(self) -> dict[str, Any]:
        return dict(self.schema.get("properties") or {})

    @property
    def open_map(self) -> bool:
        """A mapping with names of the user's choice: labels, data, limits."""
        return isinstance(self.schema.get("additionalProperties"), dict)

    def declared(self, name: str) -> bool:
        """Whether a field of this name has a place here."""
        if self.loose or name in self.schema.get("properties", ()) or self.open_map:
            return True
        return self.schema.get("additionalProperties") is True

    def field(self, name: str) -> "Shape":
        """The shape of a field of an object."""
        if name not in self._fields:
            part = self.schema.get("properties", {}).get(name)
            if part is None:
                part = self.schema["additionalProperties"] if self.open_map else {}
            self._fields[name] = self._of(part)
        return self._fields[name]

    def item(self) -> "Shape":
        """The shape of an item of a list."""
        if "[]" not in self._fields:
            self._fields["[]"] = self._of(self.schema.get("items") or {})
        return self._fields["[]"]

    def _of(self, part: dict[str, Any]) -> "Shape":
        # Marks of a list or mapping may stand beside the reference to its type.
        if "$ref" in part:
            name = part["$ref"].rpartition("/")[2]
            target = _definitions()[name]
            return Shape({**target, **{k: v for k, v in part.items() if k != "$ref"}}, core=True, loose=name in _LOOSE)
        if part.get("x-kubernetes-embedded-resource"):
            return Shape({**part, "x-kubernetes-preserve-unknown-fields": True}, core=self.core)
        return Shape(part, core=self.core, loose=not part)

    def item_key(self, item: Any) -> dict[str, Any]:
        """The keys that tell an item of a `map` list; a key left out has its default."""
        shape = self.item()
        found = {}
        for key in self.list_keys:
            default = shape.schema.get("properties", {}).get(key, {}).get("default")
            if default is None and key == "protocol":
                default = "TCP"
            found[key] = item.get(key, default) if isinstance(item, dict) else None
        return found

    def fill(self, value: Any) -> Any:
        """The value with the schema's defaults in place; changes and returns it."""
        if isinstance(value, dict):
            for name, part in self.schema.get("properties", {}).items():
                if name not in value and part.get("default") is not None and not self.core:
                    value[name] = copied(part["default"])
            for name, inner in value.items():
                if isinstance(inner, dict | list) and self.declared(name):
                    self.field(name).fill(inner)
        elif isinstance(value, list):
            for inner in value:
                if isinstance(inner, dict | list):
                    self.item().fill(inner)
        return value

    def unknown(self, value: Any, path: str = "") -> list[str]:
        """Paths of fields that have no place in the schema."""
        if self.loose:
            return []
        found = []
        if isinstance(value, dict) and ("properties" in self.schema or "additionalProperties" in self.schema):
            for name, inner in value.items():
                here = f"{path}.{name}" if path else name
                if not self.declared(name):
                    found.append(here)
                elif isinstance(inner, dict | list):
                    found += self.field(name).unknown(inner, here)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                found += self.item().unknown(inner, f"{path}[{index}]")
        return found

    def prune(self, value: Any) -> Any:
        """The value without fields that have no place; changes and returns it."""
        if self.loose:
            return value
        if isinstance(value, dict) and ("properties" in self.schema or "additionalProperties" in self.schema):
            for name in [name for name in value if not self.declared(name)]:
                del value[name]
            for name, inner in value.items():
                self.field(name).prune(inner)
        elif isinstance(value, list):
            for inner in value:
                self.item().prune(inner)
        return value


def core_shape(group: str, version: str, kind: str) -> Shape:
    """The shape of one of Kubernetes' own types."""
    return Shape(_definitions()[_names()[group, version, kind]], core=True)


def custom_shape(schema: dict[str, Any]) -> Shape:
    """The shape of a custom resource; its metadata is that of every object."""
    properties = {
        **schema.get("properties", {}),
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"$ref": f"#/$defs/{_META}"},
    }
    return Shape({"type": "object", **schema, "properties": properties}, core=False)
