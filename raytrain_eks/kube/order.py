"""The order in which objects are applied, and, backwards, deleted: what others need goes first.

A bundle of ours is in this order already; any other file is put into it, objects of one rank in the order of the file.
"""

from collections.abc import Iterable, Mapping
from typing import Any

RANKS: tuple[tuple[str, ...], ...] = (
    ("CustomResourceDefinition",),
    ("Namespace",),
    ("ServiceAccount", "Secret", "ConfigMap", "PriorityClass", "WorkloadPriorityClass", "RuntimeClass"),
    ("ClusterRole", "Role"),
    ("ClusterRoleBinding", "RoleBinding"),
    ("NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "PodMonitor", "Service"),
    ("EC2NodeClass", "LaunchTemplate"),
    ("NodePool", "Nodegroup"),
    ("StorageClass", "FileSystem", "VolumeSnapshotClass"),
    ("PersistentVolume",),
    ("PersistentVolumeClaim",),
    ("Topology", "ResourceFlavor"),
    ("ClusterQueue", "Queue"),
    ("LocalQueue",),
    ("DaemonSet", "Deployment", "StatefulSet"),
)
WORKLOADS = (
    *("RayCluster", "RayJob", "RayService", "RayCronJob"),
    *("Controller", "NodeSet", "LoginSet", "MPIJob", "PyTorchJob"),
    *("Job", "CronJob", "Pod"),
)
"""Kinds that cost money as soon as they exist: they are applied last, and only when all before them was."""
STORAGE = ("StorageClass", "FileSystem", "PersistentVolume", "PersistentVolumeClaim")
"""Kinds that hold data, or say how it is held."""
_RANK = {kind: number for number, kinds in enumerate(RANKS) for kind in kinds}
_OTHER = _RANK["DaemonSet"]
"""Kinds that are not known: behind all ground, before workloads."""


def rank(kind: str) -> int:
    """A kind's turn: lower ones first."""
    return len(RANKS) if kind in WORKLOADS else _RANK.get(kind, _OTHER)


def in_order(bodies: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Objects in the order of applying."""
    return sorted((dict(body) for body in bodies), key=lambda body: rank(str(body["kind"])))
