"""What checkpoints cost: the stall of a step, the time to durable, loading and resharding, beside their peers.

    python benchmarks/checkpoint.py [--megabytes N] [--rounds N] [--part save --part load ...]

Prints a table on stderr and one JSON document on stdout. Every round runs ours and each peer once, one after the other
in a different order, so that a machine that is busy for a while is busy for all of them; ratios are of medians.
`cpu_ratio` is that of processor seconds, of all threads, which another's work on the machine moves less. torch copies
with `--threads`: with more than are free its barrier is measured, for ours and for the bare copy.
"""

import argparse
import itertools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turns import ROOT, Run, Taken, in_turns, opened_run, row, state, table

PARTS = ("save", "load", "reshard")


def process_group() -> None:
    """torch.distributed.checkpoint wants one; a group of one, over gloo."""
    import torch.distributed as dist

    if not dist.is_initialized():
        meeting = tempfile.mkdtemp(prefix="bench-meeting-")
        dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=0, world_size=1)


def saving(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    """Stall and time to durable."""
    import torch
    import torch.distributed.checkpoint as dcp

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.retention import Retention
    from raytrain_eks.checkpoint.save import Saver

    process_group()
    tensors = state(megabytes)
    copies = {name: tensor.clone() for name, tensor in tensors.items()}
    run, attempt = opened_run(folder / "ours")
    # Durable is when the manifest is there; what retention then deletes is not counted.
    complete: list[float] = []
    saver = Saver(
        run,
        attempt,
        keep=Retention(last=1, best=0),
        tell=lambda event: complete.append(time.perf_counter()),
    )
    chunks, count = whole(tensors), itertools.count(1)
    durable: list[float] = []
    asynchronous: list[float] = []

    def fresh(name: str) -> Path:
        shutil.rmtree(folder / name, ignore_errors=True)
        return folder / name

    def copy() -> None:
        for name, tensor in tensors.items():
            copies[name].copy_(tensor)

    def ours() -> float:
        began = time.perf_counter()
        saver.save(next(count), chunks, {})
        stalled = time.perf_counter() - began
        saver.wait()
        durable.append(complete[-1] - began)
        if saver.errors:
            raise RuntimeError(saver.errors)
        return stalled

    def dcp_async() -> float:
        began = time.perf_counter()
        future = dcp.async_save(tensors, checkpoint_id=place)
        stalled = time.perf_counter() - began
        future.result()
        asynchronous.append(time.perf_counter() - began)
        return stalled

    def torch_save() -> None:
        with (fresh("torch").parent / "torch.pt").open("wb") as file:
            torch.save(tensors, file)
            file.flush()
            os.fsync(file.fileno())

    def dcp_save() -> float:
        target = fresh("dcp")
        began = time.perf_counter()
        dcp.save(tensors, checkpoint_id=target)
        return time.perf_counter() - began

    place = folder / "dcp-async"
    runs = {"copy": copy, "ours": ours, "torch.save": torch_save, "dcp.save": dcp_save}
    runs["dcp.async_save"] = lambda: (fresh("dcp-async"), dcp_async())[1]
    taken = in_turns(runs, rounds)
    saver.close()
    yield row("stall of a save", taken["ours"], taken["copy"], "one copy of the state", 1.2)
    for peer in ("torch.save", "dcp.save", "dcp.async_save"):
        yield row("stall of a save", taken["ours"], taken[peer], peer)
    whole_save = Taken()
    whole_save += durable[1:]
    whole_save.cpu = taken["ours"].cpu
    yield row("time to durable, with checksums", whole_save, taken["dcp.save"], "dcp.save", 1.25, cpu=True)
    yield row("time to durable, with checksums", durable[1:], taken["torch.save"], "torch.save + fsync")
    yield row("time to durable, with checksums", durable[1:], asynchronous[1:], "dcp.async_save")


def loading(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    """Load with every byte verified, into tensors that are there, as a resume does."""
    import torch
    import torch.distributed.checkpoint as dcp

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.region import Region
    from raytrain_eks.checkpoint.restore import restore
    from raytrain_eks.checkpoint.save import Saver

    process_group()
    tensors = state(megabytes)
    run, attempt = opened_run(folder / "ours")
    saver = Saver(run, attempt)
    saver.save(1, whole(tensors), {})
    saver.close()
    dcp.save(tensors, checkpoint_id=folder / "dcp")
    torch.save(tensors, folder / "torch.pt")
    into = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}

    def ours(level: Any) -> None:
        with restore(run, verify=level) as reader:
            reader.fill((name, Region.all(tuple(tensor.shape)), tensor) for name, tensor in into.items())

    def torch_load() -> None:
        for name, tensor in torch.load(folder / "torch.pt", weights_only=True).items():
            into[name].copy_(tensor)

    runs: dict[str, Run] = {"ours": lambda: ours("full"), "sizes": lambda: ours("sizes")}
    runs |= {"dcp.load": lambda: dcp.load(into, checkpoint_id=folder / "dcp"), "torch.load": torch_load}
    taken = in_turns(runs, rounds)
    if not all(torch.equal(into[name], tensor) for name, tensor in tensors.items()):
        raise RuntimeError("what was loaded is not what was saved")
    yield row("load, every byte verified", taken["ours"], taken["dcp.load"], "dcp.load (no checksums)", 1.25, cpu=True)
    yield row("load, every byte verified", taken["ours"], taken["torch.load"], "torch.load (zip's CRC-32)", cpu=True)
    yield row("load, sizes verified", taken["sizes"], taken["dcp.load"], "dcp.load (no checksums)", cpu=True)


def resharding(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    """Written by 2 ranks, in rows of each tensor (FSDP2) or as flat ranges (ZeRO); read as it is and as 3 ranks: from
    the disk, as after a start on new nodes, and from the page cache, where only copying is left to be compared."""
    import torch

    from raytrain_eks.checkpoint.region import Region
    from raytrain_eks.checkpoint.restore import restore

    for way in ("rows", "flat"):
        run, _ = opened_run(folder / way)
        meeting = folder / f"meeting-{way}"
        arguments = [sys.executable, __file__, "--write-as", way, str(folder / way), str(meeting), str(megabytes)]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        ranks = [subprocess.Popen([*arguments, str(rank)], env=environment) for rank in (0, 1)]
        if any(rank.wait() for rank in ranks):
            raise RuntimeError("the two writing ranks failed")
        shape = (2500, 1000)

        def parts(axis: int | None, ranks: int, shape: tuple[int, int] = shape) -> list[Region]:
            if axis is None:
                size = shape[0] * shape[1]
                cuts = [size * rank // ranks for rank in range(ranks + 1)]
                return [Region.flat(shape, a, b - a) for a, b in itertools.pairwise(cuts)]
            cuts = [shape[axis] * rank // ranks for rank in range(ranks + 1)]
            spans = itertools.pairwise(cuts)
            if axis == 0:
                return [Region.box(shape, (a, 0), (b - a, shape[1])) for a, b in spans]
            return [Region.box(shape, (0, a), (shape[0], b - a)) for a, b in spans]

        same = parts(0 if way == "rows" else None, 2)
        runs: dict[str, Run] = {}
        with restore(run, verify="off") as reader:
            for name, regions in {
                "same": same,
                "3 in rows": parts(0, 3),
                "3 flat": parts(None, 3),
                "3 in columns": parts(1, 3),
                "1": [Region.all(shape)],
            }.items():
                targets = [
                    (tensor, region, torch.zeros(region.shape)) for tensor in reader.names() for region in regions
                ]
                runs[name] = lambda targets=targets: reader.fill(targets)
            files = [run.storage.folder / path for path, _ in run.storage.files()]
            found = {
                "the disk": in_turns({name: from_disk(files, load) for name, load in runs.items()}, rounds),
                "the page cache": in_turns(runs, rounds),
            }
        for place, taken in found.items():
            for name in list(runs)[1:]:
                what = f"from {place}: 2 ranks' {way} as {name}"
                yield row(what, taken[name], taken["same"], "load as it was written", 1.3, cpu=True)


def from_disk(files: Iterable[Path], load: Run) -> Run:
    """The load, after the kernel has forgotten the files (they are durable); its seconds."""

    def go() -> float:
        for path in files:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        began = time.perf_counter()
        load()
        return time.perf_counter() - began

    return go


def write_as(way: str, folder: str, meeting: str, megabytes: int, rank: int) -> None:
    """One of two ranks that save each tensor in rows or as flat ranges."""
    import torch
    import torch.distributed as dist

    from raytrain_eks.checkpoint.chunk import Chunk
    from raytrain_eks.checkpoint.run import Attempt, RunFolder
    from raytrain_eks.checkpoint.save import Saver

    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    run = RunFolder(folder, "bench")
    chunks = []
    for name, tensor in state(megabytes).items():
        shape, half = tuple(tensor.shape), tensor.shape[0] // 2 if way == "rows" else tensor.numel() // 2
        part = (tensor if way == "rows" else tensor.reshape(-1))[half * rank : half * (rank + 1)]
        place = {"offsets": (half * rank, 0)} if way == "rows" else {"flat_start": half * rank}
        chunks.append(Chunk(name, shape, torch.float32, part, **place))
    saver = Saver(run, Attempt(1, str(run.identity()["run_id"]), True), rank=rank, world=2)
    saver.save(1, chunks, {})
    saver.close()


def rows(megabytes: int = 240, rounds: int = 5, parts: Iterable[str] = PARTS, threads: int = 1) -> list[dict[str, Any]]:
    """Every measurement as a dict."""
    import torch

    measure = {"save": saving, "load": loading, "reshard": resharding}
    found, before = [], torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for part in parts:
            with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as folder:
                found += list(measure[part](Path(folder), megabytes, rounds))
    finally:
        torch.set_num_threads(before)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--write-as", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.write_as:
        way, folder, meeting, megabytes, rank = options.write_as
        write_as(way, folder, meeting, int(megabytes), int(rank))
        return
    found = rows(options.megabytes, options.rounds, options.part or PARTS, options.threads)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    print(json.dumps({"benchmark": "checkpoint", "machine": machine, "rows": found}, indent=1))
    print(table(found), file=sys.stderr)


if __name__ == "__main__":
    main()
