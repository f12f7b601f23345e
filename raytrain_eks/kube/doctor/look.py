"""What the checks of a cluster look at, each thing asked for once."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raytrain_eks.kube.client import ALL, Body, Client
from raytrain_eks.manifests.bundle import Bundle, build
from raytrain_eks.plan.cluster import ClusterPlan


@dataclass(frozen=True)
class Look:
    """One cluster, and the file that is to be applied there; None: only what every job needs is looked at."""

    client: Client
    plan: ClusterPlan | None = None

    @property
    def namespace(self) -> str:
        """The namespace of the jobs."""
        return self.plan.cluster.namespace if self.plan is not None else self.client.namespace

    @cached_property
    def bundle(self) -> Bundle:
        """What `apply` would write; empty without a file."""
        return build(self.plan) if self.plan is not None else Bundle(())

    @cached_property
    def deployments(self) -> list[Body]:
        """Of all namespaces. Raises Forbidden; so with the other two."""
        return list(self.client.list("apps/v1", "Deployment", ALL))

    @cached_property
    def daemon_sets(self) -> list[Body]:
        """Of all namespaces."""
        return list(self.client.list("apps/v1", "DaemonSet", ALL))

    @cached_property
    def nodes(self) -> list[Body]:
        """The nodes that are up now."""
        return list(self.client.list("v1", "Node"))

    def brings(self, kind: str, name: str) -> bool:
        """Whether the file's own bundle holds the object, so that `apply` makes it when it is missing."""
        return any(each.kind == kind and each.name == name for each in self.bundle.objects)


def running(objects: Iterable[Body], image: str) -> Iterator[tuple[Body, str]]:
    """The Deployments or DaemonSets with a container whose image's name ends in `image`, each with the whole image."""
    for each in objects:
        for container in pod(each).get("containers") or []:
            whole = str(container.get("image") or "")
            if re.sub(r"(@sha256:.*|:[\w.-]+)\Z", "", whole).endswith(image):
                yield each, whole


def pod(workload: Mapping[str, Any]) -> Mapping[str, Any]:
    """The pod's spec of a Deployment or DaemonSet."""
    return ((workload.get("spec") or {}).get("template") or {}).get("spec") or {}


def words(workload: Mapping[str, Any]) -> list[str]:
    """Command and arguments of all containers."""
    containers = pod(workload).get("containers") or []
    return [str(word) for each in containers for word in (*(each.get("command") or []), *(each.get("args") or []))]


def version_of(image: str) -> str | None:
    """`kuberay/operator:v1.7.0` -> `1.7.0`; None for an image by digest or without a version's tag."""
    found = re.search(r":v?(\d+\.\d+[\w.-]*)", image.partition("@")[0].rpartition("/")[2])
    return found[1] if found else None


def place(each: Mapping[str, Any]) -> str:
    """`Kind namespace/name` of an object."""
    metadata = each.get("metadata") or {}
    whole = "/".join(part for part in (metadata.get("namespace"), metadata.get("name")) if part)
    return f"{each.get('kind')} {whole}"


def condition(each: Mapping[str, Any], type: str) -> tuple[str | None, str]:
    """Status of a condition (`True`, `False`, `Unknown`), and why; None when the object does not have it yet."""
    for found in (each.get("status") or {}).get("conditions") or []:
        if found.get("type") == type:
            why = ": ".join(str(found[key]) for key in ("reason", "message") if found.get(key))
            return str(found.get("status")), why
    return None, ""


def unready(workload: Mapping[str, Any]) -> str | None:
    """Why a Deployment or DaemonSet is not ready, as part of a sentence; None when it is."""
    status = workload.get("status") or {}
    if workload.get("kind") == "DaemonSet":
        wanted, ready = int(status.get("desiredNumberScheduled") or 0), int(status.get("numberReady") or 0)
    else:
        spec = workload.get("spec") or {}
        wanted, ready = int(spec.get("replicas", 1)), int(status.get("readyReplicas") or 0)
    if ready < wanted or (wanted == 0 and workload.get("kind") != "DaemonSet"):
        return f"{ready} of {wanted} pods are ready"
    return None
