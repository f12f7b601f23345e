"""A checkpoint as a Hugging Face folder, without a run that goes on."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.restore import restore
from raytrain_eks.checkpoint.run import DATA, EXPORT, JOB, RunFolder
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError


def export_checkpoint(
    run: RunFolder, step: int, target: Path, *, tokenizer: str | None = None, say: Callable[[str], None]
) -> None:
    """Write safetensors, config and tokenizer of a run's checkpoint to a folder that is not there yet.

    `tokenizer` is a folder; None takes the one that the run used. Raises SpecError when there is none, Damaged when
    the checkpoint is not whole, NoSuchTensor when it is of another model than the job says.
    """
    from raytrain_eks.train.finish import export
    from raytrain_eks.train.lora import base_of, check_base
    from raytrain_eks.train.model import build_model, model_config
    from raytrain_eks.train.state import take_weights

    job = Job.read(run.storage.read(JOB).decode(), f"{run.url}/{JOB}")
    words = _tokenizer(run, job, tokenizer)
    model = build_model(job, model_config(job, words))
    reader = restore(run, step=step)
    assert reader is not None  # with a step it is a reader, or it has raised
    with reader:
        check_base(reader.meta, base_of(model, job))
        take_weights(model, reader)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        export(model, words, Path(folder) / target.name)
        (Path(folder) / target.name).rename(target)
    say(f"exported step {step} of `{run.name}`")


def _tokenizer(run: RunFolder, job: Job, given: str | None) -> Any:
    from transformers import AutoTokenizer

    if given is not None:
        return AutoTokenizer.from_pretrained(given)
    if job.tokenizer is None or job.tokenizer.name is not None:
        return AutoTokenizer.from_pretrained((job.tokenizer and job.tokenizer.name) or job.model.name)
    with tempfile.TemporaryDirectory() as folder:
        for place, path in _homes(run):
            for name in [name for name, _ in place.files(path)]:
                if name.endswith((".json", ".jinja", ".txt")):
                    (Path(folder) / Path(name).name).write_bytes(place.read(name))
            if (Path(folder) / "tokenizer_config.json").exists():
                return AutoTokenizer.from_pretrained(folder)
    fix = "name its folder with --tokenizer"
    raise SpecError([Problem(path="tokenizer", rule=f"the one that `{run.name}` used is not found", fix=fix)])


def _homes(run: RunFolder) -> list[tuple[Any, str]]:
    """Where the run's own tokenizer may be: in its export, or in the data that was prepared for it."""
    data = run.parent.child(DATA)
    prepared = [f"{entry.name}/tokenizer" for entry in data.entries() if entry.is_folder]
    # Of several prepared sets it cannot be said which was this run's.
    return [(run.storage, EXPORT), *((data, path) for path in prepared if len(prepared) == 1)]
