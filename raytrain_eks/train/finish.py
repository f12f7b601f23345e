"""What is left when a run is complete: the model as a Hugging Face folder, samples, a loss curve and the summary."""

import io
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.job import Job

ADAPTER = "adapter"
"""The folder, within an export, of adapters alone."""


def export(model: Any, tokenizer: Any, folder: Path) -> None:
    """Write safetensors, config and tokenizer, as `AutoModelForCausalLM.from_pretrained` opens them.

    Adapters are written alone to `adapter/`, which peft opens, and merged into the model, which is a plain one
    afterwards. Raises EmptyAdapter and EmptyWeight rather than to write a tensor that is empty.
    """
    from transformers.utils import logging

    from raytrain_eks.train import lora

    logging.disable_progress_bar()
    if lora.layers(model):
        lora.save_adapter(model, folder / ADAPTER)
        tokenizer.save_pretrained(folder / ADAPTER)
        lora.merge(model)
    refuse_empty(model)
    model.config.use_cache = True
    model.save_pretrained(folder, safe_serialization=True)
    tokenizer.save_pretrained(folder)


class EmptyWeight(RuntimeError):
    """A model to be exported has a weight without elements."""


def refuse_empty(model: Any) -> None:
    """Raises EmptyWeight when a weight has no elements, or none in memory: under ZeRO-3 one that nobody gathered."""
    for name, weight in model.named_parameters():
        if weight.numel() == 0 or weight.is_meta:
            raise EmptyWeight(f"{name} is empty: it was not gathered, and must not be exported")


def samples(job: Job, model: Any, tokenizer: Any) -> list[dict[str, str]]:
    """The job's prompts, each continued by the model; drawn with a seed, so that the same model says the same."""
    import torch

    model.eval()
    found: list[dict[str, str]] = []
    if not model.can_generate():
        return found
    for index, prompt in enumerate(job.sample.prompts):
        torch.manual_seed(job.seed + index)
        ids = tokenizer(prompt, return_tensors="pt", add_special_tokens=False).input_ids.to(model.device)
        room = getattr(model.config, "max_position_embeddings", ids.shape[1] + job.sample.tokens) - ids.shape[1]
        with torch.no_grad():
            output = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=max(min(job.sample.tokens, room), 1),
                do_sample=True,
                temperature=0.7,
                top_k=40,
                use_cache=True,
                pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id,
            )
        text = tokenizer.decode(output[0, ids.shape[1] :], skip_special_tokens=True)
        found.append({"prompt": prompt, "text": text})
    return found


def newest(lines: Iterable[Mapping[str, Any]], value: str) -> list[tuple[int, float]]:
    """(step, value) of every step in the lines; a step that a later attempt redid counts once, as redone."""
    by_step = {int(line["step"]): float(line[value]) for line in lines if line.get(value) is not None}
    return sorted(by_step.items())


def put_folder(storage: Storage, name: str, folder: Path) -> None:
    """Store the files of a folder under `name`, replacing what was there only once all of them are written."""
    fresh = f"{name}.new"
    storage.remove_tree(fresh)
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            storage.write(f"{fresh}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    storage.remove_tree(name)
    storage.move(fresh, name)


def loss_curve(metrics: list[dict[str, Any]], events: list[dict[str, Any]], title: str) -> bytes:
    """A PNG of training and held-out loss over the steps."""
    # Its first import on a machine tells the job's log that it has looked for fonts.
    logging.getLogger("matplotlib").setLevel(logging.WARNING)
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), dpi=120, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    trained, held = newest(metrics, "loss"), newest(events, "held_out_loss")
    if trained:
        axes.plot(*zip(*trained, strict=True), color="tab:blue", linewidth=1, label="training")
    if held:
        axes.plot(*zip(*held, strict=True), color="tab:orange", marker="o", label="held out")
    axes.set_xlabel("optimizer step")
    axes.set_ylabel("loss (nats per token)")
    axes.set_title(title)
    axes.grid(alpha=0.3)
    if trained or held:
        axes.legend()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    return buffer.getvalue()
