"""Elastic Fabric Adapter: what must go with `vpc.amazonaws.com/efa` in a pod so that collectives really use it.

The counts come from `plan.devices`. The device plugin mounts /dev/infiniband/uverbs* into the container by itself, and
containerd on EKS's images sets no memlock limit, so neither volumes nor privileges are needed.
"""

from collections.abc import Iterator

from raytrain_eks.plan.cluster import HEAD_IMAGE, ClusterPlan, PodPlan


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What full bandwidth needs outside of Kubernetes: security groups, and libraries in the image."""
    if any(group.devices.efa for group in plan.groups) and plan.cluster.provisioner.kind != "none":
        yield (
            "EFA: one of the nodes' security groups must allow all traffic from and to itself, by an inbound and an "
            "outbound rule that name the group; without them the first collective hangs"
        )
    bare = [group for group in plan.groups if group.devices.gpus and group.image.startswith(f"{HEAD_IMAGE}:")]
    if names := ", ".join(group.name for group in bare if group.devices.efa):
        yield (
            f"{names}: Ray's public image has no torch, and no OFI plugin through which NCCL reaches EFA; "
            "write `ray: {image: …}`, an image with both, such as one built on AWS's deep learning containers"
        )
    if names := ", ".join(group.name for group in bare if not group.devices.efa):
        yield f"{names}: Ray's public image has no torch; write `ray: {{image: …}}`, an image with it"


def variables(pod: PodPlan) -> Iterator[tuple[str, str, str]]:
    """(name, value, reason) of libfabric's variables; none for a pod without EFA."""
    if not pod.devices.efa:
        return
    yield "FI_PROVIDER", "efa", "libfabric takes EFA or says why it cannot, instead of falling back to TCP in silence"
    huge = (
        "pods request no huge pages, as Karpenter cannot provision them; libfabric would take some all the same, and "
        "os.fork() fails with `Cannot allocate memory` in data loaders"
    )
    yield "FI_EFA_USE_HUGE_PAGE", "0", huge
    if pod.devices.neuron_devices:
        yield "FI_EFA_USE_DEVICE_RDMA", "1", "every Trainium type has EFA with RDMA (Neuron documentation, EFA set-up)"
