"""The sizes of a job's model: from its config, its folder, or what its name says."""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from raytrain_eks.plan.sizes import Sizes, of_config, unknown
from raytrain_eks.spec.job import Job

FILE = Path(__file__).with_name("known_models.yaml")
LARGEST = 2**20
"""Bytes of a config.json; larger ones are something else."""


@cache
def rows() -> tuple[dict[str, Any], ...]:
    """The public models that are known by name."""
    from ruamel.yaml import YAML

    return tuple(dict(row) for row in YAML(typ="safe", pure=True).load(FILE))


def by_name(name: str) -> dict[str, Any] | None:
    """The config that a model's name stands for; None when it says nothing. `owner/name` and folders will do."""
    text = name.lower().rstrip("/").rsplit("/", 1)[-1]
    found = next((row for row in rows() if re.search(row["pattern"], text)), None)
    return None if found is None else {key: value for key, value in found.items() if key != "pattern"}


def model_of(job: Job) -> tuple[Sizes | None, str]:
    """The sizes of a job's model, and where they come from. None where they are not known here."""
    if job.model.config is not None:
        trained = job.tokenizer.train if job.tokenizer is not None else None
        return _told(job.model.config, "the job's config", trained.vocab_size if trained else None)
    name = str(job.model.name)
    file = Path(os.path.expanduser(name)) / "config.json"
    if (config := _read(file)) is not None:
        return _told(config, str(file))
    if (known := by_name(name)) is not None:
        return of_config(known), f"what the name {name} says"
    return None, "its name tells no sizes, and no config.json can be read here"


def _told(config: dict[str, Any], source: str, vocabulary: int | None = None) -> tuple[Sizes | None, str]:
    sizes = of_config(config, vocabulary=vocabulary)
    return sizes, source if sizes is not None else f"{source}: {unknown(config) or 'it does not say all sizes'}"


def _read(file: Path) -> dict[str, Any] | None:
    """A model's config; None when there is none, or what lies there is something else."""
    try:
        if not file.is_file() or file.stat().st_size > LARGEST:
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
