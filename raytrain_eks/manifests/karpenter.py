"""Karpenter v1: one NodePool and one EC2NodeClass for the head and for each group.

Rules that are easy to get wrong:
- A disruption budget of zero without `reasons` also blocks Empty, so that idle nodes stay for ever; and no budget stops
  expiry, whose default of 720 hours ends a longer job (karpenter.sh, Disruption). So: zero for Drifted and
  Underutilized only, `expireAfter: Never`, and `karpenter.sh/do-not-disrupt` on the pods.
- Karpenter never uses a reservation by itself: `reserved` capacity needs the capacity type and selector terms alike,
  and without a requirement on its kind a block's nodes may come from elsewhere (aws/karpenter-provider-aws#6519).
- AL2 has no EKS images from Kubernetes 1.33 on; an alias of AL2023 chooses the NVIDIA or Neuron variant by itself.
- Drained pods with `do-not-disrupt` stay until EC2 takes the machine, without a SIGTERM, unless the node has a
  `terminationGracePeriod`: spot nodes and capacity blocks, which EC2 does take, have one.
"""

from collections.abc import Iterator
from typing import Any

from raytrain_eks.manifests import names
from raytrain_eks.manifests.metadata import wide
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan, PodPlan
from raytrain_eks.plan.placement import ZONE_LABEL
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster import WorkerGroup
from raytrain_eks.spec.cluster_nodes import Capacity, Selector

