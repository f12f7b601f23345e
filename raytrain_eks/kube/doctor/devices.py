"""Device plugins, and what the nodes that are up offer through them."""

from collections.abc import Iterator
from decimal import Decimal

from raytrain_eks import catalog
from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, place, running, unready, version_of
from raytrain_eks.plan.devices import EFA, GPU, NEURON
from raytrain_eks.plan.placement import INSTANCE_LABEL
from raytrain_eks.spec import quantity
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.spec.problem import counted

PLUGINS = {
    GPU: ("NVIDIA's device plugin", ("k8s-device-plugin",), "nvidia-device-plugin-daemonset"),
    NEURON: ("Neuron's device plugin", ("neuron-device-plugin",), "neuron-device-plugin"),
    EFA: ("the EFA device plugin", ("aws-efa-k8s-device-plugin",), "aws-efa-k8s-device-plugin"),
}
"""Resource -> name, ends of images, and the DaemonSet that our own bundle makes."""


def examine(look: Look) -> Iterator[Diagnosis]:
    """The plugins that the file's groups need; without a file, those that are there."""
    for resource, (name, images, own) in PLUGINS.items():
        found = [each for image in images for each in running(look.daemon_sets, image)]
        # EFA's image ends like NVIDIA's.
        found = [(each, image) for each, image in found if resource != GPU or "efa" not in image]
        needed = look.plan is not None and any(_needs(group.devices.resources, resource) for group in look.plan.groups)
        id = f"devices.{resource.partition('/')[0].split('.')[0]}-{resource.rpartition('/')[2]}"
        if found:
            yield _ready(id, name, *found[0])
            if len(found) > 1:
                others = " and ".join(place(each) for each, _ in found)
                fix = "two plugins for one device fight over the kubelet's socket: keep one"
                yield yellow(id, resource, f"more than one: {others}", fix)
        elif needed and look.brings("DaemonSet", own):
            yield green(id, resource, f"{name} is not there yet; `apply` makes it")
        elif needed:
            fix = "install it, or let the file render it: `plugins`"
            yield red(id, resource, f"{name} was not found, and pods that ask for {resource} wait for ever", fix)
    yield from nodes(look)


def _needs(resources: tuple[tuple[str, int], ...], resource: str) -> bool:
    names = {name for name, _ in resources}
    return resource in names or (resource == NEURON and any(name.startswith("aws.amazon.com/neuron") for name in names))


def _ready(id: str, name: str, workload: Body, image: str) -> Diagnosis:
    where = place(workload)
    if (why := unready(workload)) is not None:
        fix = "kubectl describe its pods; does it tolerate the nodes' taints?"
        return red(id, where, f"{name}: {why}, and a node without it offers nothing", fix)
    wanted = int((workload.get("status") or {}).get("desiredNumberScheduled") or 0)
    return green(
        id, where, f"{name} {version_of(image) or ''} is ready on {counted(wanted, 'node')}".replace("  ", " ")
    )


def nodes(look: Look) -> Iterator[Diagnosis]:
    """Nodes that are up and offer less than the catalogue says their type has; ready ones only."""
    short = []
    for node in look.nodes:
        type = ((node.get("metadata") or {}).get("labels") or {}).get(INSTANCE_LABEL, "")
        if not catalog.known(type):
            continue
        about = catalog.instance(type)
        offered = (node.get("status") or {}).get("allocatable") or {}
        have = quantity.parse(str(offered.get(about.device_resource) or 0)) if about.device_resource else Decimal(0)
        if about.accelerators and about.vendor in ("nvidia", "aws") and have < about.accelerators:
            short.append(f"{node['metadata']['name']} ({type}) {have} of {about.accelerators} {about.device_resource}")
    if short:
        fix = "a device plugin that is not ready there, or a device that has failed: drain the node"
        yield yellow("devices.nodes", "nodes", f"offer less than their type has: {'; '.join(short[:5])}", fix)
    elif look.nodes:
        yield green("devices.nodes", "nodes", f"{counted(len(look.nodes), 'node')}, each offers what its type has")
