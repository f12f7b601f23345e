"""How many tokens a second reach a training loop: prepared and on the fly, beside what people use otherwise.

    python benchmarks/data.py [--rounds N] [--way prepared --way torch ...]

Every way reads the standard library's source with the same tokenizer and gives batches of 8 packed rows of 1,024 tokens
to one reader, for one pass over the data. Ways take turns, each in a process of its own. `first` is the time to the
first batch, the start of Ray (`ray.init`) left out. Prints a table on stderr and one JSON document on stdout.
"""

import argparse
import importlib.util
import json
import logging
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROWS, LENGTH = 8, 1024
JOB = {
    "name": "bench-data",
    "model": {"config": {"model_type": "llama", "max_position_embeddings": LENGTH}},
    "tokenizer": {"train": {"vocab_size": 8192}},
    "batch": {"sequences": ROWS},
    "optimizer": {"learning_rate": 1e-3},
    "stop": {"steps": 1},
}
ABOUT = {
    "prepared": "our stream, prepared",
    "onthefly": "our stream, packed on the fly by Ray tasks",
    "torch": "torch DataLoader, 2 workers, tokenise and chunk",
    "raydata": "bare iter_torch_batches, tokenise and chunk",
    "mosaic": "MosaicML Streaming, prepared",
}


def job_of(prepare: bool) -> Any:
    """The job whose data is read."""
    from raytrain_eks.spec.job import Job

    data = {"train": "python-stdlib:", "files": "**/*.py", "sequence_length": LENGTH, "held_out": "0%"}
    return Job.parse(JOB | {"data": data | {"prepare": prepare}})


def connect() -> None:
    """A Ray of two CPUs in this process."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)


def ours(store: Path, *, prepared: bool) -> Iterator[int]:
    """Tokens of each batch of our stream."""
    from raytrain_eks.data.prepare import prepare
    from raytrain_eks.data.stream import Stream

    job = job_of(prepared)
    data = prepare(job, store / ("prepared" if prepared else "onthefly"))
    stream = Stream.of(data, job, rank=0, world=1, micro=ROWS, state=None)
    while (step := stream.next()).epoch == 0:
        yield int((step.micro_batches[0]["segment_ids"] > 0).sum())
    stream.close()


class Chunks:
    """Tokenises files and cuts the run of their tokens into rows, as scripts do."""

    def __init__(self, folder: str):
        from raytrain_eks.data import tokenizer

        self.tokenizer, self.end = tokenizer.load(folder), tokenizer.special(folder)[0]

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        import numpy as np

        ids: list[int] = []
        for path in batch["path"]:
            ids += self.tokenizer.encode(Path(str(path)).read_text("utf-8")).ids
            ids.append(self.end)
        rows = len(ids) // LENGTH
        return {"input_ids": np.array(ids[: rows * LENGTH], dtype=np.int64).reshape(rows, LENGTH)}


def paths() -> list[str]:
    """The files that all ways read."""
    from raytrain_eks.data.sources import list_files

    return [file.url for file in list_files("python-stdlib:", pattern="**/*.py", format="text", where="data.train")]


def tokenizer_folder(store: Path) -> str:
    """The tokenizer of the prepared data."""
    return str(next((store / "prepared").rglob("tokenizer")))


def torch_loader(store: Path) -> Iterator[int]:
    """Tokens of each batch of a DataLoader with two workers."""
    import torch

    files, folder = paths(), tokenizer_folder(store)

    class Rows(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[Any]:
            worker = torch.utils.data.get_worker_info()
            chunks, mine = Chunks(folder), files[worker.id :: worker.num_workers]
            for start in range(0, len(mine), 16):
                yield from chunks({"path": mine[start : start + 16]})["input_ids"]

    for batch in torch.utils.data.DataLoader(Rows(), batch_size=ROWS, num_workers=2):
        yield batch.numel()


def ray_loader(store: Path) -> Iterator[int]:
    """Tokens of each batch of a Ray Data pipeline with two actors."""
    import ray

    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    pool = ray.data.ActorPoolStrategy(size=2)
    dataset = ray.data.from_items([{"path": path} for path in paths()], override_num_blocks=50)
    packed = dataset.map_batches(Chunks, fn_constructor_args=(tokenizer_folder(store),), batch_size=16, compute=pool)
    for batch in packed.iter_torch_batches(batch_size=ROWS):
        yield batch["input_ids"].numel()


def mosaic_loader(store: Path) -> Iterator[int]:
    """Tokens of each batch of a StreamingDataset over the same packed rows, written beforehand."""
    import numpy as np
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    dataset = StreamingDataset(local=str(store / "mosaic"), shuffle=True, batch_size=ROWS)
    for batch in DataLoader(dataset, batch_size=ROWS, num_workers=2):
        yield int(np.prod(batch["input_ids"].shape))


def write_mosaic(store: Path) -> None:
    """The prepared rows as MosaicML's shards."""
    from streaming import MDSWriter

    from raytrain_eks.data.prepare import prepare

    data = prepare(job_of(True), store / "prepared")
    with MDSWriter(out=str(store / "mosaic"), columns={"input_ids": f"ndarray:int64:{LENGTH}"}) as writer:
        for unit in range(len(data.train.rows)):
            for row in data.read(unit).tokens:
                writer.write({"input_ids": row.astype("int64")})


