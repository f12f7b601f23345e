"""What lint has to know of a cluster file besides the objects that come of it."""

from raytrain_eks.lint.finding import Settings
from raytrain_eks.plan.cluster import ClusterPlan


def settings(plan: ClusterPlan) -> Settings:
    """The versions that will read the objects, and what exists outside of the file."""
    cluster = plan.cluster
    return Settings(
        kubernetes=cluster.kubernetes,
        operator=cluster.operator.version,
        gates=cluster.operator.feature_gates,
        external=frozenset(name.lower() for name in cluster.external),
    )
