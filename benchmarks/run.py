"""`make bench`: every benchmark of this folder one after the other, one table, and JSON in `benchmarks/results/`.

    python benchmarks/run.py [NAME ...]

Each module has `rows() -> list[dict]`. A speed is a ratio against a peer or a floor that the same run measured; the
machine, its load and the versions stand beside the numbers.
"""

import argparse
import importlib
import json
import os
import platform
import sys
import time
import traceback
from importlib import metadata
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
NAMES = ("startup", "kube_client", "render", "loop", "engines", "checkpoint", "mirror", "data", "packing", "sweep")
LABELS = ("row", "what", "name", "case", "stream")
HIDDEN = {"benchmark", "target", *LABELS}


def machine() -> dict[str, Any]:
    """What the numbers were measured on."""
    versions = {}
    for package in ("raytrain-eks", "torch", "ray", "deepspeed", "transformers", "pyarrow"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def line(name: str, row: dict[str, Any]) -> str:
    """One row of the table: benchmark, what, the numbers, the target."""
    label = next((str(row[key]) for key in LABELS if row.get(key) is not None), "")
    numbers = ", ".join(f"{key} {value}" for key, value in row.items() if key not in HIDDEN and value is not None)
    return f"| {row.get('benchmark', name)} | {label} | {numbers} | {row.get('target') or ''} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("names", nargs="*", help=f"which ones: {', '.join(NAMES)}; all of them by default")
    names = parser.parse_args().names or [name for name in NAMES if (FOLDER / f"{name}.py").exists()]
    sys.path.insert(0, str(FOLDER))
    found: dict[str, Any] = {"machine": machine()}
    failed = []
    print("| benchmark | what | measured | target |\n|---|---|---|---|", flush=True)
    for name in names:
        try:
            found[name] = importlib.import_module(name).rows()
        except Exception:
            traceback.print_exc()
            failed.append(name)
            continue
        for row in found[name]:
            print(line(name, row), flush=True)
    results = FOLDER / "results"
    results.mkdir(exist_ok=True)
    path = results / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written to {path}" + (f"; failed: {', '.join(failed)}" if failed else ""), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
