"""A job's dry run: the same job in small, so that it trains for a few steps on any CPU before it costs money.

What can go wrong in a file is kept (task, schema of the data, engine, packing, schedule, optimizer, adapters); what
costs is made small (model, data, batch, steps). Pure: a job comes in, a job goes out, and what was changed is said.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raytrain_eks.spec.engine import DeepSpeed, Torch, Xla
from raytrain_eks.spec.job import Job

SUFFIX = "-tiny"
LONGEST_NAME = 47
STEPS, SAVED_EVERY, SEQUENCES, MICRO, LENGTH, VOCABULARY = 6, 3, 8, 2, 256, 512
PROMPT_TOKENS = 8

FAMILIES: tuple[tuple[str, dict[str, Any]], ...] = (
    (r"llama-?3|llama-?4|smollm|tinyllama|vicuna|llama-?2-70b", {"model_type": "llama", "num_key_value_heads": 8}),
    (r"llama", {"model_type": "llama"}),
    (r"mixtral", {"model_type": "mixtral"}),
    (r"mistral|zephyr|ministral", {"model_type": "mistral"}),
    (r"qwen-?3.*a\d+b", {"model_type": "qwen3_moe"}),
    (r"qwen-?3", {"model_type": "qwen3"}),
    (r"qwen-?2|qwen-?1\.5", {"model_type": "qwen2"}),
    (r"gemma-?3", {"model_type": "gemma3_text"}),
    (r"gemma", {"model_type": "gemma"}),
    (r"phi-?[34]", {"model_type": "phi3"}),
    (r"phi", {"model_type": "phi"}),
    (r"olmo-?2", {"model_type": "olmo2"}),
    (r"pythia|gpt-?neox", {"model_type": "gpt_neox"}),
    (r"\bopt\b", {"model_type": "opt"}),
    (r"gpt-?2", {"model_type": "gpt2"}),
    (r"xlm-?roberta", {"model_type": "xlm-roberta"}),
    (r"modernbert", {"model_type": "modernbert"}),
    (r"distilbert", {"model_type": "distilbert"}),
    (r"roberta", {"model_type": "roberta"}),
    (r"albert", {"model_type": "albert"}),
    (r"electra", {"model_type": "electra"}),
    (r"bert", {"model_type": "bert"}),
)
"""What a model's name tells of its family (regular expression -> fields of its config), where its config is out of
reach; the first that fits counts."""


@dataclass(frozen=True, kw_only=True)
class Here:
    """What the dry run may use."""

    cpus: int
    accelerators: int = 0
    """GPUs or NeuronCores; with some, the engine stays as it is."""
    xla: bool = False
    """Whether torch_xla can be imported."""


def dry_run_name(name: str) -> str:
    """The name of a job's dry run, which is a run of its own."""
    return name[: LONGEST_NAME - len(SUFFIX)].rstrip("-") + SUFFIX


def family_of(name: str) -> dict[str, Any] | None:
    """What a model's name says of its config; None where it says nothing."""
    found = (fields for pattern, fields in FAMILIES if re.search(pattern, name.lower()))
    return next(found, None)


def shrunk_job(job: Job, model: Mapping[str, Any], *, data: str, column: str, here: Here) -> tuple[Job, list[str]]:
    """The dry run of a job, and a sentence for each thing that is not as the file says.

    `model` is a small config, `data` the place of a few rows as JSON Lines, in whose `column` the text or chat is. The
    model is trained from scratch, also where the job has a pretrained one; adapters are left out, since they need a
    pretrained one, which the caller makes.
    """
    written = job.written()
    engine, said = _engine(job, here)
    workers = _workers(engine, here)
    for name in ("cluster", "storage", "evaluate", "lora", "loggers", "profile"):
        written.pop(name, None)
    written |= {
        "name": dry_run_name(job.name),
        "workers": {"count": workers},
        "model": {"config": dict(model)},
        "tokenizer": {"train": {"vocab_size": VOCABULARY}},
        "data": {
            "train": data,
            "format": "jsonl",
            "column": column,
            "sequence_length": min(job.data.sequence_length, LENGTH),
            "held_out": "10%",
            "pack": job.data.pack,
            "prepare": job.data.prepare,
            # Rows that fit a long sequence need not fit a short one.
            "bad_rows": "100%",
        },
        "batch": {"sequences": SEQUENCES, "micro": MICRO},
        "schedule": _schedule(job),
        "engine": engine.written(),
        "checkpoint": {"every": SAVED_EVERY, "keep": 2},
        "evaluate": {"sequences": SEQUENCES},
        "stop": {"steps": STEPS},
        "failures": job.failures.written() | {"restarts": 0},
        "sample": {"prompts": job.sample.prompts[:1], "tokens": PROMPT_TOKENS},
    }
    return Job.parse(written), said


def _schedule(job: Job) -> dict[str, Any]:
    """The same curve over fewer steps: phases that are given in steps become shares."""
    written = job.schedule.written()
    for name, share in (("warmup", "20%"), ("decay", "20%")):
        if isinstance(written.get(name), int):
            written[name] = share
    return written


def _workers(engine: Any, here: Here) -> int:
    if here.accelerators:
        return min(max(here.accelerators, 1), 2 * getattr(engine, "tensor", 1))
    wanted = (
        2 * getattr(engine, "tensor", 1) if getattr(engine, "fsdp", False) else max(2, getattr(engine, "tensor", 1))
    )
    return min(wanted, here.cpus)


def _engine(job: Job, here: Here) -> tuple[Any, list[str]]:
    """The engine for here, and what is other than the job says."""
    engine, said = job.engine, list[str]()
    if isinstance(engine, Xla):
        if here.xla:
            return engine, said
        said.append("engine xla -> torch: torch_xla is not installed here, and its devices are Trainium's")
        return Torch(), said
    if not isinstance(engine, Torch | DeepSpeed):
        return engine, said
    changed: dict[str, Any] = {}
    if not here.accelerators:
        if engine.attention == "flash_attention_2":
            changed["attention"] = "auto"
            said.append("engine.attention flash_attention_2 -> auto: FlashAttention runs on GPUs")
        if isinstance(engine, Torch) and engine.compile:
            changed["compile"] = False
            said.append("engine.compile -> false: compiling takes longer here than all of the dry run")
    if isinstance(engine, Torch) and engine.tensor > 1:
        room = here.accelerators or here.cpus
        groups = 2 if engine.fsdp else 1
        size = 2 if room >= 2 * groups else 1
        changed["tensor"] = size
        why = f": {room} workers have room here" if size == 1 else ""
        said.append(f"engine.tensor {engine.tensor} -> {size}{why}")
    return type(engine).parse(engine.written() | changed), said
