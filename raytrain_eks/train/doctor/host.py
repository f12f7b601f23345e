"""What a process on a worker may use: locked memory, open files, shared memory, huge pages, and the time."""

import os
import resource
import shutil
from collections.abc import Iterator
from pathlib import Path

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

ENOUGH_FILES = 8192
"""32 ranks on a node were seen to run out of open files (aws-neuron/aws-neuron-sdk#713); 1024 is a common limit."""
ENOUGH_LOCKED = 2**30
"""Bytes of locked memory: libfabric registers its buffers with the EFA device, which pins them."""
ENOUGH_SHM = 2**30
SKEW_S, BAD_SKEW_S = 1.0, 60.0
"""AWS refuses signatures that are five minutes off; a minute is well on the way there."""


def examine(
    where: str, *, efa: bool, shm: Path = Path("/dev/shm"), huge: Path = Path("/proc/meminfo")
) -> Iterator[Diagnosis]:
    """All but the time. `efa`: whether the worker uses EFA."""
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    yield locked(where, soft, hard, efa=efa)
    yield files(where, *resource.getrlimit(resource.RLIMIT_NOFILE))
    yield shared_memory(where, shm)
    yield from huge_pages(where, huge.read_text() if huge.exists() else "", efa=efa)


def locked(where: str, soft: int, hard: int, *, efa: bool) -> Diagnosis:
    """How much memory may be locked, in bytes; EFA and GPUDirect need as much as they register."""
    id = "worker.memlock"
    if soft == resource.RLIM_INFINITY or soft >= ENOUGH_LOCKED:
        return green(id, where, f"locked memory: {_size(soft)}")
    why = f"locked memory is limited to {_size(soft)} (at most {_size(hard)})"
    if not efa:
        return green(id, where, f"{why}, which is enough without EFA")
    fix = "LimitMEMLOCK=infinity for containerd on the node; EKS's AMIs have it"
    return red(id, where, f"{why}; EFA cannot register its buffers", fix)


def files(where: str, soft: int, hard: int) -> Diagnosis:
    """Open files; a process may raise its own up to the hard limit."""
    if hard == resource.RLIM_INFINITY or hard >= ENOUGH_FILES:
        return green("worker.files", where, f"open files: {_count(soft)}, and up to {_count(hard)}")
    why = f"open files: {_count(soft)}, and at most {_count(hard)}"
    return yellow("worker.files", where, why, "LimitNOFILE for containerd on the node; many ranks need more")


def shared_memory(where: str, path: Path) -> Diagnosis:
    """The size of /dev/shm in the pod."""
    id = "worker.shm"
    try:
        size = shutil.disk_usage(path).total
    except OSError:
        return red(id, where, f"there is no {path}", "an emptyDir of medium Memory, as our manifests have")
    if size < ENOUGH_SHM:
        why = f"{path} has {_size(size)}; 64 MiB is the runtime's default, in which NCCL and data loaders die"
        return red(id, where, why, "an emptyDir of medium Memory at /dev/shm, as our manifests have")
    return green(id, where, f"{path} has {_size(size)}")


def huge_pages(where: str, meminfo: str, *, efa: bool) -> Iterator[Diagnosis]:
    """Huge pages: libfabric takes them for EFA when there are some, and a fork then fails for want of more."""
    counts = {line.partition(":")[0]: line.split()[1] for line in meminfo.splitlines() if line.startswith("Huge")}
    total = int(counts.get("HugePages_Total", 0))
    if efa and total and os.environ.get("FI_EFA_USE_HUGE_PAGE") != "0":
        why = (
            f"{total} huge pages, which libfabric takes: os.fork() of data loaders fails with `Cannot allocate memory`"
        )
        yield yellow("worker.huge_pages", where, why, "set FI_EFA_USE_HUGE_PAGE=0, as our manifests do")
    else:
        yield green("worker.huge_pages", where, f"{total} huge pages")


def clock(where: str, offset: float, uncertainty: float, against: str) -> Diagnosis:
    """The worker's clock against another; `offset` and `uncertainty` in seconds, half the time of the question."""
    id, text = "worker.clock", f"{offset:+.3f} s (± {uncertainty:.3f}) against {against}"
    sure = max(abs(offset) - uncertainty, 0.0)
    fix = "chrony on the node with the Amazon Time Sync Service (169.254.169.123)"
    if sure > BAD_SKEW_S:
        return red(id, where, f"the clock is off by {text}: AWS refuses signatures and tokens", fix)
    if sure > SKEW_S:
        return yellow(id, where, f"the clock is off by {text}: times of events and checkpoints mislead", fix)
    return green(id, where, f"the clock: {text}")


def _size(bytes: int) -> str:
    if bytes == resource.RLIM_INFINITY:
        return "unlimited"
    return f"{bytes / 2**30:.1f} GiB" if bytes >= 2**30 else f"{bytes / 2**20:.1f} MiB"


def _count(number: int) -> str:
    return "unlimited" if number == resource.RLIM_INFINITY else str(number)
