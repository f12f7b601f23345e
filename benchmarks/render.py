"""How long rendering takes: an example as a person calls it, and a cluster of 200 groups in one process.

    python benchmarks/render.py [--codeflare PYTHON] [--runs N]

Prints one JSON document. `--codeflare` names the interpreter of a virtual environment with codeflare-sdk (`make bench`
makes one, `.venv-codeflare`), whose import alone is measured beside rendering, since nothing can be rendered before it.
Where it is not installed the example stands beside nothing.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "cluster_specs" / "gpu-a100.yaml"
CODEFLARE = ROOT / ".venv-codeflare" / "bin" / "python"
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


def has_codeflare(python: str) -> bool:
    """Whether this interpreter is there and imports codeflare-sdk."""
    try:
        return subprocess.run([python, "-c", "import codeflare_sdk"], capture_output=True).returncode == 0
    except OSError:
        return False


def rows(runs: int = 5, codeflare: str = str(CODEFLARE)) -> list[dict[str, object]]:
    """Seconds of rendering an example and a cluster of many groups, the interpreter's start included: medians of so
    many runs. `beside` is the import of codeflare-sdk, `ratio` rendering over it."""
    verb = [sys.executable, "-m", "raytrain_eks", "render"]
    beside = statistics.median(wall([codeflare, "-c", "import codeflare_sdk"], runs)) if has_codeflare(codeflare) else 0
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder) / "large.yaml"
        large.write_text(large_cluster(GROUPS), encoding="utf-8")
        cases = {"example": (EXAMPLE, "< 0.5 s"), f"{GROUPS} groups": (large, "< 2 s")}
        table: list[dict[str, object]] = []
        for name, (file, target) in cases.items():
            taken = statistics.median(wall([*verb, str(file)], runs))
            row: dict[str, object] = {"row": name, "wall": round(taken, 3)}
            if beside and file == EXAMPLE:
                row |= {"beside codeflare-sdk's import": round(beside, 3), "ratio": round(taken / beside, 3)}
            table.append(row | {"unit": "s", "target": target})
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--codeflare", default=str(CODEFLARE), help="a Python that can import codeflare_sdk")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    print(json.dumps(rows(options.runs, options.codeflare), indent=2))


if __name__ == "__main__":
    main()
