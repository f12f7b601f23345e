"""What one pod may ask for, so that it fits beside the daemon sets of its node.

Allocatable is what the kubelet offers (catalogue). Daemon sets take their part of it before any pod comes: the VPC CNI,
kube-proxy, CSI drivers, device plugins and a node exporter ask for about 400m and 1 GiB together in the versions that
EKS ships, so half a CPU and 2 GiB are kept free. A pod that asks for the whole node is never placed.
"""

from dataclasses import dataclass
from decimal import Decimal

from raytrain_eks.catalog import Instance
from raytrain_eks.spec import quantity
from raytrain_eks.spec.problem import Problem

GIB = Decimal(2**30)
MIB = Decimal(2**20)
DAEMON_CPU = Decimal("0.5")
DAEMON_MEMORY = 2 * GIB
SMALL_NODE_PART = Decimal(8)
"""Nodes under 16 GiB keep an eighth free instead of 2 GiB: fewer daemon sets are meant for them."""


@dataclass(frozen=True, kw_only=True)
class Share:
    """What is left of a node for each of its pods."""

    cpu: Decimal
    memory: Decimal
    """Bytes."""
    why: str


def daemon_memory(allocatable: Decimal) -> Decimal:
    """Bytes that are kept free for daemon sets on a node that offers `allocatable` bytes."""
    return min(DAEMON_MEMORY, allocatable / SMALL_NODE_PART)


HEAD_SIDECARS = ("the autoscaler's and the submitter's containers", Decimal(1), 2 * GIB)
"""What the operator adds to the head's pod: an autoscaler (500m, 512Mi), in SidecarMode a submitter (500m, 200Mi)."""


def share(instance: Instance, pods: int, *, kept: tuple[str, Decimal, Decimal] | None = None) -> Share | None:
    """The largest CPU and memory that `pods` equal pods can have on the node; None where no source says.

    `kept`: for what, CPUs and bytes that are kept free besides.

    CPUs are rounded down to whole ones, memory to whole GiB (MiB under 4 GiB): a number that a person can check.
    """
    if instance.allocatable_cpu is None or instance.allocatable_memory is None:
        return None
    daemons = daemon_memory(instance.allocatable_memory)
    whom, more_cpu, more_memory = kept or ("", Decimal(0), Decimal(0))
    cpu = (instance.allocatable_cpu - DAEMON_CPU - more_cpu) / pods
    memory = (instance.allocatable_memory - daemons - more_memory) / pods
    cpu = Decimal(int(cpu)) if cpu >= 1 else (cpu * 1000).to_integral_value(rounding="ROUND_FLOOR") / 1000
    memory = rounded(memory)
    besides = f", less {more_cpu:f} CPU and {quantity.gibibytes(more_memory)} for {whom}" if kept else ""
    among = f", shared by {pods} pods" if pods > 1 else ""
    why = (
        f"{instance.type} can give pods {instance.allocatable_cpu:f} CPUs and "
        f"{quantity.gibibytes(instance.allocatable_memory)} (allocatable; {instance.source}), "
        f"less {DAEMON_CPU:f} CPU and {quantity.gibibytes(daemons)} for daemon sets{besides}{among}, rounded down"
    )
    return Share(cpu=cpu, memory=memory, why=why)


def rounded(memory: Decimal) -> Decimal:
    """Bytes rounded down to whole GiB, under 4 GiB to whole MiB."""
    unit = GIB if memory >= 4 * GIB else MIB
    return (memory / unit).to_integral_value(rounding="ROUND_FLOOR") * unit


def cpu_text(cpu: Decimal) -> str:
    """A CPU quantity as Kubernetes writes it: `95`, `500m`."""
    return f"{int(cpu)}" if cpu == int(cpu) else f"{int(cpu * 1000)}m"


def too_large(path: str, kind: str, written: str, instance: Instance, limit: Share) -> Problem | None:
    """The problem with a `cpu` or `memory` that was written and does not fit; None when it does."""
    most = limit.cpu if kind == "cpu" else limit.memory
    if quantity.parse(written) <= most:
        return None
    fits = cpu_text(most) if kind == "cpu" else quantity.gibibytes(most)
    return Problem(
        path=f"{path}.{kind}" if path else kind,
        value=written,
        rule=limit.why,
        fix=f"leave it out to take what fits, or write at most {fits}",
    )


def num_cpus(cpu: Decimal) -> int:
    """Ray's whole `num-cpus` for a pod's CPUs: rounded down, at least 1, so that 500m can run a task."""
    return max(int(cpu), 1)
