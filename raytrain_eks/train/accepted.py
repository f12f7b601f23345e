"""Models that transformers has accepted for prepared data are not asked about again by the driver.

The question takes the import of transformers and torch, seconds of each start; the workers, which need both, ask it
again in any case. The answer lies beside the prepared data.
"""

import contextlib
import hashlib
import json
from importlib.metadata import version
from typing import TYPE_CHECKING

import raytrain_eks
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.job import Job

if TYPE_CHECKING:
    from raytrain_eks.data.prepared import Prepared

FOLDER = "accepted"


def check_model(job: Job, prepared: "Prepared") -> None:
    """Raises SpecError where transformers does not build the job's model, or data and model do not fit."""
    place, name = Storage.of(prepared.url), f"{FOLDER}/{_digest(job)}"
    # What a folder or a hub has under a name may be another model by now.
    lasting = job.model.config is not None
    if lasting and place.exists(name):
        return
    from raytrain_eks.train.model import model_config

    model_config(job, prepared.tokenizer())
    if lasting:
        with contextlib.suppress(OSError):
            place.write(name, b"")


def _digest(job: Job) -> str:
    """Of all that the answer depends on, the prepared data aside."""
    asked = [job.model.config, job.task, job.data.sequence_length, version("transformers"), raytrain_eks.__version__]
    return hashlib.blake2b(json.dumps(asked, sort_keys=True).encode(), digest_size=16).hexdigest()
