"""Where each run was last submitted to from this machine, so that `status quickstart` needs no address.

One small file per run name in the state folder. It holds no secret: no token, no header.
"""

import json
import os
from dataclasses import MISSING, asdict, dataclass, field, fields
from pathlib import Path

from raytrain_eks.submit import places


@dataclass(frozen=True, kw_only=True)
class Record:
    """The last submission of a run."""

    run: str
    on: str
    """What `--on` said."""
    id: str
    """The job's id there."""
    storage: str | None
    """Folder or URL of run folders as the driver was told; None: it was the job file's or the cluster's own."""
    folder: str
    """Where the person was: relative paths of the job file start there."""
    working_dir: str
    access: dict[str, str] = field(default_factory=dict)
    """What the target needs beside its name to be reached again, such as context and namespace."""


_KNOWN = {each.name for each in fields(Record)}
_NEEDED = {each.name for each in fields(Record) if each.default_factory is MISSING}


def _file(run: str) -> Path:
    return places.private(places.state() / "runs") / f"{run}.json"


def remember(record: Record) -> None:
    """Replace what is known of the run."""
    places.write_private(_file(record.run), json.dumps(asdict(record), indent=2))


def recall(run: str) -> Record | None:
    """The last submission of the run; None when it was not submitted from here."""
    if not run or os.sep in run or run.startswith("."):
        return None
    found = places.read_json(_file(run))
    if found is None or not _NEEDED <= found.keys() <= _KNOWN:
        return None
    return Record(**found)
