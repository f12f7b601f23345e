"""How long the command line takes to answer, as a person calls it: wall and CPU time of light verbs.

    python benchmarks/startup.py [--runs N]

Prints one JSON document on stdout and a Markdown table on stderr. A row is the median of so many runs, after one that
warms the disk cache; the interpreter's own start, and the imports of pydantic and of torch, stand beside for scale.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
VERB = [sys.executable, "-m", "raytrain_eks"]
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import pydantic": [sys.executable, "-c", "from pydantic import BaseModel"],
    "--help": [*VERB, "--help"],
    "validate job": [*VERB, "validate", "jobs/quickstart.yaml"],
    "validate cluster": [*VERB, "validate", "cluster_specs/gpu-a100.yaml"],
    "render cluster": [*VERB, "render", "cluster_specs/gpu-a100.yaml"],
    "explain field": [*VERB, "explain", "job.data"],
    "import torch": [sys.executable, "-c", "import torch"],
}
RUNS = 7


def once(command: list[str]) -> tuple[float, float]:
    """Wall seconds and CPU seconds (user and system, children included) of one run. Raises when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def rows(runs: int = RUNS) -> list[dict[str, Any]]:
    """One row for each command: `what`, `wall` and `cpu` in seconds (medians), `fastest` wall, `runs`.

    Commands take turns, so that a busy moment of the machine falls on all of them alike.
    """
    taken: dict[str, list[tuple[float, float]]] = {what: [] for what in COMMANDS}
    for turn in range(runs + 1):
        for what, command in COMMANDS.items():
            measured = once(command)
            if turn:
                taken[what].append(measured)
    return [
        {
            "what": what,
            "wall": round(statistics.median(wall for wall, _ in times), 3),
            "cpu": round(statistics.median(cpu for _, cpu in times), 3),
            "fastest": round(min(wall for wall, _ in times), 3),
            "runs": runs,
        }
        for what, times in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--runs", type=int, default=RUNS)
    found = rows(parser.parse_args().runs)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    print(json.dumps({"startup": found, "machine": machine}, indent=2))
    print("| command | wall s | CPU s | fastest s |\n|---|---|---|---|", file=sys.stderr)
    for row in found:
        print(f"| {row['what']} | {row['wall']:.3f} | {row['cpu']:.3f} | {row['fastest']:.3f} |", file=sys.stderr)


if __name__ == "__main__":
    main()
