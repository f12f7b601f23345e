"""What checkpoints cost: the step's stall, the time to durable, loading, packing and mirroring, beside their peers.

    python benchmarks/checkpoint.py [--megabytes N] [--rounds N] [--part save --part codecs ...]

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
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("save", "load", "reshard", "codecs", "mirror")
Run = Callable[[], Any]


def state(megabytes: int) -> dict[str, Any]:
    """fp32 tensors of 10 MB each, of random numbers."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return {f"layer{number}": torch.randn(2500, 1000, generator=generator) for number in range(megabytes // 10)}


class Taken(list[float]):
    """Seconds of each round; `cpu`: the processor seconds that this process spent in it."""

    def __init__(self) -> None:
        super().__init__()
        self.cpu: list[float] = []


def in_turns(runs: dict[str, Run], rounds: int) -> dict[str, Taken]:
    """Seconds of each, `rounds` times, in turns; a first round that warms caches is left out. A run may return its own
    measure instead of its wall time."""
    taken = {name: Taken() for name in runs}
    for number in range(rounds + 1):
        names = list(runs)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            began, processor = time.perf_counter(), time.process_time()
            result = runs[name]()
            seconds = result if isinstance(result, float) else time.perf_counter() - began
            if number:
                taken[name].append(seconds)
                taken[name].cpu.append(time.process_time() - processor)
    return taken


def row(
    what: str, ours: list[float], peer: list[float], beside: str, target: float | None = None, *, cpu: bool = False
) -> dict[str, Any]:
    """One line: medians in seconds, their ratio, and what the ratio should be at most; with `cpu` also the ratio of
    processor seconds of the runs."""
    mine, theirs = statistics.median(ours), statistics.median(peer)
    found = {"what": what, "ours_s": round(mine, 4), "beside": beside, "peer_s": round(theirs, 4)}
    found |= {"ratio": round(mine / theirs, 3), "target": target, "best_ratio": round(min(ours) / min(peer), 3)}
    if cpu and isinstance(ours, Taken) and isinstance(peer, Taken):
        found["cpu_ratio"] = round(statistics.median(ours.cpu) / statistics.median(peer.cpu), 3)
    return found


def process_group() -> None:
    """torch.distributed.checkpoint wants one; a group of one, over gloo."""
    import torch.distributed as dist

    if not dist.is_initialized():
        meeting = tempfile.mkdtemp(prefix="bench-meeting-")
        dist.init_process_group("gloo", init_method=f"file://{meeting}/store", rank=0, world_size=1)


def opened_run(folder: Path) -> Any:
    """A new run folder with a first attempt."""
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.spec.load import load

    run = RunFolder(folder, "bench")
    return run, run.claim(load(ROOT / "jobs" / "quickstart.yaml"))


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


