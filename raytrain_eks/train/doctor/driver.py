"""The driver of the check of workers, inside a Ray job: `python jobs/doctor.py`.

Talk and findings go to stdout, since a job has one log: each finding is one line that begins with `MARK` and goes on as
JSON, for whoever submitted it; `--plain` writes it for people. Exit codes: 0 no finding is red, 1 it failed itself, 3
something is red.
"""

import argparse
import json
import secrets
from collections.abc import Iterator

from raytrain_eks.spec.diagnosis import Diagnosis, Level, summary

MARK = "raytrain-doctor: "
END = "raytrain-doctor-end"
"""The last line of a whole report, but of a plain one."""


def main(arguments: list[str] | None = None) -> int:
    """Check all nodes of the cluster, and the network among them; the exit code."""
    parser = argparse.ArgumentParser(prog="doctor.py", description="Check every node of the Ray cluster here.")
    parser.add_argument("settings", nargs="?", help="passed over; a job of this package always has a file")
    parser.add_argument("--plain", action="store_true", help="write findings for people")
    parser.add_argument("--storage", help="folder or s3:// URL of run folders; default: each node's own")
    parser.add_argument("--no-fabric", action="store_true", help="do not measure an all-reduce")
    given = parser.parse_args(arguments)
    found = []
    for each in examine(given.storage, fabric=not given.no_fabric):
        found.append(each)
        print(each if given.plain else MARK + json.dumps(each.as_data()), flush=True)
    print(summary(found) if given.plain else END, flush=True)
    return 3 if any(each.level is Level.RED for each in found) else 0


def examine(storage: str | None, *, fabric: bool) -> Iterator[Diagnosis]:
    """Findings as they come."""
    from raytrain_eks.train.doctor import collective, nodes
    from raytrain_eks.train.driver import connect, say

    connect()
    yield from nodes.examine(storage, f"check-{secrets.token_hex(4)}", say)
    if fabric:
        yield from collective.examine(say)


def finding(line: str) -> Diagnosis | None:
    """The finding that a line of the log carries; None for other lines, and for one that was cut."""
    if not line.startswith(MARK):
        return None
    try:
        return Diagnosis.of_data(json.loads(line.removeprefix(MARK)))
    except (ValueError, KeyError, TypeError):
        return None
