"""The picture of a bundle: its objects, the pods that they will make, and the nodes that are offered to these."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from raytrain_eks.lint.nodes import Offer, offers_of
from raytrain_eks.lint.pods import Pod, pods_of
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import text
from raytrain_eks.spec.source import Document, Path


@dataclass(frozen=True, eq=False)
class Bundle:
    """All objects that are looked at together."""

    resources: tuple[Resource, ...]
    documents: tuple[Document, ...] = field(default=())

    @cached_property
    def pods(self) -> tuple[Pod, ...]:
        """Every pod template of every object, in order."""
        return tuple(pod for resource in self.resources for pod in pods_of(resource))

    def pods_of(self, resource: Resource) -> list[Pod]:
        """The pod templates of one object."""
        return self._by_owner.get(id(resource), [])

    @cached_property
    def _by_owner(self) -> dict[int, list[Pod]]:
        found: dict[int, list[Pod]] = {}
        for pod in self.pods:
            found.setdefault(id(pod.owner), []).append(pod)
        return found

    @cached_property
    def daemons(self) -> tuple[Pod, ...]:
        """The pods of daemon sets."""
        return tuple(pod for pod in self.pods if pod.daemon)

    @cached_property
    def offers(self) -> tuple[Offer, ...]:
        """Every group of nodes that the bundle offers: Karpenter node pools, managed node groups."""
        return tuple(offer for resource in self.resources for offer in offers_of(resource))

    def of(self, group: str, *kinds: str) -> Iterator[Resource]:
        """The objects of some kinds of an API group."""
        return (resource for kind in kinds for resource in self._by_kind.get((group, kind), ()))

    @cached_property
    def _by_kind(self) -> dict[tuple[str, str], list[Resource]]:
        found: dict[tuple[str, str], list[Resource]] = {}
        for resource in self.resources:
            found.setdefault((resource.group, resource.kind), []).append(resource)
        return found

    def has(self, kind: str, name: str, namespace: str | None = None) -> bool:
        """Whether the bundle holds an object of that kind and name (and namespace, where one is given)."""
        return (kind, name) in self._cluster_names if namespace is None else (kind, namespace, name) in self._names

    @cached_property
    def _names(self) -> frozenset[tuple[str, str, str]]:
        return frozenset((resource.kind, resource.namespace, resource.name) for resource in self.resources)

    @cached_property
    def _cluster_names(self) -> frozenset[tuple[str, str]]:
        return frozenset((resource.kind, resource.name) for resource in self.resources)


def bundle(documents: Iterable[Document | Mapping[str, Any]]) -> Bundle:
    """The picture of documents (or of plain objects, which have no places). What is no object is left out."""
    read = [entry if isinstance(entry, Document) else Document(file="", data=entry) for entry in documents]
    resources = [resource for document in read for resource in _resources(document)]
    return Bundle(resources=tuple(resources), documents=tuple(read))


def _resources(document: Document) -> Iterator[Resource]:
    data = document.data
    if isinstance(data, list):
        # A JSON array of objects, as some tools write it.
        for index, item in enumerate(data):
            yield from _objects(document, item, (index,))
    else:
        yield from _objects(document, data, ())


def _objects(document: Document, data: Any, base: Path) -> Iterator[Resource]:
    """The object at a place of a document; of a List those that it lists."""
    if not is_object(data):
        return
    if not is_list(data):
        yield Resource(document, base)
        return
    for index, item in enumerate(data["items"]):
        yield from _objects(document, item, (*base, "items", index))


def is_object(data: Any) -> bool:
    """Whether this is a Kubernetes object: it says which kind of which version it is."""
    return isinstance(data, Mapping) and bool(text(data.get("kind"))) and bool(text(data.get("apiVersion")))


def is_list(data: Any) -> bool:
    """Whether this object is a List of others, of any kind (`PodList`)."""
    return is_object(data) and text(data["kind"]).endswith("List") and isinstance(data.get("items"), list)
