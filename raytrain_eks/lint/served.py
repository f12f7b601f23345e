"""Which objects an API server certainly reads, by their group: only of these Kubernetes' own rules are certain.

A Kustomization, an eksctl file or a catalogue entry has `apiVersion`, `kind` and `metadata` too, and rules of its own.
"""

from raytrain_eks.lint.bundle import is_list
from raytrain_eks.lint.resource import Resource

_GROUPS = {"apps", "batch", "autoscaling", "policy", "extensions", "kubeflow.org", "argoproj.io", "karpenter.sh"}
_GROUPS |= {"slinky.slurm.net", "monitoring.coreos.com", "nvidia.com", "mellanox.com", "cert-manager.io", "keda.sh"}
_GROUPS |= {"ray.io"}
_DOMAINS = (".k8s.io", ".k8s.aws", ".volcano.sh", ".x-k8s.io", ".fluxcd.io", ".amazonaws.com")
_FILES = {"kustomize.config.k8s.io", "kind.x-k8s.io", "kubeadm.k8s.io", "audit.k8s.io", "node.eks.aws"}
"""Groups of files that programs read."""


def is_served(resource: Resource) -> bool:
    """Whether this is an object that an API server stores, and no list of such."""
    group = resource.group
    if group in _FILES or group.endswith(".config.k8s.io") or is_list(resource.data):
        return False
    if "config.kubernetes.io/local-config" in resource.annotations:
        return False
    if not group:
        return resource.api_version == "v1" and resource.kind not in ("Config", "List")
    return group in _GROUPS or group.endswith(_DOMAINS)
