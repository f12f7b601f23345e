"""`raytrain-eks catalog`: facts about EC2 instance types, with source and date."""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Failure, Outcome

if TYPE_CHECKING:
    from raytrain_eks.catalog import Instance

HEADINGS = (
    "TYPE",
    "ARCH",
    "VCPU",
    "MEMORY",
    "ACCELERATOR",
    "EACH",
    "NETWORK",
    "EFA",
    "NVME",
    "CPU*",
    "MEMORY*",
    "DATE",
)
NUMBERS = ("VCPU", "MEMORY", "EACH", "NETWORK", "EFA", "NVME", "CPU*", "MEMORY*")


@click.command(help="Facts about EC2 instance types, with source and date.")
@click.argument("type", required=False)
@click.option(
    "--where", "conditions", metavar="EXPR", multiple=True, help="Conditions that must all hold: gpu=H100,efa>=16."
)
@out.option()
def command(type: str | None, conditions: tuple[str, ...], output: str) -> None:
    from raytrain_eks import catalog
    from raytrain_eks.spec.problem import SpecError

    if type is not None and conditions:
        raise click.UsageError("give a TYPE or --where, not both")
    if type == "" or "" in conditions:
        # An empty word is a variable that is not set: all of the catalogue is no answer to it.
        raise click.UsageError(f"{'TYPE' if type == '' else '--where'} is empty; was a variable meant?")
    try:
        found = catalog.instance(type.lower()) if type else None
        matching = catalog.where(",".join(conditions)) if conditions else list(catalog.instances())
    except SpecError as error:  # of the command line, not of a file
        raise Failure(str(error), Outcome.USAGE) from None
    if found is not None:
        out.write(output, facts(found), table=lambda: out.pairs(_for_people(found)))
        return
    out.write(output, [facts(found) for found in matching], table=lambda: _table(matching))
    if not matching:
        click.echo("no instance type meets these conditions", err=True)
    elif output == "table":
        count = f"{len(matching)} type{'' if len(matching) == 1 else 's'}"
        click.echo(f"{count}; * is what pods can get (Amazon Linux 2023), daemon sets included", err=True)


def facts(found: "Instance") -> dict[str, Any]:
    """Plain data of a type: quantities as Kubernetes writes them, rates in bits or bytes per second as the key says."""
    return {
        "type": found.type,
        "arch": found.arch,
        "vcpu": found.vcpu,
        "memory": _mebibytes(found.memory),
        "accelerator": _accelerator(found),
        "network": {
            "bitsPerSecond": found.network,
            "efaInterfaces": found.efa,
            "efaBitsPerSecond": found.efa_bandwidth,
            "efaGeneration": found.efa_generation or None,
            "ebsBitsPerSecond": found.ebs,
        },
        "nvmeBytes": found.nvme,
        "allocatable": {
            "cpu": None if found.allocatable_cpu is None else f"{int(found.allocatable_cpu * 1000)}m",
            "memory": _mebibytes(found.allocatable_memory),
            "pods": found.allocatable_pods,
        },
        "notes": found.notes or None,
        "source": found.source,
        "date": found.date,
    }


def _accelerator(found: "Instance") -> dict[str, Any] | None:
    if not found.accelerator:
        return None
    return {
        "name": found.accelerator,
        "vendor": found.vendor,
        "count": found.accelerators,
        "resource": found.device_resource or None,
        "memory": _mebibytes(found.accelerator_memory),
        "bf16Flops": found.bf16_flops,
        "fp8Flops": found.fp8_flops,
        "memoryBytesPerSecond": found.memory_bandwidth,
        "link": found.link or None,
        "linkBytesPerSecond": found.link_bandwidth,
        "neuronCores": found.neuron_cores or None,
        "lncDefault": found.lnc_default or None,
        "lncAllowed": list(found.lnc_allowed) or None,
        "source": found.peak_source or None,
    }


def _mebibytes(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount // 2**20}Mi"


def _gibibytes(amount: Decimal | None) -> str | None:
    return None if amount is None else f"{amount / 2**30:.1f}".removesuffix(".0") + " GiB"


def _gigabits(rate: int | None) -> str | None:
    return None if rate is None else f"{rate / 1e9:g} Gbit/s"


def _terabytes(amount: int) -> str | None:
    return f"{amount / 1e12:g} TB" if amount else None


def _peak(flops: float | None) -> str | None:
    return None if flops is None else f"{flops / 1e12:g} TFLOP/s dense"


def _for_people(found: "Instance") -> dict[str, object]:
    each = f", {_gibibytes(found.accelerator_memory)} each" if found.accelerator_memory else ""
    allocatable = f"{found.allocatable_cpu} CPUs, {_mebibytes(found.allocatable_memory)}, {found.allocatable_pods} pods"
    efa = f"{found.efa} interfaces" + (f", {_gigabits(found.efa_bandwidth)}" if found.efa_bandwidth else "")
    rows: dict[str, object] = {
        "type": found.type,
        "architecture": found.arch,
        "vCPU": found.vcpu,
        "memory": _gibibytes(found.memory),
        "allocatable": "no source says" if found.allocatable_cpu is None else allocatable,
        "accelerators": f"{found.accelerators} x {found.accelerator}{each}" if found.accelerator else None,
        "resource": f"{found.device_resource}: {found.accelerators}" if found.device_resource else None,
        "bf16": _peak(found.bf16_flops),
        "fp8": _peak(found.fp8_flops),
        "device memory": f"{found.memory_bandwidth / 1e12:g} TB/s" if found.memory_bandwidth else None,
        "link": found.link or None,
        "link bandwidth": f"{found.link_bandwidth / 1e9:g} GB/s" if found.link_bandwidth else None,
        "NeuronCores": _cores(found),
        "network": _gigabits(found.network),
        "EFA": f"{efa} {found.efa_generation}".strip() if found.efa else "none",
        "EBS": _gigabits(found.ebs),
        "local NVMe": _terabytes(found.nvme) or "none",
        "notes": found.notes or None,
        "source": found.source,
        "source of peaks": found.peak_source or None,
    }
    return rows


def _cores(found: "Instance") -> str | None:
    if not found.neuron_cores:
        return None
    allowed = " or ".join(map(str, found.lnc_allowed))
    return (
        f"{found.neuron_cores} physical, {found.logical_cores()} logical (LNC {found.lnc_default}; allowed: {allowed})"
    )


def _table(matching: list["Instance"]) -> str:
    return out.aligned(HEADINGS, map(_row, matching), right=NUMBERS)


def _row(found: "Instance") -> tuple[object, ...]:
    return (
        found.type,
        found.arch,
        found.vcpu,
        _gibibytes(found.memory),
        f"{found.accelerators} x {found.accelerator}" if found.accelerator else None,
        _gibibytes(found.accelerator_memory),
        _gigabits(found.network),
        found.efa or None,
        _terabytes(found.nvme),
        found.allocatable_cpu,
        _mebibytes(found.allocatable_memory),
        found.date,
    )
