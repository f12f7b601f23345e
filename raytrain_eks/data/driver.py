"""Preparing as a program of its own: `python jobs/prepare.py JOB.yaml` on a cluster, `raytrain-eks prepare` here.

The result lies beside the run folders and is found by every job that reads the same. Killed at any moment, it goes on
with the shards that are missing. Exit codes: 0 done, 1 not prepared (with `--check`), 3 the file or the data cannot be
used.
"""

import argparse
import json
import os
import sys

from raytrain_eks.checkpoint.default import default_storage
from raytrain_eks.data.prepare import Say, find, prepare
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import SpecError


def place_of(job: Job, storage: str | None) -> str:
    """Where run folders and prepared data of a job lie."""
    return storage or job.storage or default_storage()


def run(job: Job, storage: str, *, say: Say) -> Prepared:
    """Prepare all data of a job, also where it says that its runs pack while they train. Raises as `prepare`."""
    # A Ray that this process starts for itself listens on loopback alone and is gone with it.
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    return prepare(job.model_copy(update={"data": job.data.model_copy(update={"prepare": True})}), storage, say=say)


def main(arguments: list[str] | None = None) -> int:
    """Prepare what a job file reads; the summary as JSON on stdout. The exit code."""
    parser = argparse.ArgumentParser(prog="prepare.py", description="Tokenise and pack what a job file reads.")
    parser.add_argument("job", help="the job file")
    parser.add_argument("--storage", help="folder or s3:// URL that holds run folders; overrides the file's")
    parser.add_argument("--check", action="store_true", help="only say whether it is prepared and up to date")
    given = parser.parse_args(arguments)
    try:
        job = load(given.job, expect="Job")
        storage = place_of(job, given.storage)
        if given.check:
            found = find(job, storage)
            print(found.url if found else "not prepared, or prepared from other files", flush=True)
            return 0 if found else 1
        prepared = run(job, storage, say=lambda text: print(text, file=sys.stderr, flush=True))
    except SpecError as error:
        print(error, file=sys.stderr, flush=True)
        return 3
    except OSError as error:
        place = f"{os.fspath(error.filename)}: " if error.filename is not None else ""
        print(f"{place}{error.strerror or error}", file=sys.stderr, flush=True)
        return 3
    print(json.dumps({"url": prepared.url} | prepared.summary(), indent=2), flush=True)
    return 0
