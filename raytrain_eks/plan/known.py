"""The sizes of a job's model: from its config, its folder, or what its name says."""

import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

from raytrain_eks.plan.sizes import Sizes, of_config
from raytrain_eks.spec.job import Job

FILE = Path(__file__).with_name("known_models.yaml")


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
        return of_config(job.model.config, vocabulary=trained.vocab_size if trained else None), "the job's config"
    name = str(job.model.name)
    file = Path(os.path.expanduser(name)) / "config.json"
    try:
        return of_config(json.loads(file.read_text())), str(file)
    except (OSError, ValueError):
        known = by_name(name)
    if known is None:
        return None, "its name tells no sizes, and no config.json can be read here"
    return of_config(known), f"what the name {name} says"
