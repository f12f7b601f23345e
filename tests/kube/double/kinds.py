"""The resources the double serves: Kubernetes' own as a table, custom ones from their definitions.

Own types take their schemas from the OpenAPI definitions that `kubernetes-validate` carries; custom ones from the
definitions of a folder (`../shared/crds`). A few kinds that bundles hold have no recorded definition; any field is
taken of them, as of a definition that preserves unknown fields.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from double.schema import Shape, core_shape, custom_shape

Body = dict[str, Any]

_CORE = """
configmaps cm ConfigMap ns
endpoints ep Endpoints ns
events ev Event ns
limitranges limits LimitRange ns
namespaces ns Namespace - status
nodes no Node - status
persistentvolumeclaims pvc PersistentVolumeClaim ns status
persistentvolumes pv PersistentVolume - status
pods po Pod ns status all
resourcequotas quota ResourceQuota ns status
secrets - Secret ns
serviceaccounts sa ServiceAccount ns
services svc Service ns status all
"""
_APPS = """
daemonsets ds DaemonSet ns status all
deployments deploy Deployment ns status all
replicasets rs ReplicaSet ns status all
statefulsets sts StatefulSet ns status all
"""
_BATCH = """
jobs - Job ns status all
cronjobs cj CronJob ns status all
"""
_RBAC = """
clusterroles - ClusterRole -
clusterrolebindings - ClusterRoleBinding -
roles - Role ns
rolebindings - RoleBinding ns
"""
_STORAGE = """
csidrivers - CSIDriver -
csinodes - CSINode -
storageclasses sc StorageClass -
"""
_NETWORKING = """
ingresses ing Ingress ns status
ingressclasses - IngressClass -
networkpolicies netpol NetworkPolicy ns
"""
_ADMISSION = """
mutatingwebhookconfigurations - MutatingWebhookConfiguration -
validatingwebhookconfigurations - ValidatingWebhookConfiguration -
"""
OWN = {
    ("", "v1"): _CORE,
    ("apps", "v1"): _APPS,
    ("batch", "v1"): _BATCH,
    ("rbac.authorization.k8s.io", "v1"): _RBAC,
    ("storage.k8s.io", "v1"): _STORAGE,
    ("networking.k8s.io", "v1"): _NETWORKING,
    ("policy", "v1"): "poddisruptionbudgets pdb PodDisruptionBudget ns status",
    ("scheduling.k8s.io", "v1"): "priorityclasses pc PriorityClass -",
    ("coordination.k8s.io", "v1"): "leases - Lease ns",
    ("discovery.k8s.io", "v1"): "endpointslices - EndpointSlice ns",
    ("admissionregistration.k8s.io", "v1"): _ADMISSION,
    ("apiextensions.k8s.io", "v1"): "customresourcedefinitions crd CustomResourceDefinition - status",
}
"""By group and version: plural, short name, kind, `ns` or `-`, then `status` and `all` where they apply."""

WITHOUT_DEFINITION = (
    ("monitoring.coreos.com", "v1", "podmonitors", "PodMonitor"),
    ("monitoring.coreos.com", "v1", "servicemonitors", "ServiceMonitor"),
    ("ec2.services.k8s.aws", "v1alpha1", "launchtemplates", "LaunchTemplate"),
    ("eks.services.k8s.aws", "v1alpha1", "nodegroups", "Nodegroup"),
)
"""Kinds of our bundles whose definitions are not among the recorded ones."""


@dataclass(frozen=True, eq=False)
class Kind:
    """One resource: what its addresses and its objects look like."""

    group: str
    versions: dict[str, Shape]
    """Served versions in order, each with its schema. All hold the same tree; only apiVersion differs."""
    storage: str
    """The version that is kept."""
    plural: str
    name: str
    namespaced: bool
    short: tuple[str, ...] = ()
    status: bool = False
    """Has the status subresource: writes to the object leave its status, writes to its status leave the rest."""
    categories: tuple[str, ...] = ()
    custom: bool = False
    columns: dict[str, list[Body]] = field(default_factory=dict)
    """Additional printer columns of a custom resource, by version."""

    @property
    def resource(self) -> str:
        """As messages and details name it: `rayjobs.ray.io`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified(self) -> str:
        """As messages of validation name it: `RayJob.ray.io`, `Pod`."""
        return f"{self.name}.{self.group}" if self.group else self.name

    def api(self, version: str) -> str:
        return f"{self.group}/{version}" if self.group else version


