"""One Kubernetes object in a document."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raytrain_eks.lint.tree import get, mapping, text
from raytrain_eks.spec.source import Document, Path


@dataclass(frozen=True, eq=False)
class Resource:
    """One Kubernetes object: a document, or an item of a List in a document."""

    document: Document
    base: Path = ()
    """Where the object stands in its document."""

    @cached_property
    def data(self) -> Mapping[str, Any]:
        return mapping(get(self.document.data, *self.base))

    @cached_property
    def kind(self) -> str:
        return text(self.data.get("kind"))

    @cached_property
    def api_version(self) -> str:
        return text(self.data.get("apiVersion"))

    @cached_property
    def group(self) -> str:
        """API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]

    @cached_property
    def name(self) -> str:
        return text(get(self.data, "metadata", "name")) or text(get(self.data, "metadata", "generateName"))

    @property
    def namespace(self) -> str:
        return text(get(self.data, "metadata", "namespace")) or "default"

    @property
    def labels(self) -> Mapping[str, Any]:
        return mapping(get(self.data, "metadata", "labels"))

    @property
    def annotations(self) -> Mapping[str, Any]:
        return mapping(get(self.data, "metadata", "annotations"))

    @property
    def title(self) -> str:
        """`Kind namespace/name`, without the namespace where none is written."""
        namespace = text(get(self.data, "metadata", "namespace"))
        return f"{self.kind} {namespace}/{self.name}" if namespace else f"{self.kind} {self.name}"

    def is_a(self, group: str, *kinds: str) -> bool:
        """Whether the object is of one of the kinds of an API group, in whatever version."""
        return self.group == group and self.kind in kinds

    def get(self, *path: str | int, default: Any = None) -> Any:
        """The part at a path inside the object."""
        return get(self.data, *path, default=default)
