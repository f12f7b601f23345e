"""What a node can give to pods: Karpenter's planning figures for Amazon Linux 2023, as formulas.

The catalogue records the results; the formulas are here to check every recorded row when the catalogue is built, and
to derive the few types that Karpenter's table does not hold yet.
Source: karpenter-provider-aws pkg/providers/instancetype/types.go (kubeReservedResources, memory with vmMemoryOverhead
of 7.5 %, evictionThreshold); the reservation of CPU and memory is that of the EKS AMI's bootstrap.
"""

from decimal import Decimal
from math import floor

_STEPS = ((1, Decimal(60)), (1, Decimal(10)), (2, Decimal(5)))
"""CPUs, and thousandths of a CPU reserved for each of them; every further CPU costs 2.5."""
_MIB = 1024 * 1024


def cpu(vcpu: int) -> Decimal:
    """Allocatable CPUs of a node with `vcpu`: `cpu(96) == Decimal("95.69")`."""
    reserved, left = Decimal(0), vcpu
    for count, each in _STEPS:
        taken = min(count, left)
        reserved, left = reserved + taken * each, left - taken
    return vcpu - Decimal(floor(reserved + left * Decimal("2.5"))) / 1000


def memory(total: Decimal, pods: int, arch: str = "amd64") -> Decimal:
    """Allocatable bytes of a node with `total` bytes of memory and at most `pods` pods, whole MiB.

    On arm64 64 MiB are the kernel's contiguous area; then 7.5 % goes to the hypervisor, 255 MiB and 11 MiB for each pod
    to the kubelet, 100 MiB to the eviction threshold.
    """
    usable = total / _MIB - (64 if arch == "arm64" else 0)
    mebibytes = usable * Decimal("0.925") - 255 - 11 * pods - 100
    return Decimal(floor(mebibytes)) * _MIB
