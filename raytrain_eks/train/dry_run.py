"""`--tiny`: what a dry run needs, made before it starts: a few rows of data, and a small model in the place of a
pretrained one.

Both lie in `<storage>/.tiny/<name>/`, and the run beside the others as `<name>-tiny`. A dry run always starts anew.
"""

import importlib.util
import json
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.default import default_storage
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.data.columns import MESSAGES
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train.sizes import shrunk
from raytrain_eks.train.tiny import Here, dry_run_name, family_of, shrunk_job

FOLDER = ".tiny"
ROWS, POSITIONS = 200, 512
RECORD = "dry_run.json"
"""Says that the run of this name is a dry run, and may be replaced by the next."""
DATA, MODEL = "train.jsonl", "model"


def dry_run(
    job: Job, given: str | None, *, cluster: Mapping[str, float], say: Callable[[str], None]
) -> tuple[Job, str]:
    """The job of the dry run, and where its run goes; its data and model are there when this returns, and an earlier
    dry run is gone.

    `cluster` is what Ray has here (`ray.cluster_resources()`). Raises SpecError for a model whose family nobody can
    tell, and for a run of the same name that is no dry run.
    """
    name = dry_run_name(job.name)
    storage = Storage.of(given or _own_storage(job) or default_storage())
    place = storage.child(FOLDER, name)
    _replace(storage, name, place)
    column = _data(job, place, say)
    here = Here(
        cpus=int(cluster.get("CPU", 1)),
        accelerators=int(cluster.get("GPU", 0) or cluster.get("neuron_cores", 0)),
        xla=importlib.util.find_spec("torch_xla") is not None,
    )
    config = small_config(job)
    data = f"{storage.url.rstrip('/')}/{FOLDER}/{name}/{DATA}"
    small, said = shrunk_job(job, config, data=data, column=column, here=here)
    for sentence in said:
        say(f"dry run: {sentence}")
    if job.lora is not None:
        small = _pretrained(small, job, storage, place)
    origin = job.model.name or "config"
    say(f"dry run: {small.name}, a small {config['model_type']} with random weights in the place of {origin}")
    return small, storage.url


def _own_storage(job: Job) -> str | None:
    """The job's storage where it is a folder that can be here: a cluster's mount is not to be made on a laptop."""
    if job.storage is None or "://" in job.storage:
        return None
    return job.storage if Path(os.path.expanduser(job.storage)).parent.is_dir() else None


def _replace(storage: Storage, name: str, place: Storage) -> None:
    if storage.exists(f"{name}/run.json") and not place.exists(RECORD):
        rule = f"the dry run would be called {name}, and there is a run of that name that is none"
        raise SpecError([Problem(path="name", rule=rule, fix="remove or rename that run")])
    storage.remove_tree(name)
    storage.remove_tree(f"{FOLDER}/{name}")
    place.write(RECORD, json.dumps({"run": name}).encode())


def _data(job: Job, place: Storage, say: Callable[[str], None]) -> str:
    """Write the rows; the name of their column."""
    from raytrain_eks.data.sample import sample

    try:
        rows = sample(job, rows=ROWS)
        say(f"dry run: {len(rows)} rows of the job's own data")
    except (SpecError, OSError, ImportError) as error:
        first = error.problems[0] if isinstance(error, SpecError) else None
        reason = f"{first.path} {first.value or ''} {first.rule}" if first else str(error)
        rows = list(built_in(job, ROWS))
        say(f"dry run: made-up data, since the job's own cannot be read here: {reason}")
    place.write(DATA, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())
    # Prompts and completions are found by their own names where the column is not there.
    return job.data.column if job.data.column in rows[0] else MESSAGES


def built_in(job: Job, rows: int) -> Iterator[dict[str, Any]]:
    """Rows of the job's schema: small sums, told as text, or as chats."""
    draw = random.Random(0)
    for number in range(rows):
        first, second = draw.randrange(100), draw.randrange(100)
        asked, answer = f"What is {first} plus {second}?", f"{first} plus {second} is {first + second}."
        if job.task == "sft":
            chat = [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]
            yield {job.data.column if job.data.column != "text" else MESSAGES: chat}
        else:
            yield {job.data.column: f"Sum number {number}. {asked} {answer} " * draw.randrange(1, 5)}


def small_config(job: Job) -> dict[str, Any]:
    """A small config of the job's family: what differs from the family's defaults. Raises SpecError."""
    from transformers import AutoConfig

    given = job.model.config or _config_of(str(job.model.name))
    family = str(given["model_type"])
    try:
        defaults = AutoConfig.for_model(family).to_dict()
        full = AutoConfig.for_model(family, **{key: given[key] for key in given if key != "model_type"}).to_dict()
    except Exception as error:  # transformers' own classes, of several kinds
        rule = f"transformers does not accept this model: {str(error).splitlines()[0]}"
        raise SpecError([Problem(path="model", value=job.model.name or family, rule=rule)]) from None
    small = shrunk(full, positions=POSITIONS)
    return {"model_type": family} | {key: value for key, value in small.items() if defaults.get(key) != value}


def _config_of(name: str) -> dict[str, Any]:
    """The config of a pretrained model: its folder's, what its name tells, or the hub's. Raises SpecError."""
    file = Path(os.path.expanduser(name)) / "config.json"
    if file.is_file():
        found = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(found, dict) and isinstance(found.get("model_type"), str):
            return found
    if (known := family_of(name)) is not None:
        return known
    from transformers import AutoConfig

    try:
        return dict(AutoConfig.from_pretrained(name).to_dict())
    except (OSError, ValueError):
        rule = "there is no config.json here, the hub does not answer, and the name tells no family"
        fix = "give a folder with the model's config.json, or write `model.config`"
        raise SpecError([Problem(path="model.name", value=name, rule=rule, fix=fix)]) from None


def _pretrained(small: Job, job: Job, storage: Storage, place: Storage) -> Job:
    """The dry run with a small model, saved as a pretrained one, for adapters. Raises SpecError on S3."""
    from transformers import AutoTokenizer
    from transformers.utils import logging

    from raytrain_eks.data import tokenizer
    from raytrain_eks.data.columns import Columns
    from raytrain_eks.data.corpus import corpus, list_sources
    from raytrain_eks.data.files import Place
    from raytrain_eks.train.model import build_model, model_config

    if place.folder is None:
        rule = "a dry run with adapters needs a small pretrained model in a folder that all workers see"
        raise SpecError([Problem(path="storage", value=storage.url, rule=rule, fix="give a folder with --storage")])
    logging.disable_progress_bar()
    # transformers looks for DeepSpeed when it saves a model, and DeepSpeed then looks for accelerators.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    folder = place.folder / MODEL
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=place.folder) as temporary:
        columns = Columns.of(small)
        tokenizer.make(small, corpus(list_sources(small.data), small.data, columns), Place.of(temporary))
        words = AutoTokenizer.from_pretrained(temporary)
        words.save_pretrained(folder)
    build_model(small, model_config(small, words)).save_pretrained(folder)
    written = {key: value for key, value in small.written().items() if key not in ("tokenizer", "model")}
    assert job.lora is not None
    return Job.parse(written | {"model": {"name": str(folder)}, "lora": job.lora.written()})
