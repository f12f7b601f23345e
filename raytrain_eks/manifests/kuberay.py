"""What the KubeRay operator reads of a cluster file: the RayCluster. Jobs are rendered when they are submitted."""

from collections.abc import Iterator

from raytrain_eks.manifests.kuberay_cluster import ray_cluster
from raytrain_eks.manifests.kuberay_job import SYSTEM
from raytrain_eks.manifests.kuberay_refusal import refuse
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """The RayCluster. Raises SpecError for what the operator would refuse."""
    body, whys = ray_cluster(plan)
    refuse(body, plan)
    yield Object(SYSTEM, body, whys)
