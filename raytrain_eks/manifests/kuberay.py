"""What the KubeRay operator reads of a cluster file: the RayCluster. Jobs are rendered when they are submitted."""

from collections.abc import Iterator

from raytrain_eks.manifests.kuberay_cluster import ray_cluster
from raytrain_eks.manifests.kuberay_job import SYSTEM, as_problem
from raytrain_eks.manifests.object import Object
from raytrain_eks.manifests.rules import Operator, breaches
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.problem import SpecError


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """The RayCluster. Raises SpecError for what the operator would refuse."""
    body, whys = ray_cluster(plan)
    operator = Operator(version=plan.cluster.operator.version, gates=plan.cluster.operator.feature_gates)
    if found := breaches(body, operator):
        raise SpecError(as_problem(breach) for breach in found)
    yield Object(SYSTEM, body, whys)
