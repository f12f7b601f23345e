"""What is cheap to know about the surroundings of a job file: the files and folders that it names.

Looks at this machine's disk and nowhere else, reads at most the cluster file and a model's `config.json`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.job_data import STDLIB
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import Problem, SpecError, counted, nearest

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


def problems(job: Job, folder: Path) -> Iterator[Problem]:
    """Problems of a job, with paths in its tree, when relative paths start at `folder`.

    A job that names a cluster runs elsewhere: its absolute paths and `~` are those of the cluster's nodes, and are not
    looked for here.
    """
    yield from _data(job, folder)
    yield from _model(job, folder)
    yield from _cluster(job, folder)


def _here(job: Job, written: str, folder: Path) -> Path | None:
    """The place on this machine that a path means; None when it is somewhere else."""
    elsewhere = written.startswith(STDLIB) or "://" in written
    if elsewhere or (job.cluster is not None and written.startswith(("/", "~"))):
        return None
    return folder / Path(os.path.expanduser(written))


def _data(job: Job, folder: Path) -> Iterator[Problem]:
    train = job.data.train
    sources = {"data.train": train} if isinstance(train, str) else {}
    if not isinstance(train, str):
        sources |= {f"data.train.{index}.path": source.path for index, source in enumerate(train)}
    if job.data.evaluate is not None:
        sources["data.evaluate"] = job.data.evaluate
    for path, written in sources.items():
        place = _here(job, written, folder)
        if place is not None and not place.exists():
            fix = f"relative paths start at {folder}"
            yield Problem(path=path, rule=f"there is no such file or folder ({place})", fix=fix)
        elif place is not None and place.is_dir() and not any(place.iterdir()):
            yield Problem(path=path, rule="the folder is empty", fix="put data there, or name another folder")


def _looks_local(written: str, folder: Path) -> bool:
    """Whether a model's or tokenizer's name is a folder and not a name on the hub."""
    return written.startswith((".", "/", "~")) or (folder / written).is_dir()


def _model(job: Job, folder: Path) -> Iterator[Problem]:
    for path, written in (("model.name", job.model.name), ("tokenizer.name", job.tokenizer and job.tokenizer.name)):
        place = _here(job, written, folder) if written and _looks_local(written, folder) else None
        if place is None:
            continue
        if not place.is_dir():
            yield Problem(
                path=path, rule=f"there is no such folder ({place})", fix="give a folder, or a name on the hub"
            )
        elif path == "model.name" and not (place / "config.json").is_file():
            fix = "give the folder of a Hugging Face model, as save_pretrained writes it"
            yield Problem(path=path, rule="the folder has no config.json", fix=fix)
        elif path == "model.name":
            yield from _config(job, place / "config.json")
        elif not any((place / name).is_file() for name in _TOKENIZER_FILES):
            fix = "give a folder that a tokenizer's save_pretrained wrote"
            yield Problem(path=path, rule="the folder has no tokenizer", fix=fix)


def _config(job: Job, file: Path) -> Iterator[Problem]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        yield Problem(path="model.name", rule=f"its config.json cannot be read: {error}", fix="write the model again")
        return
    positions = config.get("max_position_embeddings") if isinstance(config, dict) else None
    if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
        yield Problem(path="model.name", rule="its config.json names no model_type", fix="give a model's folder")
    elif isinstance(positions, int) and positions < job.data.sequence_length:
        rule = f"is longer than the model's max_position_embeddings, which is {positions}"
        yield Problem(path="data.sequence_length", rule=rule, fix=f"write at most {positions}")


def _cluster(job: Job, folder: Path) -> Iterator[Problem]:
    if job.cluster is None:
        return
    place = folder / Path(os.path.expanduser(job.cluster))
    try:
        cluster = load(place, expect="Cluster")
    except FileNotFoundError:
        yield Problem(path="cluster", rule=f"there is no such file ({place})", fix=f"relative paths start at {folder}")
        return
    except OSError as error:
        yield Problem(path="cluster", rule=f"cannot be read: {error.strerror}")
        return
    except SpecError as error:
        rule = f"that file has {counted(len(error.problems), 'problem')} itself"
        yield Problem(path="cluster", rule=rule, fix=f"see them with `raytrain-eks validate {job.cluster}`")
        return
    names = [group.name for group in cluster.workers]
    group = cluster.group(job.workers.group)
    if group is None and job.workers.group is None:
        rule = f"the cluster has several worker groups: {', '.join(names)}"
        yield Problem(path="workers", rule=rule, fix=f"for example `workers: {{group: {names[0]}}}`")
    elif group is None:
        guess = nearest(str(job.workers.group), names)
        fix = f"did you mean `{guess}`?" if guess else f"there are {', '.join(names)}"
        yield Problem(path="workers.group", rule=f"{job.cluster} has no such worker group", fix=fix)
    elif job.workers.nodes is not None and job.workers.nodes > group.nodes.max:
        rule = f"group {group.name} has at most {counted(group.nodes.max, 'node')}"
        yield Problem(path="workers.nodes", rule=rule, fix=f"write {group.nodes.max}, or raise the group's `nodes`")
