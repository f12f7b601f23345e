"""Our loop against a bare one: the quickstart's model and data, two workers, per-step metrics on.

    python benchmarks/loop.py

Steps per second of a run through Ray, over those of torchrun with plain DDP in the same minutes: the two alternate,
`ratio` is that of the means of all their steps (the first ten of each run are left out), `typical` that of the medians
and `quiet` that of the fastest tenth, which is what is left where others use the machine as well. And seconds from the
start of `submit` to the first step, split by phase, cold (no Ray on the machine) and warm, beside torchrun's.
"""

import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
STEPS, ROUNDS, WARMING = 60, 5, 10


class Bench:
    """A folder with a job, its prepared data, and a Ray of its own."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = os.environ | {"RAYTRAIN_STORAGE": str(folder / "runs"), "XDG_STATE_HOME": str(folder / "state")}
        self.text = (ROOT / "jobs" / "quickstart.yaml").read_text()

    def file(self, name: str) -> Path:
        """The quickstart, shorter, without evaluations and samples in between."""
        lines = self.text.replace("name: quickstart", f"name: {name}").splitlines()
        kept = [line for line in lines if not line.startswith(("evaluate", "checkpoint", "stop", "sample", "schedule"))]
        kept += ["evaluate: {sequences: 8}", f"checkpoint: {{every: {STEPS * 2}}}", f"stop: {{steps: {STEPS}}}"]
        path = self.folder / f"{name}.yaml"
        path.write_text("\n".join(kept) + "\n")
        return path

    def cli(self, *words: str) -> None:
        """A verb of the command line. Raises when it fails."""
        command = [sys.executable, "-m", "raytrain_eks", *words]
        done = subprocess.run(command, cwd=ROOT, env=self.env, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stdout[-2000:]}{done.stderr[-2000:]}")

    def ours(self, name: str) -> dict[str, Any]:
        """Submit and follow; phases in seconds from the start of `submit`, and `times`, when each step ended."""
        began = time.time()
        self.cli("submit", str(self.file(name)), "--on", "local", "--follow")
        run = self.folder / "runs" / name
        events = {row["event"]: row for row in map(json.loads, (run / "events.jsonl").read_text().splitlines())}
        steps = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        driver = events["worker"]["time"] - events["worker"]["seconds"]
        times = [step["time"] for step in steps]
        return {
            "driver": driver - began,
            "worker": events["worker"]["time"] - began,
            "ready": events["ready"]["time"] - began,
            "first_step": times[0] - began,
            "times": times,
        }

    def bare(self, rows: Path, config: dict[str, Any], batch: int) -> dict[str, Any]:
        """The same model and rows under torchrun."""
        words = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        words += [str(ROOT / "benchmarks" / "bare_ddp.py"), "--rows", str(rows), "--config", json.dumps(config)]
        words += ["--steps", str(STEPS), "--batch", str(batch)]
        env = self.env | {"BENCH_STARTED": str(time.time()), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [sys.executable, *words], env=env, capture_output=True, text=True, check=True, timeout=300
        )
        return json.loads(done.stdout.strip().splitlines()[-1])  # type: ignore[no-any-return]

    def rows(self, name: str) -> tuple[Path, dict[str, Any], int]:
        """The token rows that the job's first steps read, its model's config and its global batch."""
        import numpy as np

        from raytrain_eks.data.prepare import prepare
        from raytrain_eks.data.stream import Stream
        from raytrain_eks.spec.load import load

        job = load(self.file(name), expect="Job")
        prepared = prepare(job, str(self.folder / "runs"))
        stream = Stream.of(prepared, job, rank=0, world=1, micro=job.global_sequences, state=None)
        path = self.folder / "rows.npy"
        np.save(path, np.concatenate([stream.next().micro_batches[0]["input_ids"] for _ in range(STEPS)]))
        stream.close()
        return path, dict(job.model.config or {}) | {"vocab_size": prepared.vocab_size}, job.global_sequences


def durations(runs: Iterable[list[float]]) -> list[float]:
    """Seconds of every step of these runs but each one's first."""
    return [after - before for times in runs for before, after in itertools.pairwise(times[WARMING - 1 :])]


def quiet(steps: list[float]) -> float:
    """Mean seconds of the fastest tenth."""
    return statistics.mean(sorted(steps)[: max(len(steps) // 10, 1)])


def rows() -> list[dict[str, Any]]:
    """Rows for the table: each with the measured value, what it stands beside, their ratio and the target."""
    with tempfile.TemporaryDirectory(prefix="rt", dir="/tmp") as folder:
        bench = Bench(Path(folder))
        try:
            cold_all = bench.ours("cold")
            given = bench.rows("cold")
            pairs = [(bench.ours(f"warm-{index}"), bench.bare(*given)) for index in range(ROUNDS)]
        finally:
            bench.cli("local", "stop")
    ours, floor = (durations(side["times"] for side in sides) for sides in zip(*pairs, strict=True))
    warm = {key: statistics.median(ours[key] for ours, _ in pairs) for key in pairs[0][0] if key != "times"}
    bare_first = statistics.median(bare["first_step"] for _, bare in pairs)
    table = [
        {
            "benchmark": "loop",
            "row": "steps/s over bare torchrun DDP",
            "value": round(1 / statistics.mean(ours), 3),
            "beside": round(1 / statistics.mean(floor), 3),
            "unit": "steps/s",
            "ratio": round(statistics.mean(floor) / statistics.mean(ours), 3),
            "typical": round(statistics.median(floor) / statistics.median(ours), 3),
            "quiet": round(quiet(floor) / quiet(ours), 3),
            "target": ">= 0.97",
        }
    ]
    for name, found in (("cold, data prepared too", cold_all), ("warm", warm)):
        marks = ["driver", "worker", "ready", "first_step"]
        for before, mark in zip([None, *marks], marks, strict=False):
            value = found[mark] - (found[before] if before else 0.0)
            table.append({"benchmark": "start", "row": f"{name}: {mark}", "value": round(value, 2), "unit": "s"})
        total = {"value": round(found["first_step"], 2), "beside": round(bare_first, 2), "unit": "s"}
        ratio = round(found["first_step"] / bare_first, 2)
        target = "<= 25 s" if name == "warm" else None
        table.append(
            {"benchmark": "start", "row": f"{name}: submit to first step", **total, "ratio": ratio, "target": target}
        )
    return table


if __name__ == "__main__":
    print(json.dumps(rows(), indent=1))
