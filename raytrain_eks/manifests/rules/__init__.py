"""The rules of the KubeRay operator 1.7 as pure checks: what it would refuse, said before anything is applied.

The operator checks in its reconcile loop: a refused RayCluster only gets a Warning event, a refused RayJob the status
ValidationFailed. Source: ray-operator/controllers/ray/utils/validation.go at v1.7.0. It stops at the first error; here
all are found. Nothing is assumed about the types of an object's fields, since it may be anybody's YAML.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.manifests.rules import cluster, cron, job
from raytrain_eks.manifests.rules.breach import Breach
from raytrain_eks.manifests.rules.operator import GATES, Operator

__all__ = ["GATES", "Breach", "Operator", "breaches"]


def breaches(body: Mapping[str, Any], operator: Operator | None = None) -> list[Breach]:
    """Every rule that a RayCluster, RayJob or RayCronJob breaks; none for other kinds. Without `operator`: 1.7.0."""
    settings = operator or Operator()
    found = {"RayCluster": cluster.of_object, "RayJob": job.of_object, "RayCronJob": cron.of_object}.get(
        str(body.get("kind"))
    )
    known: Iterator[Breach] = iter(()) if found is None else found(body, settings)
    return list(dict.fromkeys(known)) if str(body.get("apiVersion", "")).startswith("ray.io/") else []
