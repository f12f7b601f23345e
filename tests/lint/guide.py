"""The guide's manifests and programs, cut out of its prose, each line where it stands in the file.

A block of YAML begins with `apiVersion:` in the first column and ends with the first line that is neither indented, nor
a comment, nor empty, nor a key. Programs (the Slurm script, the Ray Train example) are taken as the config maps from
which they would be mounted.
"""

import json
import re

from raytrain_eks.spec.source import read_documents

_GOES_ON = re.compile(r"(\s|#|-|$)|[A-Za-z][A-Za-z0-9]*:( |$)")
_HEADING = re.compile(r"[A-ZÁÉÍÓÚ][\w ]+$")
_PROGRAMS = {"train.sbatch": "#!/bin/bash", "train.py": "# ray_train_example.py"}


def documents(path):
    """Every manifest of the guide, with the guide's own line numbers, and a config map with its programs."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found, index = [], 0
    while index < len(lines):
        start = index
        if lines[index].startswith("apiVersion:"):
            while index < len(lines) and _GOES_ON.match(lines[index]):
                index += 1
            found += read_documents("\n" * start + "\n".join(lines[start:index]), path.name)
        index += 1
    return [*found, _programs(lines)]


def _programs(lines):
    data = {}
    for name, first in _PROGRAMS.items():
        start = next(number for number, line in enumerate(lines) if line.startswith(first))
        end = next(number for number in range(start, len(lines)) if _HEADING.match(lines[number]))
        data[name] = "\n".join(lines[start:end])
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "programs"}, "data": data}
    return read_documents(json.dumps(manifest), "programs")[0]
