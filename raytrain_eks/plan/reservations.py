"""What managed node groups can say about reserved capacity: their launch template names one reservation, by its id.

Karpenter chooses among several reservations, by id or tag, and may go on with on-demand capacity. A launch template has
one target, and an instance starts in it or not at all (EC2 CapacityReservationTarget).
"""

from collections.abc import Iterator

from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import Problem


def problems(cluster: Cluster) -> Iterator[Problem]:
    """Capacity that only Karpenter can buy, in a file with managed node groups."""
    if cluster.provisioner.kind != "managed":
        return
    for index, group in enumerate(cluster.workers):
        capacity, path = group.capacity, f"workers.{index}.capacity"
        if capacity.tags:
            rule = "the launch template of a managed node group names a reservation by its id, not by tags"
            fix = "write `reservations: [cr-0123456789abcdef0]` instead, or use Karpenter"
            yield Problem(path=f"{path}.tags", rule=rule, fix=fix)
        if len(capacity.reservations) > 1:
            count = len(capacity.reservations)
            rule = f"the launch template of a managed node group names one reservation, here are {count}"
            fix = "write a group for each of them, or use Karpenter"
            yield Problem(path=f"{path}.reservations", rule=rule, fix=fix)
        if capacity.fallback:
            rule = "instances of a managed node group start in the reservation that is named, or not at all"
            yield Problem(path=f"{path}.fallback", rule=rule, fix="leave it out, or use Karpenter")
