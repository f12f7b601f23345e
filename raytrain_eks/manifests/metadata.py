"""Names and labels that every object of a bundle has in common."""

from collections.abc import Mapping
from typing import Any

from raytrain_eks.plan.cluster import ClusterPlan

MANAGED_BY = "raytrain-eks"


def labels(plan: ClusterPlan) -> dict[str, str]:
    """The recommended labels of Kubernetes, then those of the file."""
    common = {"app.kubernetes.io/managed-by": MANAGED_BY, "app.kubernetes.io/part-of": plan.cluster.name}
    return common | dict(plan.cluster.labels)


def metadata(plan: ClusterPlan, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an object in the cluster's namespace."""
    return wide(plan, name, annotations) | {"namespace": plan.cluster.namespace}


def wide(plan: ClusterPlan, name: str, annotations: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Metadata of an object that belongs to the whole Kubernetes cluster."""
    out: dict[str, Any] = {"name": name, "labels": labels(plan)}
    return out | ({"annotations": dict(annotations)} if annotations else {})
