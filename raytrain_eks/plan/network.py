"""Ids of subnets and security groups that must be written out, because what reads them cannot search by tags.

Karpenter finds subnets and security groups by tags. The FSx CSI driver, FSx's ACK controller and EKS managed node
groups take ids only.
"""

from collections.abc import Iterator

from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.cluster_storage import FsxLustre
from raytrain_eks.spec.problem import Problem


def subnets(cluster: Cluster) -> list[str]:
    """Ids of the nodes' subnets; none when they are found by tags."""
    return list(cluster.network.subnets.ids) if cluster.network.subnets else []


def security_groups(cluster: Cluster) -> list[str]:
    """Ids of the nodes' security groups; none when they are found by tags."""
    return list(cluster.network.security_groups.ids) if cluster.network.security_groups else []


def fsx_subnet(cluster: Cluster, volume: FsxLustre) -> str | None:
    """The subnet of a new FSx for Lustre file system: as written, else the only one of the nodes; None when unknown."""
    nodes = subnets(cluster)
    return volume.subnet or (nodes[0] if len(nodes) == 1 else None)


def fsx_security_groups(cluster: Cluster, volume: FsxLustre) -> list[str]:
    """The security groups of a new FSx for Lustre file system: as written, else those of the nodes."""
    return list(volume.security_groups) or security_groups(cluster)


def problems(cluster: Cluster, efa: bool) -> Iterator[Problem]:
    """Ids that are needed and not written. `efa`: whether a group uses EFA."""
    for name, volume in cluster.storage.volumes():
        if isinstance(volume, FsxLustre) and volume.filesystem is None:
            if fsx_subnet(cluster, volume) is None:
                rule = "FSx for Lustre lies in one subnet, and its CSI driver and ACK controller take the id only"
                fix = "add `subnet: subnet-…`, the one in the cluster's zone, or name an existing file system"
                yield Problem(path=f"storage.{name}.subnet", rule=rule, fix=fix)
            if not fsx_security_groups(cluster, volume):
                rule = "without a security group the file system gets the VPC's default one, which shuts the nodes out"
                fix = "add `security_groups: [sg-…]`, or ids to `network.security_groups`"
                yield Problem(path=f"storage.{name}.security_groups", rule=rule, fix=fix)
    if cluster.provisioner.kind == "managed":
        if not subnets(cluster):
            rule = "managed node groups take subnets by id only"
            yield Problem(path="network.subnets", rule=rule, fix="write `network: {subnets: {ids: [subnet-…]}}`")
        if efa and not security_groups(cluster):
            rule = "a launch template with EFA interfaces names their security groups, by id only"
            fix = "write `network: {security_groups: {ids: [sg-…]}}`; one of them must allow itself all traffic"
            yield Problem(path="network.security_groups", rule=rule, fix=fix)
