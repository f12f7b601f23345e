"""What of a cluster belongs to a cluster file: objects by the labels that every rendered one carries."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.apply import MANAGED_BY, OURS, PART_OF
from raytrain_eks.kube.client import ALL
from raytrain_eks.kube.errors import Forbidden

if TYPE_CHECKING:
    from collections.abc import Callable

    from raytrain_eks.kube.client import Client

KINDS: tuple[tuple[str, str], ...] = (
    ("v1", "ServiceAccount"),
    ("v1", "ConfigMap"),
    ("rbac.authorization.k8s.io/v1", "ClusterRole"),
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("policy/v1", "PodDisruptionBudget"),
    ("monitoring.coreos.com/v1", "PodMonitor"),
    ("karpenter.k8s.aws/v1", "EC2NodeClass"),
    ("ec2.services.k8s.aws/v1alpha1", "LaunchTemplate"),
    ("karpenter.sh/v1", "NodePool"),
    ("eks.services.k8s.aws/v1alpha1", "Nodegroup"),
    ("apps/v1", "DaemonSet"),
    ("storage.k8s.io/v1", "StorageClass"),
    ("fsx.services.k8s.aws/v1alpha1", "FileSystem"),
    ("v1", "PersistentVolume"),
    ("v1", "PersistentVolumeClaim"),
    ("kueue.x-k8s.io/v1beta2", "ResourceFlavor"),
    ("kueue.x-k8s.io/v1beta2", "ClusterQueue"),
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"),
    ("scheduling.volcano.sh/v1beta1", "Queue"),
    ("ray.io/v1", "RayCluster"),
    ("kubeflow.org/v2beta1", "MPIJob"),
    ("slinky.slurm.net/v1beta1", "Controller"),
    ("slinky.slurm.net/v1beta1", "NodeSet"),
    ("slinky.slurm.net/v1beta1", "LoginSet"),
)
"""Every kind that a cluster file renders to, but its namespace, which carries no label: others may live there."""


def owned(client: "Client", cluster: str, refused: "Callable[[Forbidden], None]") -> Iterator[dict[str, Any]]:
    """The objects of a cluster file in all namespaces, whatever the file says today.

    `refused` hears of kinds that this user may not list. Raises KubeError.
    """
    labels = f"{MANAGED_BY}={OURS},{PART_OF}={cluster}"
    for api_version, kind in KINDS:
        if not client.serves(api_version, kind):
            continue
        try:
            yield from client.list(api_version, kind, ALL, labels=labels)
        except Forbidden as error:
            refused(error)


def identity(body: Any) -> tuple[str, str, str, str]:
    """What makes an object the same object: group, kind, namespace, name."""
    metadata = body["metadata"]
    group = str(body["apiVersion"]).rpartition("/")[0]
    return group, str(body["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])
