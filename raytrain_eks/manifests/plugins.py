"""Device plugins: what makes GPUs, Neuron devices and EFA interfaces known to the scheduler.

Each is what its maker ships today, cut to this file's instance types:
- NVIDIA k8s-device-plugin v0.20.0, its static manifest. Bottlerocket's images bring the plugin themselves.
- Neuron device plugin 2.32.0.0, chart neuron-helm-chart 1.10.0 (the scheduler extension is not needed for one device or
  all of them, the node problem detector is a choice of its own).
- EFA device plugin v0.5.20, chart aws-efa-k8s-device-plugin v0.5.30 (aws/eks-charts): host network, privileged,
  /dev/infiniband. The chart tolerates nothing but CriticalAddonsOnly: with its defaults it never runs on a tainted GPU
  node, and every pod with EFA waits for ever.
"""

from collections.abc import Iterator
from typing import Any

from raytrain_eks.catalog import eks_registry
from raytrain_eks.manifests.metadata import labels
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan
from raytrain_eks.plan.placement import INSTANCE_LABEL
from raytrain_eks.spec.cluster import WorkerGroup

SYSTEM = "plugins"
NAMESPACE = "kube-system"
NVIDIA_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
NEURON_IMAGE = "public.ecr.aws/neuron/neuron-device-plugin:2.32.0.0"
EFA_IMAGE = "eks/aws-efa-k8s-device-plugin:v0.5.20"
_ADDON = {"key": "CriticalAddonsOnly", "operator": "Exists"}
_KUBELET = "/var/lib/kubelet/device-plugins"


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """The plugins that this file's groups need."""
    plugins = plan.cluster.plugins
    gpus = [group for group in plan.groups if group.devices.gpus and not _bottlerocket(plan, group)]
    neuron = [group for group in plan.groups if group.devices.neuron_devices]
    efa = [group for group in plan.groups if group.devices.efa]
    if plugins.nvidia and gpus:
        yield nvidia(plan, gpus)
    if plugins.neuron and neuron:
        yield from neuron_objects(plan, neuron)
    if plugins.efa and efa:
        yield efa_plugin(plan, efa)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What two clusters in one Kubernetes cluster have to know."""
    if any(True for _ in objects(plan)):
        yield (
            f"device plugins belong to the whole Kubernetes cluster ({NAMESPACE}): if it has them already, or another "
            "cluster file renders them, switch them off here by `plugins: {nvidia: false, neuron: false, efa: false}`"
        )


def _bottlerocket(plan: ClusterPlan, group: GroupPlan) -> bool:
    own = group.spec.ami if isinstance(group.spec, WorkerGroup) else None
    return (own or plan.cluster.provisioner.ami or "").startswith("bottlerocket@")


def _metadata(plan: ClusterPlan, name: str) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "labels": {"app.kubernetes.io/name": name} | labels(plan)}


def _tolerations(groups: list[GroupPlan], shipped: list[dict[str, str]]) -> list[dict[str, str]]:
    found = list(shipped)
    for group in groups:
        for taint in group.taints:
            entry = {"key": taint.key, "operator": "Exists", "effect": taint.effect}
            if entry not in found:
                found.append(entry)
    return found


def _affinity(groups: list[GroupPlan]) -> dict[str, Any]:
    types = sorted({group.instance.type for group in groups if group.instance})
    expressions = [
        {"key": INSTANCE_LABEL, "operator": "In", "values": types},
        {"key": "eks.amazonaws.com/compute-type", "operator": "NotIn", "values": ["fargate", "hybrid", "auto"]},
    ]
    required = {"nodeSelectorTerms": [{"matchExpressions": expressions}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _daemon_set(plan: ClusterPlan, name: str, pod: dict[str, Any], whys: dict[str, str]) -> Object:
    spec = {
        "selector": {"matchLabels": {"name": name}},
        "updateStrategy": {"type": "RollingUpdate"},
        "template": {
            "metadata": {"labels": {"name": name}},
            "spec": {"priorityClassName": "system-node-critical"} | pod,
        },
    }
    whys |= {
        "spec.template.spec.tolerations": "as shipped, and every taint of the groups: a plugin that a taint keeps away "
        "offers nothing, and every pod of the group waits for ever",
        "spec.template.spec.affinity": "the types of this file's groups, as the catalogue knows their devices",
    }
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": _metadata(plan, name), "spec": spec}
    return Object(SYSTEM, body, whys)


def _host_path(name: str, path: str, kind: str | None = None) -> dict[str, Any]:
    return {"name": name, "hostPath": {"path": path} | ({"type": kind} if kind else {})}


def nvidia(plan: ClusterPlan, groups: list[GroupPlan]) -> Object:
    """NVIDIA's device plugin (nvidia.com/gpu)."""
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    container = {
        "name": "nvidia-device-plugin-ctr",
        "image": NVIDIA_IMAGE,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "kubelet-device-plugins-dir", "mountPath": _KUBELET}],
    }
    pod = {
        "tolerations": _tolerations(groups, [_ADDON, gpu]),
        "affinity": _affinity(groups),
        "containers": [container],
        "volumes": [_host_path("kubelet-device-plugins-dir", _KUBELET, "Directory")],
    }
    return _daemon_set(plan, "nvidia-device-plugin-daemonset", pod, {"": "offers nvidia.com/gpu; as NVIDIA ships it"})