WAYS: dict[str, Callable[[Path], Iterator[int]]] = {
    "prepared": lambda store: ours(store, prepared=True),
    "onthefly": lambda store: ours(store, prepared=False),
    "torch": torch_loader,
    "raydata": ray_loader,
    "mosaic": mosaic_loader,
}


def once(way: str, store: Path) -> dict[str, float]:
    """One pass of one way, in this process: tokens, seconds, seconds to the first batch."""
    if way in ("onthefly", "raydata"):
        connect()
    began = time.perf_counter()
    first, tokens = None, 0
    for count in WAYS[way](store):
        first = first or time.perf_counter() - began
        tokens += count
    return {"tokens": tokens, "seconds": time.perf_counter() - began, "first": first or 0.0}


def rows(rounds: int = 3, ways: Iterable[str] = tuple(WAYS)) -> list[dict[str, Any]]:
    """One row for each way: `what`, median `tokens_per_s`, its least and most, `first` batch in seconds, and `ratio` to
    the torch DataLoader. A way that is not installed has a row that says so."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    missing = {"mosaic"} - ({"mosaic"} if importlib.util.find_spec("streaming") else set())
    with tempfile.TemporaryDirectory(prefix="bench-data-") as folder:
        store = Path(folder)
        setup(store, found.keys() - missing)
        for _ in range(rounds):
            for way in found.keys() - missing:
                command = [sys.executable, __file__, "--once", way, "--store", folder]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                found[way].append(json.loads(done.stdout.splitlines()[-1]))
    speeds = {way: [each["tokens"] / each["seconds"] for each in runs] for way, runs in found.items()}
    base = statistics.median(speeds["torch"]) if speeds.get("torch") else None
    table = []
    for way, runs in found.items():
        if not runs:
            table.append({"benchmark": "data", "what": ABOUT[way], "note": "not installed here, not measured"})
            continue
        median = statistics.median(speeds[way])
        table.append(
            {
                "benchmark": "data",
                "what": ABOUT[way],
                "tokens_per_s": round(median),
                "min_max": [round(min(speeds[way])), round(max(speeds[way]))],
                "first": round(statistics.median(each["first"] for each in runs), 2),
                "ratio": round(median / base, 2) if base else None,
            }
        )
    return table


def setup(store: Path, ways: Iterable[str]) -> None:
    """What is made before anything is measured: the prepared rows and the tokenizers."""
    from raytrain_eks.data import execution
    from raytrain_eks.data.prepare import prepare

    for prepared in (True, False):
        prepare(job_of(prepared), store / ("prepared" if prepared else "onthefly"), execute=execution.here)
    if "mosaic" in ways:
        write_mosaic(store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", action="append", choices=list(WAYS))
    parser.add_argument("--once", help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.once:
        print(json.dumps(once(options.once, options.store)), flush=True)
        return
    found = rows(options.rounds, options.way or tuple(WAYS))
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    for each in found:
        facts = ", ".join(f"{key} {value}" for key, value in each.items() if key not in ("benchmark", "what"))
        print(f"{each['what']:50} {facts}", file=sys.stderr)
    print(json.dumps({"benchmark": "data", "machine": machine, "rounds": options.rounds, "rows": found}, indent=2))


if __name__ == "__main__":
    main()
