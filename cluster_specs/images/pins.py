"""The requirements of some extras of pyproject.toml, one a line, for an image: so its pins are the project's own.

    python pins.py train kube          # the core, and two extras
    python pins.py kube train/ray      # of `train` only ray

Needs Python 3.11 and nothing else.
"""

import re
import sys
import tomllib
from pathlib import Path

# Beside this file in an image's build, two folders above it in a checkout.
PLACES = (Path(__file__).parent / "pyproject.toml", Path(__file__).parent.parent.parent / "pyproject.toml")


def requirements(project: dict, wanted: list[str]) -> list[str]:
    """The core's requirements and those of the extras. Raises KeyError for an extra or package that there is not."""
    extras, found = project["optional-dependencies"], list(project["dependencies"])
    for word in wanted:
        extra, _, package = word.partition("/")
        named = {re.match(r"[\w.-]+", text)[0]: text for text in extras[extra]}
        found += [named[package]] if package else extras[extra]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    path = next(place for place in PLACES if place.is_file())
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    print("\n".join(requirements(project, sys.argv[1:])))
