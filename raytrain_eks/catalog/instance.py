"""One EC2 instance type and everything that is known about it; read from the data files one row at a time.

Finding a row is a search in the text of the file, since rendering needs a handful of types out of more than a thousand.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from raytrain_eks.spec.problem import Problem, SpecError, nearest

HERE = Path(__file__).parent
MIB = 1024 * 1024
RESOURCES = {
    "nvidia": "nvidia.com/gpu",
    "aws": "aws.amazon.com/neuron",
    "amd": "amd.com/gpu",
    "habana": "habana.ai/gaudi",
    "qualcomm": "qualcomm.com/qaic",
}
"""Vendor of an accelerator -> the extended resource that its device plugin offers, one per device."""


@dataclass(frozen=True, kw_only=True)
class Instance:
    """Facts about one type. Memory and disks in bytes, bandwidths in bits per second unless said otherwise."""

    type: str
    arch: str
    """`amd64` or `arm64`."""
    vcpu: int
    memory: Decimal
    vendor: str
    """`nvidia`, `aws`, `amd`, `habana`, `qualcomm`; empty without accelerators."""
    accelerator: str
    """`A100`, `Trainium1`, ...; empty without accelerators."""
    accelerators: int
    """Whole devices of the node; 0 as well where the node has a fraction of a GPU."""
    accelerator_memory: Decimal | None
    """Bytes of one device; None where no source says."""
    neuron_cores_per_device: int
    """Physical NeuronCores of one chip; 0 when it is not a Neuron chip."""
    lnc_default: int
    """Physical cores that make one logical core by default (LNC); 0 when it is not a Neuron chip."""
    lnc_allowed: tuple[int, ...]
    bf16_flops: float | None
    """Dense peak of one device in FLOP/s; None where no source says. `fp8_flops` is the same for 8-bit floats."""
    fp8_flops: float | None
    memory_bandwidth: float | None
    """Bytes per second between one device and its memory."""
    link: str
    """What joins the devices of a node: `NVLink3+NVSwitch`, `PCIe5`, `NeuronLink-v3`; empty where no source says."""
    link_bandwidth: float | None
    """Bytes per second of one device over that link, both directions together."""
    network: int
    efa: int
    """EFA interfaces, as the resource `vpc.amazonaws.com/efa` counts them."""
    efa_bandwidth: int | None
    """Bits per second of all EFA interfaces together."""
    efa_generation: str
    ebs: int | None
    nvme: int
    """Bytes of local disks (decimal gigabytes, as EC2 states them)."""
    allocatable_cpu: Decimal | None
    """CPUs that pods can get on Amazon Linux 2023, daemon sets included. None: no source; so with the other two."""
    allocatable_memory: Decimal | None
    """Bytes that pods can get."""
    allocatable_pods: int | None
    source: str
    date: str
    """Year and month of `source`."""
    peak_source: str
    """Where peaks, links and NeuronCores come from; empty without accelerators."""
    notes: str

    @property
    def device_resource(self) -> str:
        """The extended resource of one device, such as `nvidia.com/gpu`; empty when the node has no whole device."""
        return RESOURCES.get(self.vendor, "") if self.accelerators else ""

    @property
    def efa_cards(self) -> tuple[int, ...]:
        """Indexes of the network cards that carry EFA: from 0 on, except for types whose first card carries IP only."""
        return _efa_cards().get(self.type, tuple(range(self.efa)))

    @property
    def neuron_cores(self) -> int:
        """Physical NeuronCores of the node."""
        return self.neuron_cores_per_device * self.accelerators

    def logical_cores(self, lnc: int | None = None) -> int:
        """NeuronCores as the runtime, and so Ray, counts them. Raises ValueError for an LNC the chip cannot have."""
        chosen = self.lnc_default if lnc is None else lnc
        if not self.neuron_cores:
            return 0
        if chosen not in self.lnc_allowed:
            raise ValueError(f"{self.accelerator} has LNC {' or '.join(map(str, self.lnc_allowed))}, not {chosen}")
        return self.neuron_cores // chosen

    def allocatable(self, resource: str) -> Decimal | None:
        """How much of a Kubernetes resource the node can give to pods; 0 when it has none, None when no source says."""
        fixed = {"cpu": self.allocatable_cpu, "memory": self.allocatable_memory, "pods": self.allocatable_pods}
        if resource in fixed:
            amount = fixed[resource]
            return None if amount is None else Decimal(amount)
        counts = {self.device_resource: self.accelerators, "vpc.amazonaws.com/efa": self.efa}
        counts |= {"aws.amazon.com/neuroncore": self.logical_cores(), "aws.amazon.com/neurondevice": 0}
        return Decimal(counts.get(resource, 0))


@cache
def instance(type: str) -> Instance:
    """The facts about a type. Raises SpecError, with the nearest types, for one that the catalogue does not hold."""
    text = _text()
    if not known(type):
        raise SpecError([unknown(type)])
    start = text.index(f"\n{type},") + 1
    line = text[start : text.index("\n", start)]
    return _read(dict(zip(_header(), next(csv.reader([line])), strict=True)))


@cache
def known(type: str) -> bool:
    """Whether the catalogue holds a type."""
    # A comma or a line break in it would match a row's other cells.
    return bool(type) and not {",", "\n"} & set(type) and f"\n{type}," in _text()


def instances() -> Iterator[Instance]:
    """Every type, sorted by name."""
    for row in csv.DictReader(_text().splitlines()):
        yield _read(row)


def types() -> list[str]:
    """The name of every type, sorted."""
    return [line.split(",", 1)[0] for line in _text().splitlines()[1:]]


def unknown(type: str) -> Problem:
    """The problem with a type that the catalogue does not hold."""
    family, _, size = type.partition(".")
    near = [name for name in types() if name.startswith(f"{family}.")] if size else []
    letters = type.rstrip("0123456789.-").partition(".")[0].rstrip("0123456789")[:2]
    alike = near or [name for name in types() if name.startswith(letters[:1])]
    guess = nearest(type, alike)
    hint = f"did you mean `{guess}`?" if guess else "see `raytrain-eks catalog`"
    if near:
        hint += f" {family} comes as {', '.join(name.partition('.')[2] for name in near)}"
    return Problem(path="instance", value=type, rule="is no EC2 type of the catalogue", fix=hint)


@cache
def _text() -> str:
    return (HERE / "instances.csv").read_text(encoding="utf-8")


@cache
def _header() -> list[str]:
    return _text()[: _text().index("\n")].split(",")


@cache
def _sources() -> dict[str, tuple[str, str]]:
    with (HERE / "sources.csv").open(newline="", encoding="utf-8") as file:
        return {row["key"]: (row["text"], row["date"]) for row in csv.DictReader(file)}


def _cited(keys: str) -> str:
    return "; ".join(f"{text} ({date})" for text, date in (_sources()[key] for key in keys.split()))


def _scaled(text: str, unit: float) -> float | None:
    return float(text) * unit if text else None


def _whole(text: str, unit: int = 1) -> int | None:
    return int(Decimal(text) * unit) if text else None


def _read(row: dict[str, str]) -> Instance:
    return Instance(
        type=row["type"],
        arch=row["arch"],
        vcpu=int(row["vcpu"]),
        memory=Decimal(row["memory_mib"]) * MIB,
        vendor=row["vendor"],
        accelerator=row["accelerator"],
        accelerators=int(row["accelerators"]),
        accelerator_memory=Decimal(row["accelerator_memory_mib"]) * MIB if row["accelerator_memory_mib"] else None,
        neuron_cores_per_device=int(row["neuron_cores_per_device"] or 0),
        lnc_default=int(row["lnc_default"] or 0),
        lnc_allowed=tuple(int(part) for part in row["lnc_allowed"].split()),
        bf16_flops=_scaled(row["bf16_tflops"], 1e12),
        fp8_flops=_scaled(row["fp8_tflops"], 1e12),
        memory_bandwidth=_scaled(row["hbm_tb_per_s"], 1e12),
        link=row["link"],
        link_bandwidth=_scaled(row["link_gb_per_s"], 1e9),
        network=_whole(row["network_mbps"], 10**6) or 0,
        efa=int(row["efa"] or 0),
        efa_bandwidth=_whole(row["efa_mbps"], 10**6) if int(row["efa"] or 0) else None,
        efa_generation=row["efa_generation"],
        ebs=_whole(row["ebs_mbps"], 10**6),
        nvme=_whole(row["nvme_gb"], 10**9) or 0,
        allocatable_cpu=Decimal(row["allocatable_cpu"].removesuffix("m")) / 1000 if row["allocatable_cpu"] else None,
        allocatable_memory=Decimal(row["allocatable_memory_mib"]) * MIB if row["allocatable_memory_mib"] else None,
        allocatable_pods=_whole(row["allocatable_pods"]),
        source=_cited(row["source"]),
        date=_sources()[row["source"].split()[0]][1],
        peak_source=_cited(row["peak_source"]),
        notes=row["notes"],
    )


@cache
def _efa_cards() -> dict[str, tuple[int, ...]]:
    with (HERE / "network_cards.csv").open(newline="", encoding="utf-8") as file:
        return {row["type"]: tuple(map(int, row["efa_cards"].split())) for row in csv.DictReader(file)}
