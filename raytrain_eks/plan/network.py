"""Ids of subnets and security groups that must be written out, because what reads them cannot search by tags.

Karpenter finds subnets and security groups by tags. The FSx CSI driver, FSx's ACK controller and EKS managed node
groups take ids only.
"""

from collections.abc import Iterator

from raytrain_eks.catalog import eks_registry
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
    """Ids and images that are needed and not written. `efa`: whether a group uses EFA."""
    for name, volume in cluster.storage.volumes():
        if isinstance(volume, FsxLustre) and volume.filesystem is None:
            yield from _fsx_problems(cluster, name, volume)
    if efa and cluster.plugins.efa and not cluster.plugins.efa_image and eks_registry(cluster.region) is None:
        rule = "no source says which registry EKS's images come from there, and the EFA device plugin is one of them"
        fix = "write `plugins: {efa_image: …}`, or `plugins: {efa: false}` where the cluster has the plugin already"
        yield Problem(path="region", value=cluster.region, rule=rule, fix=fix)
    if cluster.provisioner.kind == "managed":
        if not subnets(cluster):
            rule = "managed node groups take subnets by id only"
            yield Problem(path="network.subnets", rule=rule, fix="write `network: {subnets: {ids: [subnet-…]}}`")
        if efa and not security_groups(cluster):
            rule = "a launch template with EFA interfaces names their security groups, by id only"
            fix = "write `network: {security_groups: {ids: [sg-…]}}`; one of them must allow itself all traffic"
            yield Problem(path="network.security_groups", rule=rule, fix=fix)


def discovery(cluster: Cluster) -> str:
    """The value of `karpenter.sh/discovery` by which the nodes' subnets and security groups are found."""
    return cluster.network.discovery or cluster.eks or cluster.name


def _fsx_problems(cluster: Cluster, name: str, volume: FsxLustre) -> Iterator[Problem]:
    """Ids of a new file system; the commands that show them are part of the fix, since nobody knows ids by heart."""
    maker = "the ACK controller" if volume.provision == "ack" else "the FSx CSI driver"
    tag = f"--filters Name=tag:karpenter.sh/discovery,Values={discovery(cluster)}"
    if fsx_subnet(cluster, volume) is None:
        rule = f"a new file system lies in one subnet of the cluster's zone, and {maker} takes its id, not tags"
        zone = f" Name=availability-zone,Values={cluster.zone}" if cluster.zone else ""
        fix = (
            "add `subnet: subnet-…`, or name an existing file system by `filesystem` and `mount_name`; "
            f"aws ec2 describe-subnets --region {cluster.region} {tag}{zone} --query 'Subnets[].SubnetId' shows the ids"
        )
        yield Problem(path=f"storage.{name}.subnet", rule=rule, fix=fix)
    if not fsx_security_groups(cluster, volume):
        rule = (
            "without a security group the file system gets the VPC's default one, which shuts the nodes out: "
            "Lustre needs TCP 988 and 1018-1023 from the nodes and among its servers"
        )
        fix = (
            "add `security_groups: [sg-…]`, or ids to `network.security_groups`; the nodes' own: "
            f"aws ec2 describe-security-groups --region {cluster.region} {tag} --query 'SecurityGroups[].GroupId'"
        )
        yield Problem(path=f"storage.{name}.security_groups", rule=rule, fix=fix)
