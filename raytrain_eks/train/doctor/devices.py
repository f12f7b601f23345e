"""The accelerators that a worker sees, against what the catalogue says its instance has and what Ray counts there.

A pod may have a part of a node's devices, so fewer than the node has is no error by itself; fewer than Ray counts is
one, since as many worker processes will start.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from raytrain_eks.catalog import Instance
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.train.doctor.programs import Run, find, run

MEMORY_SLACK = 0.06
"""A driver reports up to a twentieth less than the device has: ECC and its own reserve."""
GPU_QUERY = ("--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One line of nvidia-smi; memory in bytes."""

    name: str
    memory: int
    driver: str


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What Ray counts on the node; None: not known here."""

    gpus: int | None = None
    neuron_cores: int | None = None


def gpus(text: str) -> list[Gpu]:
    """The GPUs of nvidia-smi's answer (CSV without headings, MiB); lines that are none are left out."""
    found = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 3 and parts[1].isdigit():
            found.append(Gpu(name=parts[0], memory=int(parts[1]) * 2**20, driver=parts[2]))
    return found


def neuron_devices(text: str) -> list[dict[str, int]] | None:
    """`neuron-ls --json-output`: logical cores and bytes of each device; None when it is not such an answer.

    Both of its forms are read: a list, and a mapping with `neuron_devices`.
    """
    try:
        data = json.loads(text)
        entries = data["neuron_devices"] if isinstance(data, dict) else data
        return [{"cores": int(each["nc_count"]), "memory": int(each.get("memory_size") or 0)} for each in entries]
    except (ValueError, KeyError, TypeError):
        return None


def examine(where: str, instance: Instance | None, counted: Counted, *, ask: Run = run) -> Iterator[Diagnosis]:
    """NVIDIA and Neuron devices; one finding that there are none where nothing expects any."""
    node_gpus = sorted(path.name for path in Path("/dev").glob("nvidia[0-9]*"))
    node_neuron = sorted(path.name for path in Path("/dev").glob("neuron[0-9]*"))
    vendor = instance.vendor if instance is not None else ""
    nvidia = bool(node_gpus or counted.gpus or (vendor == "nvidia" and not counted.neuron_cores))
    neuron = bool(node_neuron or counted.neuron_cores or vendor == "aws")
    if nvidia:
        yield from nvidia_findings(where, instance, counted, ask("nvidia-smi", *GPU_QUERY), files=node_gpus)
    if neuron:
        yield from neuron_findings(where, instance, counted, ask("neuron-ls", "--json-output"))
    if not nvidia and not neuron:
        kind = f" ({instance.type})" if instance is not None else ""
        yield green("worker.devices", where, f"no accelerators, as expected{kind}: jobs run on the CPU")


def nvidia_findings(
    where: str, instance: Instance | None, counted: Counted, answer: str | None, *, files: list[str]
) -> Iterator[Diagnosis]:
    """From nvidia-smi's answer, None when it gave none. `files`: the device files, such as nvidia0."""
    id = "worker.devices"
    if answer is None:
        missing = find("nvidia-smi") is None
        why = "nvidia-smi is not here" if missing else "nvidia-smi fails"
        seen = f", though /dev has {', '.join(files)}" if files else " and /dev has no GPU"
        fix = (
            "the container needs the NVIDIA runtime: an image with NVIDIA_DRIVER_CAPABILITIES=compute,utility, on "
            "EKS's accelerated AMI, and a pod that asks for nvidia.com/gpu"
        )
        yield red(id, where, why + seen, fix)
        return
    found = gpus(answer)
    if not found:
        yield red(id, where, "nvidia-smi lists no GPU", "does the pod ask for nvidia.com/gpu?")
        return
    text = f"{len(found)} x {found[0].name}, {found[0].memory / 2**30:.0f} GiB each, driver {found[0].driver}"
    if len({gpu.name for gpu in found}) > 1:
        names = ", ".join(gpu.name for gpu in found)
        yield yellow(id, where, f"different GPUs in one pod: {names}", "the slowest sets the pace of all")
    yield from _count(id, where, len(found), counted.gpus, instance, text, "GPU")
    if instance is not None and instance.vendor == "nvidia":
        yield from _memory(where, instance, min(gpu.memory for gpu in found), found[0].name)


def neuron_findings(where: str, instance: Instance | None, counted: Counted, answer: str | None) -> Iterator[Diagnosis]:
    """From neuron-ls' answer, None when it gave none."""
    id = "worker.devices"
    if answer is None or (found := neuron_devices(answer)) is None:
        why = "neuron-ls is not here, or fails: Ray counts NeuronCores by it" if answer is None else "neuron-ls is odd"
        fix = "an image with aws-neuronx-tools, and a pod that asks for aws.amazon.com/neuron"
        yield red(id, where, why, fix)
        return
    cores = sum(each["cores"] for each in found)
    text = f"{len(found)} Neuron devices with {cores} cores"
    if not found:
        yield red(id, where, "neuron-ls lists no device", "does the pod ask for aws.amazon.com/neuron?")
        return
    if counted.neuron_cores is not None and counted.neuron_cores != cores:
        why = f"{text}, and Ray counts {counted.neuron_cores} neuron_cores"
        fix = (
            "write `neuron_cores` of rayStartParams.resources as neuron-ls counts: logical cores, which "
            "NEURON_LOGICAL_NC_CONFIG (LNC) changes"
        )
        yield red(id, where, why, fix)
    elif counted.neuron_cores is None and instance is not None and len(found) < instance.accelerators:
        why = f"{text}; {instance.type} has {instance.accelerators} devices"
        yield yellow(id, where, why, "right for a pod with a part of the node; else ask for all of them")
    else:
        yield green(id, where, text)


def _count(
    id: str, where: str, found: int, counted: int | None, instance: Instance | None, text: str, noun: str
) -> Iterator[Diagnosis]:
    if counted is not None and counted > found:
        why = f"{text}; Ray counts {counted} and would start as many workers"
        yield red(id, where, why, f"write the {noun} count of the group as the pod's limit, or fix the node")
    elif counted is not None and counted < found:
        why = f"{text}; Ray counts {counted}, and the others stay idle"
        yield yellow(id, where, why, "let the pod's limit and `num-gpus` agree")
    elif counted is None and instance is not None and instance.vendor == "nvidia" and found < instance.accelerators:
        why = f"{text}; {instance.type} has {instance.accelerators}"
        yield yellow(id, where, why, "right for a pod with a part of the node; else a GPU has failed: drain the node")
    else:
        yield green(id, where, text)


def _memory(where: str, instance: Instance, memory: int, name: str) -> Iterator[Diagnosis]:
    """A GPU with less memory than its kind has is another kind, or was cut (MIG)."""
    if instance.accelerator_memory is None or memory >= float(instance.accelerator_memory) * (1 - MEMORY_SLACK):
        return
    have, want = memory / 2**30, float(instance.accelerator_memory) / 2**30
    why = f"{name} has {have:.0f} GiB; the catalogue says {want:.0f} GiB for {instance.accelerator}"
    yield yellow("worker.memory", where, why, "is it cut by MIG, or another type of instance?")