def trained(folder: Path, steps: int = 60) -> Path:
    """A file of weights and AdamW moments of a small Llama that has learnt the standard library's bytes for a while."""
    import sysconfig

    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.rankfile import layout

    torch.manual_seed(0)
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))[:40]
    text = torch.frombuffer(bytearray(b"".join(file.read_bytes() for file in files)), dtype=torch.uint8).long()
    config = LlamaConfig(
        vocab_size=4096, hidden_size=256, intermediate_size=768, num_hidden_layers=4, num_attention_heads=4
    )
    model = LlamaForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(steps):
        starts = torch.randint(0, len(text) - 65, (8,)).tolist()
        ids = torch.stack([text[start : start + 64] for start in starts])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    moments = {}
    for number, weight in enumerate(model.parameters()):
        moments |= {f"{number}.{name}": optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq")}
    tensors = {name: weight.detach() for name, weight in model.named_parameters()} | moments
    header, places, _ = layout(whole(tensors))
    with (folder / "trained.safetensors").open("wb") as file:
        file.write(header)
        for chunk, _ in places:
            file.write(chunk.tensor.contiguous().numpy().tobytes())
    return folder / "trained.safetensors"


def codecs(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    """Ratio and speed of each codec on real trained weights and optimizer state, one thread."""
    from raytrain_eks.checkpoint.codec import Codec
    from raytrain_eks.checkpoint.manifest import BLOCK

    content = trained(folder).read_bytes()
    blocks = [content[at : at + BLOCK] for at in range(0, len(content), BLOCK)]
    choices = [Codec("zstd", 1), Codec("zstd", 3), Codec("planes", 1), Codec("gzip", 1), Codec("gzip", 6)]
    for codec in choices:
        began = time.perf_counter()
        packed = [codec.pack(block) for block in blocks]
        there = time.perf_counter() - began
        began = time.perf_counter()
        for block, small in zip(blocks, packed, strict=True):
            codec.unpack(small, len(block))
        back = time.perf_counter() - began
        ratio = len(content) / sum(map(len, packed))
        speed = {"pack_MB_s": round(len(content) / there / 1e6, 1), "unpack_MB_s": round(len(content) / back / 1e6, 1)}
        yield {"what": f"codec {codec.name} {codec.level}", "packs_by": round(ratio, 4)} | speed


def processor_seconds() -> float:
    """Of this process and of children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def mirroring(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    """A checkpoint to an S3 server on loopback (moto), beside boto3's transfer manager and `aws s3 sync`."""
    sys.path.insert(0, str(ROOT / "tests" / "checkpoint"))
    from s3server import Moto

    server = Moto()
    os.environ |= {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.port}", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {"AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench", "AWS_EC2_METADATA_DISABLED": "true"}
    try:
        yield from _mirroring(folder, megabytes, rounds)
    finally:
        server.close()


def _mirroring(folder: Path, megabytes: int, rounds: int) -> Iterable[dict[str, Any]]:
    import boto3

    from raytrain_eks.checkpoint.chunk import whole
    from raytrain_eks.checkpoint.codec import Codec
    from raytrain_eks.checkpoint.mirror import Mirror
    from raytrain_eks.checkpoint.save import Saver

    run, attempt = opened_run(folder / "ours")
    saver = Saver(run, attempt)
    saver.save(1, whole(state(megabytes)), {})
    saver.close()
    client = boto3.client("s3")
    client.create_bucket(Bucket="bench")
    size = sum(size for _, size in run.storage.files())
    used: dict[str, list[float]] = {}

    def measured(name: str, send: Run) -> Run:
        def go() -> float:
            listed = client.list_objects_v2(Bucket="bench").get("Contents", ())
            for item in listed:
                client.delete_object(Bucket="bench", Key=item["Key"])
            began, processor = time.perf_counter(), processor_seconds()
            send()
            used.setdefault(name, []).append(processor_seconds() - processor)
            return time.perf_counter() - began

        return go

    def transfer_manager() -> None:
        for path, _ in run.storage.files():
            client.upload_file(run.storage.folder / path, "bench", path)

    def aws() -> None:
        command = ["aws", "s3", "sync", "--only-show-errors", str(run.storage.folder), "s3://bench/bench"]
        subprocess.run(command, check=True)

    runs = {
        "ours, none": measured("ours, none", lambda: Mirror(run, "s3://bench", codec=Codec("none")).sync()),
        "ours, zstd": measured("ours, zstd", lambda: Mirror(run, "s3://bench", codec=Codec("zstd")).sync()),
        "boto3": measured("boto3", transfer_manager),
    }
    if shutil.which("aws"):
        runs["aws s3 sync"] = measured("aws s3 sync", aws)
    taken = in_turns(runs, rounds)
    for name, seconds in taken.items():
        speed = {"MB_s": round(size / statistics.median(seconds) / 1e6, 1)}
        yield (
            {"what": f"mirror: {name}"}
            | speed
            | {"cpu_s_per_GB": round(statistics.median(used[name][1:]) / size * 1e9, 2)}
        )
    for peer in list(runs)[2:]:
        yield row("mirror, none", taken["ours, none"], taken[peer], peer)


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


def rows(megabytes: int = 240, rounds: int = 5, parts: Iterable[str] = PARTS) -> list[dict[str, Any]]:
    """Every measurement as a dict."""
    measure = {"save": saving, "load": loading, "reshard": resharding, "codecs": codecs, "mirror": mirroring}
    found = []
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="bench-checkpoint-") as folder:
            found += list(measure[part](Path(folder), megabytes, rounds))
    return found


def table(found: list[dict[str, Any]]) -> str:
    """For people."""
    lines = []
    for each in found:
        facts = ", ".join(f"{key} {value}" for key, value in each.items() if key != "what" and value is not None)
        lines.append(f"{each['what']:44}  {facts}")
    return "\n".join(lines)


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
    import torch

    torch.set_num_threads(options.threads)
    found = rows(options.megabytes, options.rounds, options.part or PARTS)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    print(json.dumps({"benchmark": "checkpoint", "machine": machine, "rows": found}, indent=1))
    print(table(found), file=sys.stderr)


if __name__ == "__main__":
    main()
