"""Accelerators and network interfaces of one pod: its part of the node's devices, never more than the node has.

Extended resources cannot be overcommitted, so requests and limits are the same number. One process per accelerator
follows from it: Ray sees as many GPUs or NeuronCores as the pod has.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from raytrain_eks.catalog import Instance
from raytrain_eks.spec.cluster import WorkerGroup
from raytrain_eks.spec.problem import Problem

EFA = "vpc.amazonaws.com/efa"
GPU = "nvidia.com/gpu"
NEURON = "aws.amazon.com/neuron"
NEURON_CORE = "aws.amazon.com/neuroncore"


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What one pod gets of its node's devices."""

    pods_per_node: int = 1
    gpus: int = 0
    neuron_devices: int = 0
    neuron_cores: int = 0
    """Logical NeuronCores, as the runtime and Ray count them."""
    logical_core: int = 0
    """Physical cores in a logical one (LNC); 0 without Neuron."""
    efa: int = 0
    resources: tuple[tuple[str, int], ...] = ()
    """Extended resource and count, in a fixed order."""

    @property
    def kind(self) -> str:
        """`gpu`, `neuron` or `cpu`."""
        return "gpu" if self.gpus else "neuron" if self.neuron_devices else "cpu"


def interfaces(instance: Instance, accelerators: int) -> int:
    """EFA interfaces of a pod with `accelerators` of the node's: the same part of them, rounded down, since a
    rounded-up share would leave the node's last pod without any; all of them when the node has no accelerators."""
    return instance.efa * accelerators // instance.accelerators if instance.accelerators else instance.efa


def wants_efa(group: WorkerGroup, instance: Instance) -> bool:
    """Whether the group's pods use EFA: when required, and by default when several nodes with accelerators have it."""
    if group.efa == "required":
        return True
    return group.efa == "auto" and group.nodes.max > 1 and instance.accelerators > 0 and instance.efa > 0


def devices(group: WorkerGroup, instance: Instance | None) -> Devices:
    """The devices of one pod of a group without `problems`; none when the node's type is not known."""
    if instance is None:
        return Devices()
    taken = min(group.accelerators or instance.accelerators, instance.accelerators)
    pods = instance.accelerators // taken if taken else 1
    efa = interfaces(instance, taken) if wants_efa(group, instance) else 0
    network = ((EFA, efa),) if efa else ()
    if instance.vendor == "nvidia" and taken:
        return Devices(pods_per_node=pods, gpus=taken, efa=efa, resources=((GPU, taken), *network))
    if instance.vendor == "aws" and taken:
        logical = group.logical_cores or instance.lnc_default
        cores = instance.logical_cores(logical) * taken // instance.accelerators
        asked = (NEURON_CORE, cores) if group.neuron == "cores" else (NEURON, taken)
        return Devices(
            pods_per_node=pods,
            neuron_devices=taken,
            neuron_cores=cores,
            logical_core=logical,
            efa=efa,
            resources=(asked, *network),
        )
    return Devices(efa=efa, resources=network)


def problems(group: WorkerGroup, instance: Instance, path: str) -> Iterator[Problem]:
    """What is wrong with the devices a group asks for, given its node's type."""
    have = instance.accelerators
    if have and instance.vendor not in ("nvidia", "aws"):
        rule = f"{instance.type} has {instance.accelerator}, and training runs on NVIDIA GPUs, Trainium or CPUs"
        yield Problem(path=f"{path}.instance", value=instance.type, rule=rule)
    if group.accelerators is not None:
        if not have:
            rule = f"{instance.type} has no accelerators"
            yield Problem(path=f"{path}.accelerators", value=str(group.accelerators), rule=rule, fix="leave it out")
        elif have % group.accelerators:
            whole = [str(part) for part in range(1, have + 1) if have % part == 0]
            rule = f"{instance.type} has {have}, and the pods of a node must share them evenly"
            fix = f"write {', '.join(whole)}, or leave it out for all"
            yield Problem(path=f"{path}.accelerators", value=str(group.accelerators), rule=rule, fix=fix)
        elif instance.vendor == "aws" and 1 < group.accelerators < have:
            rule = "more than one Neuron device but not all of them needs Neuron's scheduler extension"
            fix = f"write 1 or {have}: neighbouring devices are not promised otherwise"
            yield Problem(path=f"{path}.accelerators", value=str(group.accelerators), rule=rule, fix=fix)
    if group.logical_cores is not None and group.logical_cores not in instance.lnc_allowed:
        allowed = " or ".join(map(str, instance.lnc_allowed))
        rule = f"{instance.accelerator} has LNC {allowed}" if allowed else f"{instance.type} has no NeuronCores"
        yield Problem(path=f"{path}.logical_cores", value=str(group.logical_cores), rule=rule)
    if group.neuron == "cores" and instance.vendor != "aws":
        rule = f"{instance.type} has no NeuronCores"
        yield Problem(path=f"{path}.neuron", value="cores", rule=rule, fix="leave it out")
    if group.efa == "required" and not instance.efa:
        fix = "use `efa: auto`, or a type that has EFA: raytrain-eks catalog --where 'efa>0'"
        yield Problem(path=f"{path}.efa", value="required", rule=f"{instance.type} has no EFA interface", fix=fix)
    elif group.efa == "required" and not interfaces(instance, min(group.accelerators or have, have)):
        rule = f"{instance.efa} EFA interfaces of {instance.type} cannot be shared by the pods of a node"
        yield Problem(path=f"{path}.efa", value="required", rule=rule, fix="let one pod take all accelerators")
