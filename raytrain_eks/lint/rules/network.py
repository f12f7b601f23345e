"""RT40x: EFA's resource, environment and shared memory go together; variables of NCCL and Gloo say what they mean."""

import re
from collections.abc import Iterator

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.pods import EFA, Container, Pod
from raytrain_eks.lint.programs import programs, variables
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.rules.fit import candidates
from raytrain_eks.lint.tree import amount, get, items, mapping, text
from raytrain_eks.spec.source import Path

_EFA_VARIABLES = ("FI_EFA_USE_DEVICE_RDMA", "FI_EFA_FORK_SAFE", "FI_PROVIDER")
_WORTH = 100 * 10**9
"""Bits per second of EFA below which a type gains little by it: the ordinary interface is as wide."""
_PLUGIN = "aws-efa-k8s-device-plugin"


def _speaks_of_efa(pod: Pod) -> Path | None:
    for container in pod.containers:
        for name, (value, path) in variables(container).items():
            if name in _EFA_VARIABLES and (name != "FI_PROVIDER" or value == "efa"):
                return path
    return None


def _environment_alone(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        pods = bundle.pods_of(resource)
        if any(pod.efa for pod in pods):
            continue
        for pod in pods:
            if (path := _speaks_of_efa(pod)) is not None:
                reason = f"the environment chooses EFA, and no pod of this object asks for {EFA}"
                fix = f"ask for {EFA} in limits, as many as the type has: raytrain-eks catalog TYPE"
                yield Hit(on=resource, path=path, reason=reason, fix=fix)
                break


def several(pod: Pod) -> bool:
    """Whether more than one pod of the template works on the same job."""
    group = pod.role.startswith(("worker group", "Worker", "task")) or pod.owner.kind in ("Job", "StatefulSet")
    return group and (pod.count or 0) > 1


def _without_efa(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if not several(pod) or pod.efa or not pod.devices:
            continue
        types = [instance(type) for type in candidates(pod, bundle) if known(type)]
        if not types or not all(type.efa and (type.efa_bandwidth or 0) >= _WORTH for type in types):
            continue
        whole = [type for type in types if any(count >= type.accelerators for count in pod.devices.values())]
        if not whole or len(whole) < len(types):
            continue
        most = min(type.efa for type in types)
        names = ", ".join(type.type for type in types)
        reason = f"up to {pod.count} pods with whole nodes of {names}, and none asks for {EFA}: they speak over TCP"
        device = max(pod.devices, key=lambda name: pod.devices[name])
        path = pod.largest(device).where(device)
        yield Hit(on=pod.owner, path=path, reason=reason, fix=f"add {EFA}: {most} to the limits")


def _shared_memory(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if pod.devices.get("nvidia.com/gpu", 0) < 2 or pod.spec.get("hostIPC") is True or not _shares(pod):
            continue
        mounted = {name for container in pod.main for name, path in _mounts(container) if path == "/dev/shm"}
        if not mounted:
            reason = (
                "several GPUs, and /dev/shm is the container runtime's 64 MiB: NCCL fails or falls back to the network"
            )
            fix = "mount an emptyDir with medium: Memory at /dev/shm"
            yield Hit(on=pod.owner, path=pod.largest("nvidia.com/gpu").path, reason=reason, fix=fix)
        for data, path, name in pod.volumes("emptyDir"):
            if name in mounted:
                yield from _bad_memory(pod, data, path)


_TRAINS = re.compile(r"torchrun|torch\.distributed|mpirun|deepspeed|accelerate|train|nccl|NCCL")


def _shares(pod: Pod) -> bool:
    """Whether the pod's GPUs will speak with each other, as far as it can be seen. Ray's pods are left out: KubeRay
    mounts /dev/shm into the Ray container by itself (controllers/ray/common/pod.go)."""
    if pod.owner.group == "ray.io":
        return False
    words = [word for container in pod.main for word in (container.image, *container.words, *container.env)]
    grouped = pod.owner.group in ("kubeflow.org", "batch.volcano.sh") or pod.owner.kind == "ConfigMap"
    return grouped or any(_TRAINS.search(word) for word in words)


def _mounts(container: Container) -> Iterator[tuple[str, str]]:
    for mount in items(container.data.get("volumeMounts")):
        yield text(get(mount, "name")), text(get(mount, "mountPath")).rstrip("/")


def _bad_memory(pod: Pod, data: object, path: Path) -> Iterator[Hit]:
    if get(data, "medium") != "Memory":
        reason = "/dev/shm lies on the node's disk"
        yield Hit(on=pod.owner, path=path, reason=reason, fix="write emptyDir: {medium: Memory}")
    size, limit = amount(get(data, "sizeLimit")), None
    for container in pod.main:
        if any(where == "/dev/shm" for _, where in _mounts(container)):
            limit = amount(get(container.data, "resources", "limits", "memory"))
    if size is not None and limit is not None and size >= limit:
        reason = f"shared memory counts as the container's memory, and {text(get(data, 'sizeLimit'))} reaches its limit"
        yield Hit(on=pod.owner, path=(*path, "sizeLimit"), reason=reason, fix="make it at most half of the limit")


def _every_variable(bundle: Bundle) -> Iterator[tuple[Resource, Pod | None, str, str, Path]]:
    """Every variable with a literal value: in the environment, handed on by mpirun, exported in a script."""
    for pod in bundle.pods:
        for container in pod.containers:
            for name, (value, path) in variables(container).items():
                if value is not None:
                    yield pod.owner, pod, name, value, path
    for resource in bundle.resources:
        if resource.kind == "ConfigMap":
            for program in programs(resource, ()):
                for name, value in re.findall(r"^\s*export\s+(\w+)=[\"']?([^\s\"'#;]*)", program.text, re.M):
                    yield resource, None, name, value, program.path


def _disabled(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for owner, _, name, value, path in _every_variable(bundle):
        if name == "NCCL_IB_DISABLE" and value == "1":
            reason = (
                "NCCL_IB_DISABLE=1 does nothing for EFA, which comes by the OFI plugin, and ends InfiniBand elsewhere"
            )
            yield Hit(on=owner, path=path, reason=reason, fix="leave it out")
        if name == "NCCL_NET" and value.lower() == "socket":
            reason = "NCCL_NET=Socket keeps NCCL on TCP, whatever interfaces the pod has"
            yield Hit(on=owner, path=path, reason=reason, fix="leave it out")


def _interfaces(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for owner, pod, name, value, path in _every_variable(bundle):
        host = pod is not None and pod.spec.get("hostNetwork") is True
        if name in ("GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "CCOM_SOCKET_IFNAME") and re.search(r"[\^=]", value):
            reason = f"{name}={value}: `^` and `=` are NCCL's syntax; this library takes the text for a name and fails"
            fix = "write the name of one interface, such as eth0, or leave it out"
            yield Hit(on=owner, path=path, reason=reason, fix=fix)
        elif name == "NCCL_SOCKET_IFNAME" and "^" in value[1:]:
            reason = f"{name}={value}: one `^` in front stands for the whole list"
            yield Hit(on=owner, path=path, reason=reason, fix=f"write ^{value.replace('^', '')}")
        elif name.endswith("_SOCKET_IFNAME") and value == "eth0" and host:
            reason = f"{name}=eth0, and with hostNetwork the pod sees the node's interfaces, which are ens... on AL2023"
            fix = (
                "write ^lo,docker,veth,eni,pod-id-link for NCCL; leave it out for Gloo"
                if "NCCL" in name
                else "leave it out"
            )
            yield Hit(on=owner, path=path, reason=reason, fix=fix)


def _plugin(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.main:
            if pod.daemon and _PLUGIN in container.image:
                yield from _plugin_faults(pod, container)


def _plugin_faults(pod: Pod, container: Container) -> Iterator[Hit]:
    version = re.search(r":v?(\d+)\.(\d+)", container.image)
    if version and (int(version[1]), int(version[2])) < (0, 5):
        reason = f"{container.image.rpartition(':')[2]} is older than most types that have EFA now"
        yield Hit(on=pod.owner, path=(*container.path, "image"), reason=reason, fix="use v0.5.20 or later")
    paths = {text(data.get("path")).rstrip("/") for data, _, _ in pod.volumes("hostPath")}
    if "/dev/infiniband" not in paths:
        reason = "/dev/infiniband of the host is not mounted, as AWS's chart does"
        fix = "mount hostPath /dev/infiniband at /dev/infiniband"
        yield Hit(on=pod.owner, path=container.path, reason=reason, fix=fix)
    if pod.spec.get("hostNetwork") is not True:
        reason = "the plugin runs without hostNetwork, unlike AWS's chart"
        yield Hit(on=pod.owner, path=pod.path, reason=reason, fix="write hostNetwork: true")
    if get(container.data, "securityContext", "privileged") is not True:
        reason = "the plugin is not privileged, unlike in AWS's chart"
        path = (*container.path, "securityContext") if "securityContext" in container.data else container.path
        yield Hit(on=pod.owner, path=path, reason=reason, fix="write securityContext: {privileged: true}")
    selector = mapping(pod.spec.get("nodeSelector"))
    if (type := text(selector.get("node.kubernetes.io/instance-type"))) and not pod.spec.get("affinity"):
        reason = f"the plugin runs on {type} only, and every other type with EFA stays without the resource"
        path = (*pod.path, "nodeSelector", "node.kubernetes.io/instance-type")
        yield Hit(on=pod.owner, path=path, reason=reason, fix="select the types with EFA by affinity, or all nodes")


RULES = (
    Rule(
        id="RT401",
        severity="error",
        title="EFA in the environment, and no interface",
        why="FI_PROVIDER=efa without the resource vpc.amazonaws.com/efa: the container has no EFA device, libfabric "
        "finds no provider, and NCCL aborts or goes over TCP at a hundredth of the bandwidth.",
        fix="Ask for vpc.amazonaws.com/efa in the limits.",
        check=_environment_alone,
    ),
    Rule(
        id="RT402",
        severity="warning",
        title="Several whole nodes with EFA, and none is asked for",
        why="Training over several nodes of a type that has EFA runs over TCP when the pods do not ask for it. Nothing "
        "fails: it is only many times slower. EFA interfaces come with the pod's request, not with the node.",
        fix="Ask for all of the node's interfaces in the limits.",
        check=_without_efa,
    ),
    Rule(
        id="RT403",
        severity="error",
        title="/dev/shm for several GPUs",
        why="NCCL passes data between the GPUs of a node through /dev/shm, and PyTorch's data loaders use it too. A "
        "container has 64 MiB of it unless a memory volume is mounted. (KubeRay mounts one into Ray's pods.)",
        fix="Mount an emptyDir with medium: Memory at /dev/shm, smaller than the memory limit.",
        check=_shared_memory,
    ),
    Rule(
        id="RT404",
        severity="warning",
        title="A variable that keeps NCCL off the fast network",
        why="Such lines are copied from one cluster to the next. NCCL_IB_DISABLE=1 has no effect on EFA and is harmful "
        "on InfiniBand; NCCL_NET=Socket is TCP.",
        fix="Leave it out: the OFI plugin of the image chooses EFA where the pod has it.",
        check=_disabled,
    ),
    Rule(
        id="RT405",
        severity="error",
        title="An interface name in the wrong syntax",
        why="NCCL_SOCKET_IFNAME takes prefixes, with `^` to exclude and `=` for exact names. GLOO_SOCKET_IFNAME takes "
        "names only, and `^lo,docker` crashes it. With hostNetwork the interfaces are the node's.",
        fix="Each library in its own syntax, or none: in an ordinary pod eth0 is the only interface.",
        check=_interfaces,
    ),
    Rule(
        id="RT406",
        severity="warning",
        title="The EFA device plugin as it is not shipped",
        why="AWS's chart runs it with hostNetwork, privileged, with /dev/infiniband mounted, on every type with EFA. "
        "Where it does not see the interfaces it registers none, and pods that ask for EFA stay Pending.",
        fix="Use the chart's own manifest (eks/aws-efa-k8s-device-plugin 0.5.20 or later).",
        check=_plugin,
    ),
)
