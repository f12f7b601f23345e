"""Resolve the pip pins of each container file in a clean environment, without installing anything.

    python cluster_specs/images/resolve.py [gpu|hub]...

Needs a package index. Neuron's own packages come from AWS's index and are not resolved here.
"""

import json
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pins import requirements

HERE = Path(__file__).parent
IMAGES = ("gpu", "hub")
LIMIT_S = 1800


def wanted(image: str) -> list[str]:
    """The words that the container file gives to pins.py."""
    return re.search(r"python \S*pins\.py ([\w/ ]+) >", (HERE / f"{image}.Dockerfile").read_text())[1].split()


def resolve(image: str) -> list[str]:
    """`name==version` of everything that pip would install. Raises CalledProcessError."""
    project = tomllib.loads((HERE.parent.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        report = Path(folder) / "report.json"
        command = [f"{folder}/bin/python", "-m", "pip", "install", "--dry-run", "--quiet", f"--report={report}"]
        subprocess.run([*command, *requirements(project, wanted(image))], check=True, timeout=LIMIT_S)
        found = json.loads(report.read_text())["install"]
    return sorted(f"{each['metadata']['name']}=={each['metadata']['version']}" for each in found)


if __name__ == "__main__":
    for image in sys.argv[1:] or IMAGES:
        found = resolve(image)
        print(f"{image}: {len(found)} packages")
        print("  " + " ".join(found))
