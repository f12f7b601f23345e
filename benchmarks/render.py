"""How long rendering takes: an example as a person calls it, and a cluster of 200 groups in one process.

    python benchmarks/render.py [--codeflare PYTHON] [--runs N]

Prints one JSON document, then one row of a Markdown table on stderr. `--codeflare` names the interpreter of a virtual
environment with codeflare-sdk, whose import alone is measured beside it, since nothing can be rendered before it.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "cluster_specs" / "gpu-a100.yaml"
GROUPS = 200
ACCELERATED = ("p4d.24xlarge", "p5.48xlarge", "p6-b200.48xlarge", "trn1.32xlarge", "g6e.12xlarge")


def large_cluster(groups: int) -> str:
    """A cluster file with so many groups of different types, storage and a queue."""
    head = EXAMPLE.read_text(encoding="utf-8").partition("workers:")
    tail = head[2][head[2].index("\nstorage:") :]
    workers = "".join(
        f"  - {{name: group-{number:03d}, instance: {ACCELERATED[number % len(ACCELERATED)]},"
        f" nodes: {{min: 0, max: {number + 1}}}}}\n"
        for number in range(groups)
    )
    return f"{head[0]}workers:\n{workers}{tail}"


def wall(command: list[str], runs: int) -> list[float]:
    """Seconds of so many runs of a command, the interpreter's start included; the first, cold one is left out."""
    taken = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        taken.append(time.perf_counter() - start)
    return taken[1:]


def rows(runs: int = 5) -> list[dict[str, object]]:
    """Seconds of rendering an example and a cluster of many groups, the interpreter's start included."""
    verb = [sys.executable, "-m", "raytrain_eks", "render"]
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.yaml"
        large.write_text(large_cluster(GROUPS), encoding="utf-8")
        cases = {"example": (EXAMPLE, "< 0.5 s"), f"{GROUPS} groups": (large, "< 2 s")}
        return [
            {"row": name, "wall": round(statistics.median(wall([*verb, str(file)], runs)), 3), "target": target}
            for name, (file, target) in cases.items()
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--codeflare", help="a Python that can import codeflare_sdk")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    verb = [sys.executable, "-m", "raytrain_eks", "render"]
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.yaml"
        large.write_text(large_cluster(GROUPS), encoding="utf-8")
        measured = {
            "start": wall([sys.executable, "-c", "pass"], options.runs),
            "example": wall([*verb, str(EXAMPLE)], options.runs),
            f"groups-{GROUPS}": wall([*verb, str(large)], options.runs),
        }
    if options.codeflare:
        measured["codeflare-import"] = wall([options.codeflare, "-c", "import codeflare_sdk"], options.runs)
    seconds = {name: round(statistics.median(taken), 3) for name, taken in measured.items()}
    spread = {name: [round(min(taken), 3), round(max(taken), 3)] for name, taken in measured.items()}
    machine = f"{platform.machine()}, {os.cpu_count()} CPUs, Python {platform.python_version()}"
    result = {"benchmark": "render", "machine": machine, "runs": options.runs, "seconds": seconds, "min_max": spread}
    print(json.dumps(result, indent=2))
    cells = " | ".join(f"{name} {value:.2f} s" for name, value in seconds.items())
    print(f"| render | {cells} | {machine} |", file=sys.stderr)


if __name__ == "__main__":
    main()