SYSTEM = "karpenter"
NEWEST = "al2023@latest"
_GRACE = {"spot": "2m", "capacity-block": "10m"}
"""Capacity -> the time between Karpenter's notice and EC2's end (karpenter.sh, Disruption and ODCRs)."""


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """Class and pool of the head, then of each group."""
    for pod in plan.pods:
        if pod.instance is not None:
            yield node_class(plan, pod)
            yield node_pool(plan, pod)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What Karpenter needs that is no Kubernetes object."""
    if plan.cluster.provisioner.ami is None:
        yield f"nodes use {NEWEST}, which moves; write `provisioner: {{ami: al2023@v…}}` to know what runs"
    if plan.cluster.eks is None:
        yield (
            f"the EKS cluster is taken to be called {plan.eks}, as this cluster is; write `eks: …` if it is not: the "
            "nodes' role, subnets and security groups are found by it"
        )
    if any(_held(pod.capacity) for pod in plan.groups):
        yield "reserved capacity needs Karpenter's feature gate ReservedCapacity, which is on by default from 1.6 on"


def pool_name(plan: ClusterPlan, pod: PodPlan) -> str:
    """The name of a group's NodePool and EC2NodeClass; it is a label's value as well, so at most 63 long."""
    return names.resource(plan.cluster.name, pod.name)


def node_pool(plan: ClusterPlan, pod: PodPlan) -> Object:
    """Which nodes may come for a group, and when they go."""
    assert pod.instance is not None
    capacity = _capacity(pod)
    template: dict[str, Any] = {
        "requirements": list(_requirements(pod, capacity)),
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": pool_name(plan, pod)},
        "expireAfter": "Never",
    }
    if pod.taints:
        template["taints"] = [
            {key: value for key, value in taint.model_dump().items() if value} for taint in pod.taints
        ]
    if capacity.kind in _GRACE:
        template["terminationGracePeriod"] = _GRACE[capacity.kind]
    spec = {
        "template": {"metadata": {"labels": dict(pod.node_labels)}, "spec": template},
        "limits": _limits(pod),
        "disruption": {
            "consolidationPolicy": "WhenEmpty",
            "consolidateAfter": plan.cluster.provisioner.idle,
            "budgets": [{"nodes": "0", "reasons": ["Drifted", "Underutilized"]}],
        },
    }
    body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": wide(plan, pool_name(plan, pod))}
    return Object(SYSTEM, body | {"spec": spec}, _pool_whys(pod, capacity))


def _pool_whys(pod: PodPlan, capacity: Capacity) -> dict[str, str]:
    whys = {
        "spec.disruption.budgets": (
            "no node with a training on it is replaced; reasons are named, since a budget without them would also keep "
            "empty nodes for ever"
        ),
        "spec.disruption.consolidateAfter": "how long an empty node stays (`provisioner.idle`)",
        "spec.template.spec.expireAfter": "budgets do not stop expiry, and its default, 720h, would end a longer job",
        "spec.limits": "the group's `nodes.max`, in what its type has; other pools are not counted",
        "spec.template.metadata.labels": "what the group's pods select",
        "spec.template.spec.requirements.karpenter.sh/capacity-type": f"`capacity: {capacity.kind}` of the file",
    }
    if pod.zone is not None:
        whys[f"spec.template.spec.requirements.{ZONE_LABEL}"] = "one zone: EFA and FSx for Lustre reach no further"
    if pod.taints:
        whys["spec.template.spec.taints"] = "only pods that tolerate it come here; this group's do, as do the plugins"
    if capacity.kind in _GRACE:
        whys["spec.template.spec.terminationGracePeriod"] = (
            "EC2 takes these nodes with notice; within it pods get their SIGTERM, do-not-disrupt or not"
        )
    return whys


def _capacity(pod: PodPlan) -> Capacity:
    return pod.capacity if isinstance(pod, GroupPlan) else Capacity()


def _held(capacity: Capacity) -> bool:
    return capacity.kind in ("reserved", "capacity-block")


def _requirements(pod: PodPlan, capacity: Capacity) -> Iterator[dict[str, Any]]:
    assert pod.instance is not None
    types = [capacity.kind] if not _held(capacity) else ["reserved"]
    types += ["on-demand"] if capacity.fallback else []
    yield _one_of("node.kubernetes.io/instance-type", pod.instance.type)
    yield _one_of("kubernetes.io/arch", pod.instance.arch)
    yield _one_of("kubernetes.io/os", "linux")
    yield _one_of("karpenter.sh/capacity-type", *types)
    if _held(capacity) and not capacity.fallback:
        kind = "capacity-block" if capacity.kind == "capacity-block" else "default"
        yield _one_of("karpenter.k8s.aws/capacity-reservation-type", kind)
    if pod.zone is not None:
        yield _one_of(ZONE_LABEL, pod.zone)


def _one_of(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _limits(pod: PodPlan) -> dict[str, str]:
    assert pod.instance is not None
    # The head's pod is replaced while its old node may still be there.
    nodes = pod.max_nodes if isinstance(pod, GroupPlan) else 2
    found = {"cpu": str(nodes * pod.instance.vcpu)}
    if pod.instance.device_resource:
        found[pod.instance.device_resource] = str(nodes * pod.instance.accelerators)
    return found


def node_class(plan: ClusterPlan, pod: PodPlan) -> Object:
    """How the instances of a group are launched."""
    provisioner = plan.cluster.provisioner
    ami = (pod.spec.ami if isinstance(pod.spec, WorkerGroup) else None) or provisioner.ami or NEWEST
    whys = {"": "one for each group: images, reservations, placement and disks differ"}
    spec: dict[str, Any] = {"role": provisioner.role or f"KarpenterNodeRole-{plan.eks}"}
    spec |= {"amiSelectorTerms": [{"alias": ami}]} if "@" in ami else {"amiFamily": "AL2023"}
    spec |= {} if "@" in ami else {"amiSelectorTerms": [{"id": ami}]}
    whys["spec.amiSelectorTerms"] = "AL2023 chooses its NVIDIA or Neuron variant by the type; AL2 ended with 1.32"
    spec["subnetSelectorTerms"] = _terms(plan, plan.cluster.network.subnets)
    spec["securityGroupSelectorTerms"] = _terms(plan, plan.cluster.network.security_groups)
    if pod.devices.efa:
        whys["spec.securityGroupSelectorTerms"] = "EFA needs one that allows itself all traffic, in and out"
    spec["blockDeviceMappings"] = _disks(pod, provisioner.disk, ami)
    whys["spec.blockDeviceMappings"] = "training images are 10 to 20 GiB; gp3's own 125 MB/s would unpack them slowly"
    spec |= _placement(plan, pod, whys)
    spec["metadataOptions"] = _metadata_options(plan)
    whys["spec.metadataOptions"] = _metadata_why(plan)
    if provisioner.tags:
        spec["tags"] = dict(provisioner.tags)
    if data := user_data(pod):
        spec["userData"] = data
        whys["spec.userData"] = "LNC is a setting of the node: runtime, device plugin and pods must agree on it"
    body = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": wide(plan, pool_name(plan, pod))}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def _terms(plan: ClusterPlan, selector: Selector | None) -> list[dict[str, Any]]:
    if selector is None:
        return [{"tags": {"karpenter.sh/discovery": plan.discovery}}]
    return [{"id": found} for found in selector.ids] or [{"tags": dict(selector.tags)}]


def _disks(pod: PodPlan, common: str, ami: str) -> list[dict[str, Any]]:
    size = (pod.spec.disk if isinstance(pod.spec, WorkerGroup) else None) or common
    gib = -(-quantity.parse(size) // 2**30)
    ebs = {"volumeSize": f"{gib}Gi", "volumeType": "gp3", "throughput": 500, "encrypted": True}
    disk = {"ebs": ebs | {"deleteOnTermination": True}}
    if ami.startswith("bottlerocket@"):
        system = {"volumeSize": "4Gi", "volumeType": "gp3", "encrypted": True, "deleteOnTermination": True}
        return [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": system}, {"deviceName": "/dev/xvdb"} | disk]
    return [{"deviceName": "/dev/xvda", "rootVolume": True} | disk]


def _placement(plan: ClusterPlan, pod: PodPlan, whys: dict[str, str]) -> dict[str, Any]:
    """Local disks, placement group and reservations."""
    found: dict[str, Any] = {}
    scratch = plan.cluster.storage.scratch
    if scratch is not None and scratch.kind == "nvme" and pod.instance is not None and pod.instance.nvme:
        found["instanceStorePolicy"] = "RAID0"
        whys["spec.instanceStorePolicy"] = (
            f"the {pod.instance.nvme // 10**9} GB of local disks hold containers and scratch space; nothing of EFA"
        )
    if isinstance(pod.spec, WorkerGroup) and pod.spec.placement_group:
        found["placementGroupSelector"] = {"name": pod.spec.placement_group}
        whys["spec.placementGroupSelector"] = "close to each other in the network"
    capacity = _capacity(pod)
    if _held(capacity):
        terms: list[dict[str, Any]] = [{"id": reservation} for reservation in capacity.reservations]
        found["capacityReservationSelectorTerms"] = terms or [{"tags": dict(capacity.tags)}]
        whys["spec.capacityReservationSelectorTerms"] = "Karpenter uses no reservation that is not named here"
    return found


def _metadata_options(plan: ClusterPlan) -> dict[str, Any]:
    account = plan.cluster.service_account
    hops = 1 if account.irsa or account.pod_identity else 2
    return {"httpTokens": "required", "httpPutResponseHopLimit": hops}


def _metadata_why(plan: ClusterPlan) -> str:
    if _metadata_options(plan)["httpPutResponseHopLimit"] == 1:
        return "pods have a role of their own, so they need not reach the node's"
    return "two hops, so that pods reach the node's role: the service account has none of its own"


def user_data(pod: PodPlan) -> str:
    """Sets LNC where it differs from the chip's own (Neuron documentation, EKS prerequisites, Trn2 LNC)."""
    if not pod.devices.logical_core or pod.instance is None or pod.devices.logical_core == pod.instance.lnc_default:
        return ""
    return (
        "#!/bin/bash\nset -e\nmkdir -p /opt/aws/neuron\n"
        f"echo NEURON_LOGICAL_NC_CONFIG={pod.devices.logical_core} > /opt/aws/neuron/logical_nc_config\n"
    )