def _own() -> Iterator[Kind]:
    for (group, version), table in OWN.items():
        for line in table.strip().splitlines():
            plural, short, kind, scope, *more = line.split()
            yield Kind(
                group=group,
                versions={version: core_shape(group, version, kind)},
                storage=version,
                plural=plural,
                name=kind,
                namespaced=scope == "ns",
                short=() if short == "-" else (short,),
                status="status" in more,
                categories=("all",) if "all" in more else (),
            )


def of_definition(definition: Body) -> Kind:
    """The resource that a CustomResourceDefinition brings."""
    spec = definition["spec"]
    names = spec["names"]
    served = [version for version in spec["versions"] if version.get("served", True)]
    stored = next(version["name"] for version in spec["versions"] if version.get("storage"))
    return Kind(
        group=spec["group"],
        versions={
            version["name"]: custom_shape(version.get("schema", {}).get("openAPIV3Schema", {})) for version in served
        },
        storage=stored,
        plural=names["plural"],
        name=names["kind"],
        namespaced=spec["scope"] == "Namespaced",
        short=tuple(names.get("shortNames") or ()),
        status=any("status" in (version.get("subresources") or {}) for version in served),
        categories=tuple(names.get("categories") or ()),
        custom=True,
        columns={version["name"]: version.get("additionalPrinterColumns") or [] for version in served},
    )


def _open_definition(group: str, version: str, plural: str, kind: str) -> Body:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    names = {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"}
    one = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Namespaced", "versions": [one]},
    }


@cache
def recorded(crds: Path | None) -> tuple[tuple[Body, Kind], ...]:
    """Every definition of a folder `<system>@<version>/*.json` with its resource, and those without a definition;
    read once per process. Two definitions of one name (training and MPI operator both bring mpijobs): the last."""
    files = sorted(crds.glob("*/*.json")) if crds is not None else []
    found = {body["metadata"]["name"]: body for body in (json.loads(file.read_text()) for file in files)}
    for row in WITHOUT_DEFINITION:
        body = _open_definition(*row)
        found.setdefault(body["metadata"]["name"], body)
    return tuple((body, of_definition(body)) for body in found.values())


@cache
def own() -> tuple[Kind, ...]:
    """Kubernetes' own resources."""
    return tuple(_own())


class Kinds:
    """The resources of one API server; custom ones come and go with their definitions."""

    def __init__(self) -> None:
        self._by_plural = {(kind.group, kind.plural): kind for kind in own()}

    def add(self, kind: Kind) -> None:
        self._by_plural[kind.group, kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        self._by_plural.pop((group, plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        """The resource at an address; None when there is none of that version."""
        kind = self._by_plural.get((group, plural))
        return kind if kind is not None and version in kind.versions else None

    def of(self, api: str, name: str) -> Kind:
        """The resource of objects with this apiVersion and kind; KeyError when none is served."""
        group, _, version = api.rpartition("/")
        for kind in self._by_plural.values():
            if kind.group == group and kind.name == name and version in kind.versions:
                return kind
        raise KeyError(f"no resource for {api} {name}")

    def named(self, plural: str) -> Kind:
        """The resource of this plural, with its group behind a dot where that is needed: `pods`, `jobs.batch`."""
        name, _, group = plural.partition(".")
        for kind in self._by_plural.values():
            if name in (kind.plural, kind.name) and (not group or f"{kind.group}.".startswith(f"{group}.")):
                return kind
        raise KeyError(f"no resource {plural}")

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_plural.values())

    def groups(self) -> dict[str, list[str]]:
        """Group -> its versions, the preferred one first."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            for version in (kind.storage, *kind.versions):
                if version not in versions and version in kind.versions:
                    versions.append(version)
        return found
