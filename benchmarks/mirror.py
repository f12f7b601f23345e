"""What mirroring a checkpoint costs: packing and sending it to an S3 server on loopback, beside its peers.

    python benchmarks/mirror.py [--megabytes N] [--rounds N] [--part codecs --part mirror]

Prints a table on stderr and one JSON document on stdout. Ways take turns; ratios are of medians.
"""

import argparse
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
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from turns import ROOT, Run, in_turns, opened_run, row, state, table

PARTS = ("codecs", "mirror")


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


def rows(megabytes: int = 240, rounds: int = 5, parts: Iterable[str] = PARTS) -> list[dict[str, Any]]:
    """Every measurement as a dict."""
    measure = {"codecs": codecs, "mirror": mirroring}
    found = []
    for part in parts:
        with tempfile.TemporaryDirectory(prefix="bench-mirror-") as folder:
            found += list(measure[part](Path(folder), megabytes, rounds))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--megabytes", type=int, default=240)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--part", action="append", choices=PARTS)
    options = parser.parse_args()
    found = rows(options.megabytes, options.rounds, options.part or PARTS)
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    print(json.dumps({"benchmark": "mirror", "machine": machine, "rows": found}, indent=1))
    print(table(found), file=sys.stderr)


if __name__ == "__main__":
    main()
