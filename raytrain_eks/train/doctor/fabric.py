"""How fast an all-reduce over all ranks is, and whether that is what the catalogue promises.

Bus bandwidth as nccl-tests defines it (doc/PERFORMANCE.md): bytes / seconds * 2 (n - 1) / n. Of a ring it is the rate
at which every link is used, whatever the number of ranks, so it can be held against a link's own bandwidth.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raytrain_eks.catalog import Instance
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

if TYPE_CHECKING:
    import torch

SIZES = {"cuda": (2**20, 2**24, 2**28, 2**30), "neuron": (2**20, 2**24, 2**28), "cpu": (2**16, 2**20, 2**23)}
"""Kind of device -> bytes of the tensors, the largest being what is judged."""
WARM_UP, REPEATS = 3, 7
GOOD, POOR = 0.6, 0.25
"""Parts of the catalogue's bandwidth: from `GOOD` on green, below `POOR` red. Well-set-up p4d reach 0.85 of their EFA
(public measurements, 340 of 400 Gbit/s) and NVSwitch 0.75; TCP instead of EFA reaches 0.02 to 0.1."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One size."""

    bytes: int
    seconds: float
    """The median of the repeats, on the rank that tells."""
    ranks: int

    @property
    def bus(self) -> float:
        """Bytes per second over each link."""
        return self.bytes / self.seconds * 2 * (self.ranks - 1) / self.ranks


def measure(device: "torch.device", sizes: tuple[int, ...]) -> list[Measured]:
    """Time all-reduces of float32 tensors over the process group; every rank must call it. Raises NotReduced when the
    sum is wrong."""
    import torch
    import torch.distributed as dist

    from raytrain_eks.train.proof import prove_all_reduce

    ranks = dist.get_world_size()
    prove_all_reduce(device, ranks)
    found = []
    for size in sizes:
        tensor = torch.ones(size // 4, dtype=torch.float32, device=device)
        times = []
        for _ in range(WARM_UP + REPEATS):
            # Values would grow without bound by sums of sums.
            tensor.fill_(1.0)
            wait(tensor)
            dist.barrier()
            began = time.perf_counter()
            dist.all_reduce(tensor)
            wait(tensor)
            times.append(time.perf_counter() - began)
        if tensor[0].item() != ranks or tensor[-1].item() != ranks:
            from raytrain_eks.train.proof import NotReduced

            raise NotReduced(f"an all-reduce of ones over {ranks} ranks gave {tensor[0].item()}")
        seconds = sorted(times[WARM_UP:])[REPEATS // 2]
        found.append(Measured(bytes=tensor.numel() * 4, seconds=max(seconds, 1e-9), ranks=ranks))
    return found


def wait(tensor: "torch.Tensor") -> None:
    """Until the device has done what was asked: by CUDA's own call, else by reading a value."""
    if tensor.device.type == "cuda":
        import torch

        torch.cuda.synchronize(tensor.device)
    elif tensor.device.type != "cpu":
        tensor[:1].cpu()


def verdict(largest: Measured, where: str, instance: Instance | None, *, nodes: int) -> Diagnosis:
    """The measured bandwidth against the catalogue's: EFA's between nodes, the devices' own link within one."""
    id = "fabric.all_reduce"
    text = f"all-reduce of {_bytes(largest.bytes)} over {largest.ranks} ranks: {_rate(largest.bus)} bus bandwidth"
    promised, link = expected(instance, nodes=nodes)
    if promised is None:
        return green(id, where, f"{text}; the catalogue has no figure for {link}")
    share = largest.bus / promised
    said = f"{text}, {share:.0%} of the {_rate(promised)} of {link}"
    if share >= GOOD:
        return green(id, where, said)
    fix = "see fabric.nccl; are all nodes in one zone and placement group, and do they run nothing else?"
    return yellow(id, where, said, fix) if share >= POOR else red(id, where, said, fix)


def expected(instance: Instance | None, *, nodes: int) -> tuple[float | None, str]:
    """Bytes per second in one direction, and the link's name: of a node's EFA interfaces together, or of one device's
    link within a node (the catalogue has both directions of it). None where the catalogue says nothing."""
    if instance is None or not instance.accelerators:
        return None, "this machine"
    if nodes > 1:
        if not instance.efa_bandwidth:
            return (instance.network / 8 or None), f"{instance.type}'s network"
        return instance.efa_bandwidth / 8, f"{instance.type}'s {instance.efa} EFA interfaces"
    if not instance.link_bandwidth:
        return None, f"{instance.type}'s {instance.link or 'links'}"
    return instance.link_bandwidth / 2, instance.link


def table(rows: list[Measured], say: Callable[[str], None]) -> None:
    """The measured sizes as lines for people."""
    for row in rows:
        say(f"  all-reduce {_bytes(row.bytes):>9}  {row.seconds * 1e3:9.3f} ms  {_rate(row.bus):>11} bus bandwidth")


def latency(rows: list[Measured], where: str) -> Iterator[Diagnosis]:
    """The smallest size, which is all latency, for comparison."""
    if rows:
        text = f"{_bytes(rows[0].bytes)} take {rows[0].seconds * 1e6:.0f} µs"
        yield green("fabric.latency", where, text)


def _bytes(number: int) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if number >= size:
            return f"{number / size:g} {unit}"
    return f"{number} B"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2f} GB/s"
