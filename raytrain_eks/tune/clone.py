"""A trial takes over the checkpoint of another one: copied file by file, and its own from then on.

The donor's must be whole and held (`being_read`) until this returns. What a crash leaves of a copy is made again; a
copy that was made is never made twice, since the trial may have gone on from it.
"""

import json
from dataclasses import replace
from typing import Any

from raytrain_eks.checkpoint.manifest import MANIFEST, Damaged, Manifest, committed, step_folder, steps
from raytrain_eks.checkpoint.retention import delete
from raytrain_eks.checkpoint.run import RunFolder

LINEAGE = "lineage.json"
"""In the trial's run folder: from whom it went on, in order."""
PIECE = 16 * 2**20
"""Bytes that are copied at a time."""


def lineage(run: RunFolder) -> list[dict[str, Any]]:
    """From whose checkpoints a trial went on: `{"donor": .., "step": ..}` each."""
    try:
        found = json.loads(run.storage.read(LINEAGE))
    except FileNotFoundError:
        return []
    return list(found)


def take_over(run: RunFolder, donor: RunFolder, step: int, number: int) -> bool:
    """Make the donor's checkpoint of `step` the only one of `run`; False when this, the `number`th clone of the trial
    (from 1), was made before. Raises Damaged when the donor has no such checkpoint."""
    known = lineage(run)
    if len(known) >= number:
        return False
    manifest = next((each for each in committed(donor) if each.step == step), None)
    if manifest is None:
        raise Damaged(f"{donor.name} has no whole checkpoint of step {step} to go on from")
    for own in steps(run):
        delete(run, own)
    _copy(run, donor, manifest)
    known.append({"donor": donor.name, "step": step})
    run.storage.write(LINEAGE, json.dumps(known, indent=1).encode())
    return True


def _copy(run: RunFolder, donor: RunFolder, manifest: Manifest) -> None:
    folder = step_folder(manifest.step)
    for stored in manifest.files:
        source = donor.storage.open(f"{folder}/{stored.name}")
        target = run.storage.output(f"{folder}/{stored.name}")
        try:
            for begin in range(0, stored.size, PIECE):
                buffer = memoryview(bytearray(min(PIECE, stored.size - begin)))
                source.read_into(begin, buffer)
                target.write(buffer)
            target.commit()
        finally:
            target.abort()
            source.close()
    # It counts as one of the run's newest attempt, so every later attempt finds it in its inventory.
    attempt, identity = max(run.attempts(), default=0), run.identity() or {}
    own = replace(manifest, attempt=attempt, run_id=str(identity.get("run_id", manifest.run_id)))
    run.storage.write(f"{folder}/{MANIFEST}", own.dump())
