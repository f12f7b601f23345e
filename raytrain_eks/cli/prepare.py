"""`raytrain-eks prepare`: tokenise and pack a job's data before any run needs it."""

from pathlib import Path
from typing import Any

import click

from raytrain_eks.cli import output as out
from raytrain_eks.cli.outcome import Outcome
from raytrain_eks.cli.target_options import say


@click.command(
    help="Tokenise and pack the data of a job FILE once, for all runs that read the same. It runs on this machine, or "
    "on the Ray cluster of $RAY_ADDRESS; on any cluster: ray job submit -- python jobs/prepare.py FILE. Killed, it "
    "goes on where it was."
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--storage", metavar="PLACE", help="Folder or s3:// URL of run folders; overrides the file's.")
@click.option("--check", is_flag=True, help="Only say whether it is prepared and up to date; exit code 1 if not.")
@out.option()
def command(file: Path, storage: str | None, check: bool, output: str) -> int:
    from raytrain_eks.data.driver import place_of, run
    from raytrain_eks.data.prepare import find
    from raytrain_eks.spec.load import load

    job = load(file, expect="Job")
    place = place_of(job, storage)
    if check:
        found = find(job, place)
        if found is None:
            say(f"not prepared in {place}, or prepared from other files: raytrain-eks prepare {file}")
            return Outcome.FAILED
    else:
        found = run(job, place, say=say)
    facts: dict[str, Any] = {"url": found.url} | found.summary()
    out.write(output, facts, table=lambda: out.pairs(_flat(facts)))
    return Outcome.DONE


def _flat(facts: dict[str, Any]) -> dict[str, object]:
    """One line for each fact: the counts of a split in one."""
    flat: dict[str, object] = {}
    for name, value in facts.items():
        if isinstance(value, dict):
            flat[name] = ", ".join(f"{count:,} {what}" for what, count in value.items() if count)
        elif isinstance(value, list):
            flat[name] = "; ".join(map(str, value)) or None
        else:
            flat[name] = f"{value:,}" if isinstance(value, int) else value
    return flat
