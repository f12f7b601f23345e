"""What the benchmarks of checkpoints share: ways that take turns, their times, and a state to be saved."""

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[[], Any]


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


def state(megabytes: int) -> dict[str, Any]:
    """fp32 tensors of 10 MB each, of random numbers."""
    import torch

    generator = torch.Generator().manual_seed(0)
    return {f"layer{number}": torch.randn(2500, 1000, generator=generator) for number in range(megabytes // 10)}


def opened_run(folder: Path) -> Any:
    """A new run folder with a first attempt."""
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.spec.load import load

    run = RunFolder(folder, "bench")
    return run, run.claim(load(ROOT / "jobs" / "quickstart.yaml"))


def table(found: list[dict[str, Any]]) -> str:
    """For people."""
    lines = []
    for each in found:
        facts = ", ".join(f"{key} {value}" for key, value in each.items() if key != "what" and value is not None)
        lines.append(f"{each['what']:44}  {facts}")
    return "\n".join(lines)
