"""Where runs lie when nobody says where."""

import os
from pathlib import Path


def default_storage() -> str:
    """`$RAYTRAIN_STORAGE`, else `$XDG_DATA_HOME/raytrain-eks/runs` (`~/.local/share/raytrain-eks/runs`).

    It depends on nothing else, so that a run keeps its identity whichever folder it is submitted from. A relative
    XDG_DATA_HOME is ignored, as its specification says.
    """
    if given := os.environ.get("RAYTRAIN_STORAGE"):
        return given
    home = os.environ.get("XDG_DATA_HOME", "")
    base = Path(home) if os.path.isabs(home) else Path.home() / ".local" / "share"
    return str(base / "raytrain-eks" / "runs")
