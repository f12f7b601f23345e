"""Plans for tests: a small cluster file, changed where a test needs it."""

import copy
from typing import Any

from raytrain_eks.plan.cluster import ClusterPlan, resolve
from raytrain_eks.spec.cluster import Cluster

BASE: dict[str, Any] = {
    "kind": "Cluster",
    "name": "llm",
    "region": "us-west-2",
    "zone": "us-west-2a",
    "ray": {"image": "registry/raytrain:gpu"},
    "workers": [
        {"name": "h100", "instance": "p5.48xlarge", "nodes": {"min": 0, "max": 4}},
        {
            "name": "trn",
            "instance": "trn1.32xlarge",
            "nodes": {"min": 0, "max": 2},
            "image": "registry/raytrain:neuron",
        },
    ],
    "storage": {"shared": {"kind": "claim", "claim": "shared", "mount": "/shared"}},
}


def data(**changes: Any) -> dict[str, Any]:
    """The base with top-level fields replaced."""
    return copy.deepcopy(BASE) | changes


def plan(**changes: Any) -> ClusterPlan:
    """The plan of the base with top-level fields replaced."""
    return resolve(Cluster.parse(data(**changes)))


def one_group(**fields: Any) -> dict[str, Any]:
    """`workers` with a single group of two p5.48xlarge, changed by `fields`."""
    return {"workers": [{"name": "g", "instance": "p5.48xlarge", "nodes": 2} | fields]}
