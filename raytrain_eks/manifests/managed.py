"""EKS managed node groups, as objects of AWS's controllers (ACK): a LaunchTemplate and a Nodegroup for head and groups.

Why ACK and not eksctl: a bundle goes through `kubectl apply` and Argo CD, and eksctl's ClusterConfig is a file of a
command-line tool that no API server knows. ACK's Nodegroup (eks-controller 1.20) has no field for EFA, placement,
reservations or disks; its launch template has them (ec2-controller 1.20).

Rules that are easy to get wrong:
- With network interfaces in the template, security groups belong to each of them, and to nothing else.
- The first interface carries IP and EFA, the others EFA only, one on each network card: each takes no address then.
- A capacity block needs its type in the template, its market type, and `CAPACITY_BLOCK` in the node group.
- Nobody starts the first node of a group with `min: 0` unless the cluster autoscaler runs and knows what a node would
  have: it reads the tags below from the group's Auto Scaling group.
"""

import base64
from collections.abc import Iterator
from typing import Any

from raytrain_eks.manifests import names
from raytrain_eks.manifests.karpenter import user_data
from raytrain_eks.manifests.metadata import metadata
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan, PodPlan
from raytrain_eks.plan.network import security_groups, subnets
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster import WorkerGroup

SYSTEM = "nodegroups"
_EFFECTS = {"NoSchedule": "NO_SCHEDULE", "PreferNoSchedule": "PREFER_NO_SCHEDULE", "NoExecute": "NO_EXECUTE"}
_AMI_TYPES = {
    ("amd64", "gpu"): "AL2023_x86_64_NVIDIA",
    ("amd64", "neuron"): "AL2023_x86_64_NEURON",
    ("amd64", "cpu"): "AL2023_x86_64_STANDARD",
    ("arm64", "gpu"): "AL2023_ARM_64_NVIDIA",
    ("arm64", "cpu"): "AL2023_ARM_64_STANDARD",
}
"""Architecture and kind of accelerator -> EKS's name of the image (eks.services.k8s.aws AMITypes)."""


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """Template and node group of the head, then of each group."""
    for pod in plan.pods:
        if pod.instance is not None:
            yield launch_template(plan, pod)
            yield node_group(plan, pod)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What these node groups need."""
    yield "managed node groups are made by AWS's controllers for Kubernetes: eks-controller and ec2-controller"
    if any(pod.min_nodes != pod.max_nodes for pod in plan.groups):
        yield "managed node groups grow and shrink by the cluster autoscaler, which must run in the cluster"
    if security_groups(plan.cluster):
        yield (
            "EKS adds no security group of its own to nodes whose launch template names some: the EKS cluster's own "
            f"must be among them (aws eks describe-cluster --name {plan.eks} --region {plan.cluster.region}"
            " --query cluster.resourcesVpcConfig.clusterSecurityGroupId)"
        )
    if plan.cluster.provisioner.ami and "@" in plan.cluster.provisioner.ami:
        yield "an AMI alias is Karpenter's; managed node groups take the newest AL2023 image of their kind"


def _name(plan: ClusterPlan, pod: PodPlan) -> str:
    return names.resource(plan.cluster.name, pod.name)


def launch_template(plan: ClusterPlan, pod: PodPlan) -> Object:
    """How the instances of a group are launched (ec2.services.k8s.aws/v1alpha1)."""
    spec = pod.spec
    size = (spec.disk if isinstance(spec, WorkerGroup) else None) or plan.cluster.provisioner.disk
    ebs = {"volumeSize": int(-(-quantity.parse(size) // 2**30)), "volumeType": "gp3", "throughput": 500}
    account = plan.cluster.service_account
    hops = 1 if account.irsa or account.pod_identity else 2
    data: dict[str, Any] = {
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": ebs | {"encrypted": True, "deleteOnTermination": True}}
        ],
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": hops},
    }
    whys = {"spec.data.blockDeviceMappings": "images are 10 to 20 GiB; gp3's own 125 MB/s would unpack them slowly"}
    ami = (spec.ami if isinstance(spec, WorkerGroup) else None) or plan.cluster.provisioner.ami or ""
    if ami.startswith("ami-"):
        data["imageID"] = ami
    if isinstance(spec, WorkerGroup) and spec.placement_group:
        data["placement"] = {"groupName": spec.placement_group}
        whys["spec.data.placement"] = "close to each other in the network"
    if pod.devices.efa:
        data["networkInterfaces"] = list(_interfaces(plan, pod))
        whys["spec.data.networkInterfaces"] = "one EFA interface on each network card, each with its security groups"
    elif groups := security_groups(plan.cluster):
        data["securityGroupIDs"] = groups
    data |= _reservation(pod, whys)
    parts, why = _user_data(plan, pod)
    if parts:
        data["userData"] = _mime(parts)
        whys["spec.data.userData"] = why
    body = {"apiVersion": "ec2.services.k8s.aws/v1alpha1", "kind": "LaunchTemplate"}
    head = metadata(plan, _name(plan, pod))
    return Object(SYSTEM, body | {"metadata": head, "spec": {"name": _eks_name(plan, pod), "data": data}}, whys)


_SHELL = 'text/x-shellscript; charset="us-ascii"'
_NODEADM = "application/node.eks.aws"
_RAID0 = (
    "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  instance:\n"
    "    localStorage:\n      strategy: RAID0\n"
)
"""What Karpenter's `instanceStorePolicy: RAID0` means, for AL2023's nodeadm."""


def _user_data(plan: ClusterPlan, pod: PodPlan) -> tuple[list[tuple[str, str]], str]:
    """Parts of the user data, each with its MIME type, and what they are for."""
    parts, whys = [], []
    if script := user_data(pod):
        parts.append((_SHELL, script))
        whys.append("sets LNC, which the node's runtime, device plugin and pods must agree on")
    scratch = plan.cluster.storage.scratch
    if scratch is not None and scratch.kind == "nvme" and pod.instance is not None and pod.instance.nvme:
        parts.append((_NODEADM, _RAID0))
        whys.append("nodeadm makes one RAID 0 of the local disks, which hold containers and scratch space")
    return parts, "; ".join(whys)


def _mime(parts: list[tuple[str, str]]) -> str:
    """User data as managed node groups merge it into their own: MIME parts, in base64."""
    mark = "==RAYTRAIN=="
    inside = "".join(f"--{mark}\nContent-Type: {kind}\n\n{content}\n" for kind, content in parts)
    text = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{mark}"\n\n{inside}--{mark}--\n'
    return base64.b64encode(text.encode()).decode()


def _eks_name(plan: ClusterPlan, pod: PodPlan) -> str:
    """The name in AWS, which has no namespaces."""
    return names.resource(plan.cluster.namespace, plan.cluster.name, pod.name)


def _interfaces(plan: ClusterPlan, pod: PodPlan) -> Iterator[dict[str, Any]]:
    assert pod.instance is not None
    cards = pod.instance.efa_cards
    for card in sorted({0, *cards}):
        yield {
            "networkCardIndex": card,
            "deviceIndex": 0 if card == 0 else 1,
            "interfaceType": "efa-only" if card else "efa" if card in cards else "interface",
            "groups": security_groups(plan.cluster),
            "deleteOnTermination": True,
        }


def _reservation(pod: PodPlan, whys: dict[str, str]) -> dict[str, Any]:
    if not isinstance(pod, GroupPlan) or pod.capacity.kind not in ("reserved", "capacity-block"):
        return {}
    assert pod.instance is not None
    whys["spec.data.capacityReservationSpecification"] = "instances start in this reservation, or not at all"
    target = {"capacityReservationID": pod.capacity.reservations[0]}
    found: dict[str, Any] = {"capacityReservationSpecification": {"capacityReservationTarget": target}}
    if pod.capacity.kind == "capacity-block":
        found |= {"instanceType": pod.instance.type, "instanceMarketOptions": {"marketType": "capacity-block"}}
        whys["spec.data.instanceMarketOptions"] = "a block's instances are bought on a market of their own"
    return found


def node_group(plan: ClusterPlan, pod: PodPlan) -> Object:
    """The node group itself (eks.services.k8s.aws/v1alpha1)."""
    assert pod.instance is not None
    low, high, start = (pod.min_nodes, pod.max_nodes, pod.start_nodes) if isinstance(pod, GroupPlan) else (1, 1, 1)
    block = isinstance(pod, GroupPlan) and pod.capacity.kind == "capacity-block"
    spot = isinstance(pod, GroupPlan) and pod.capacity.kind == "spot"
    spec: dict[str, Any] = {
        "name": _eks_name(plan, pod),
        "clusterName": plan.eks,
        "nodeRole": plan.cluster.provisioner.role or "",
        "subnets": subnets(plan.cluster),
        "capacityType": "CAPACITY_BLOCK" if block else "SPOT" if spot else "ON_DEMAND",
        "scalingConfig": {"minSize": low, "maxSize": high, "desiredSize": start},
        "updateConfig": {"maxUnavailable": 1},
        "labels": dict(pod.node_labels),
        "launchTemplate": {"name": _eks_name(plan, pod), "version": "$Latest"},
        "tags": _tags(plan, pod),
    }
    if not block:
        spec["instanceTypes"] = [pod.instance.type]
    if pod.taints:
        spec["taints"] = [
            {"key": taint.key, "effect": _EFFECTS[taint.effect]} | ({"value": taint.value} if taint.value else {})
            for taint in pod.taints
        ]
    ami = (pod.spec.ami if isinstance(pod.spec, WorkerGroup) else None) or plan.cluster.provisioner.ami or ""
    if not ami.startswith("ami-"):
        spec["amiType"] = _AMI_TYPES[pod.instance.arch, pod.devices.kind]
    whys = {
        "spec.labels": "what the group's pods select",
        "spec.taints": "only pods that tolerate it come here",
        "spec.amiType": "AL2023 with the driver of the accelerator",
        "spec.tags": "what the cluster autoscaler reads to know an empty group's nodes",
        "spec.instanceTypes": "one type: the pods are cut to it",
    }
    body = {
        "apiVersion": "eks.services.k8s.aws/v1alpha1",
        "kind": "Nodegroup",
        "metadata": metadata(plan, _name(plan, pod)),
    }
    kept = {path: why for path, why in whys.items() if path.split(".")[1] in spec}
    return Object(SYSTEM, body | {"spec": spec}, kept)


def _tags(plan: ClusterPlan, pod: PodPlan) -> dict[str, str]:
    template = "k8s.io/cluster-autoscaler/node-template"
    found = dict(plan.cluster.provisioner.tags)
    found |= {f"{template}/label/{key}": value for key, value in pod.node_labels.items()}
    found |= {f"{template}/taint/{taint.key}": f"{taint.value}:{taint.effect}" for taint in pod.taints}
    found |= {f"{template}/resources/{name}": str(count) for name, count in pod.devices.resources}
    return found
