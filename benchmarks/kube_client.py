"""What a Kubernetes client costs before its first request: import time, and size on disk, of the two candidates.

    python benchmarks/kube_client.py [--official PYTHON] [--runs N]

Prints one JSON document on stdout and a Markdown table on stderr. lightkube is what `raytrain_eks.kube` stands on. The
official client is measured where this environment has it, or in the environment that `--official` (or
KUBERNETES_PYTHON) names: its releases from 37 on ask for python-dateutil 3, which botocore, and so the extra `train`,
does not take. Where it is nowhere, its row is left out.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
from startup import once

OFFICIAL = "KUBERNETES_PYTHON"
RUNS = 7
OURS = "from raytrain_eks.kube.transport import Transport"
CANDIDATES = {
    "python -c pass": ("", "pass"),
    "lightkube (HTTP, credentials)": ("lightkube", "import lightkube.config.client_adapter"),
    "lightkube (models of core/v1)": ("lightkube", "import lightkube; from lightkube.resources import core_v1"),
    "raytrain_eks.kube (on lightkube)": ("lightkube", OURS),
    "kubernetes (dynamic client)": ("kubernetes", "import kubernetes.config, kubernetes.dynamic"),
}
"""Name -> the package, and the imports that a first request needs."""
_SIZE = """
import importlib.metadata as m
names = {"lightkube": ("lightkube", "lightkube-models"), "kubernetes": ("kubernetes",)}["%s"]
print(sum(f.size or 0 for name in names for f in m.files(name) or ()), m.version(names[0]))
"""


def _has(python: str, package: str) -> bool:
    found = subprocess.run([python, "-c", f"import {package}"], capture_output=True, check=False)
    return found.returncode == 0


def _python_for(package: str, official: str | None) -> str | None:
    """The interpreter that has a package; None when none has."""
    candidates = [sys.executable] if package != "kubernetes" else [sys.executable, *([official] if official else [])]
    return next((each for each in candidates if not package or _has(each, package)), None)


def rows(runs: int = RUNS, official: str | None = None) -> list[dict[str, Any]]:
    """One row for each candidate: `what`, `version`, `megabytes` on disk, `wall` and `cpu` in seconds (medians of so
    many runs after a first one), and `over_start`, CPU seconds beyond those of the interpreter's own start.

    Candidates take turns, so that a busy moment of the machine falls on all of them alike.
    """
    official = official or os.environ.get(OFFICIAL)
    pythons = {what: _python_for(package, official) for what, (package, _) in CANDIDATES.items()}
    commands = {what: [python, "-c", CANDIDATES[what][1]] for what, python in pythons.items() if python is not None}
    taken: dict[str, list[tuple[float, float]]] = {what: [] for what in commands}
    for turn in range(runs + 1):
        for what, command in commands.items():
            measured = once(command)
            if turn:
                taken[what].append(measured)
    start = statistics.median(cpu for _, cpu in taken["python -c pass"])
    return [_row(what, commands[what][0], times, start) for what, times in taken.items()]


def _row(what: str, python: str, times: list[tuple[float, float]], start: float) -> dict[str, Any]:
    package = CANDIDATES[what][0]
    row: dict[str, Any] = {"what": what}
    if package:
        shown = subprocess.run([python, "-c", _SIZE % package], capture_output=True, text=True, check=True).stdout
        size, version = shown.split()
        row |= {"version": version, "megabytes": round(int(size) / 1e6, 1)}
    cpu = statistics.median(cpu for _, cpu in times)
    wall = statistics.median(wall for wall, _ in times)
    return row | {"wall": round(wall, 3), "cpu": round(cpu, 3), "over_start": round(cpu - start, 3), "runs": len(times)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--official", metavar="PYTHON", help="a Python that has the official client")
    parser.add_argument("--runs", type=int, default=RUNS)
    options = parser.parse_args()
    found = rows(options.runs, options.official)
    machine = {"python": platform.python_version(), "cpus": os.cpu_count(), "load": os.getloadavg()[0]}
    print(json.dumps({"kube_client": found, "machine": machine}, indent=2))
    print("| import | version | MB | wall s | CPU s | beyond start |\n|---|---|---|---|---|---|", file=sys.stderr)
    for row in found:
        cells = [row.get(key, "") for key in ("what", "version", "megabytes", "wall", "cpu", "over_start")]
        print(f"| {' | '.join(map(str, cells))} |", file=sys.stderr)


if __name__ == "__main__":
    main()
