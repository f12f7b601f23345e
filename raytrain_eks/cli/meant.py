"""What a person meant by the name of a file that is not there."""

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

FOLDERS = ("jobs", "cluster_specs")
"""Where a project has its files; their names are often given without."""
NO_FOLDER = "the current folder is gone: change to another one"
_PATH_MAX = 4096
MOST = 2000
"""Names that are looked at in a folder."""


def meant(name: str) -> str:
    """A file near by whose name is like `name`, as a question; else where it was looked for."""
    from raytrain_eks.spec.problem import nearest, shown

    folder = Path(name).parent
    found = list(_files(folder, *(folder / each for each in FOLDERS)))
    # By stems, since every file here ends alike; of two with the same one the nearer folder's.
    candidates = {path.stem: path for path in reversed(found)}
    if (guess := nearest(Path(name).stem, candidates)) is not None:
        return f"did you mean `{shown(str(candidates[guess]), most=_PATH_MAX)}`?"
    if not folder.is_absolute() and not in_a_folder():
        return NO_FOLDER
    there = shown(str(folder.absolute()), most=_PATH_MAX)
    try:
        exists = folder.is_dir()
    except (OSError, ValueError):
        exists = False
    return f"it was looked for in {there}" if exists else f"there is no folder {there}"


def in_a_folder() -> bool:
    """Whether the current folder still exists."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True


def _files(*folders: Path) -> Iterator[Path]:
    for folder in folders:
        try:
            yield from (path for path in islice(folder.iterdir(), MOST) if path.is_file())
        except (OSError, ValueError):
            continue