def neuron_objects(plan: ClusterPlan, groups: list[GroupPlan]) -> Iterator[Object]:
    """Neuron's device plugin (aws.amazon.com/neuron and neuroncore) and its rights."""
    name = "neuron-device-plugin"
    account = {"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    rules = [
        _rule("nodes", "get", "list", "watch"),
        _rule("events", "create", "patch"),
        _rule("pods", "update", "patch", "get", "list", "watch"),
        _rule("nodes/status", "patch", "update"),
    ]
    rights = "the plugin writes the node's devices and reads which pod has which"
    head = {"name": name, "labels": labels(plan)}
    api = "rbac.authorization.k8s.io/v1"
    yield Object(SYSTEM, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(plan, name)})
    yield Object(
        SYSTEM, {"apiVersion": api, "kind": "ClusterRole", "metadata": head, "rules": rules}, {"rules": rights}
    )
    binding = {"roleRef": role, "subjects": [account]}
    yield Object(SYSTEM, {"apiVersion": api, "kind": "ClusterRoleBinding", "metadata": dict(head)} | binding)
    yield _daemon_set(plan, name, _neuron_pod(groups), {"": "offers aws.amazon.com/neuron and neuroncore"})


def _rule(resource: str, *verbs: str) -> dict[str, list[str]]:
    return {"apiGroups": [""], "resources": [resource], "verbs": list(verbs)}


def _neuron_pod(groups: list[GroupPlan]) -> dict[str, Any]:
    neuron = {"key": "aws.amazon.com/neuron", "operator": "Exists", "effect": "NoSchedule"}
    container = {
        "name": "neuron-device-plugin",
        "image": NEURON_IMAGE,
        "env": [
            {"name": "KUBECONFIG", "value": "/etc/kubernetes/kubelet.conf"},
            {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        ],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [
            {"name": "device-plugin", "mountPath": _KUBELET},
            {"name": "infa-map", "mountPath": "/run"},
            {"name": "aws-config", "mountPath": "/opt/aws", "readOnly": True},
        ],
    }
    return {
        "serviceAccountName": "neuron-device-plugin",
        "tolerations": _tolerations(groups, [_ADDON, neuron]),
        "affinity": _affinity(groups),
        "containers": [container],
        "volumes": [
            _host_path("device-plugin", _KUBELET),
            _host_path("infa-map", "/run"),
            _host_path("aws-config", "/opt/aws"),
        ],
    }


def efa_plugin(plan: ClusterPlan, groups: list[GroupPlan]) -> Object:
    """The EFA device plugin (vpc.amazonaws.com/efa)."""
    name = "aws-efa-k8s-device-plugin"
    container = {
        "name": name,
        "image": plan.cluster.plugins.efa_image or f"{eks_registry(plan.cluster.region)}/{EFA_IMAGE}",
        "securityContext": {
            "allowPrivilegeEscalation": True,
            "privileged": True,
            "runAsNonRoot": False,
            "runAsUser": 0,
        },
        "resources": {"requests": {"cpu": "10m", "memory": "20Mi"}},
        "volumeMounts": [
            {"name": "device-plugin", "mountPath": _KUBELET},
            {"name": "infiniband-volume", "mountPath": "/dev/infiniband/"},
            {"name": "neuron-tools", "mountPath": "/opt/aws/neuron/"},
        ],
    }
    pod = {
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "tolerations": _tolerations(groups, [_ADDON]),
        "affinity": _affinity(groups),
        "containers": [container],
        "volumes": [
            _host_path("device-plugin", _KUBELET),
            _host_path("infiniband-volume", "/dev/infiniband/"),
            _host_path("neuron-tools", "/opt/aws/neuron/", "DirectoryOrCreate"),
        ],
    }
    whys = {
        "": "offers vpc.amazonaws.com/efa; as the EKS chart ships it",
        "spec.template.spec.hostNetwork": "it looks at the node's own interfaces",
        f"spec.template.spec.containers.{name}.image": "each region has its own registry of EKS images",
        f"spec.template.spec.containers.{name}.securityContext": "it opens /dev/infiniband",
    }
    return _daemon_set(plan, name, pod, whys)
