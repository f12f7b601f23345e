"""DeepSpeed's JSON for a job: complete, nothing in it is `auto`; and a person's own settings held against the job.

The job says what is learnt: batch, clipping, precision, optimizer and schedule. What a file of one's own says about
these is a contradiction unless it says the same (or `auto`); everything else in it is added.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from raytrain_eks.spec.engine import DeepSpeed
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError

Path = tuple[str, ...]
AUTO = "auto"
FREE: set[Path] = {
    ("zero_optimization", "overlap_comm"),
    ("zero_optimization", "contiguous_gradients"),
    ("zero_optimization", "offload_optimizer", "pin_memory"),
    ("zero_optimization", "offload_param", "pin_memory"),
    ("steps_per_print",),
    ("wall_clock_breakdown",),
}
"""Settings that are made only because DeepSpeed's own defaults would not do; a file may have others."""
LEFT = ("optimizer", "scheduler", "bf16", "fp16", "gradient_clipping", "train_batch_size")
"""Settings that are only compared: what they say is made in another way, or by the engine."""


def config(
    job: Job, *, world: int, micro: int, accumulation: int, cuda: bool, own: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The JSON for `world` data-parallel ranks that take `accumulation` micro-batches of `micro` rows each.

    ZeRO-0 leaves clipping to the engine, because DeepSpeed does not tell the norm there. `own` are settings to add.
    Raises SpecError with every contradiction between them and the job.
    """
    engine = job.engine
    assert isinstance(engine, DeepSpeed)
    own = own or {}
    stage, offload = chosen(engine, own)
    zero: dict[str, Any] = {"stage": stage}
    made: dict[str, Any] = {
        "train_batch_size": micro * accumulation * world,
        "train_micro_batch_size_per_gpu": micro,
        "gradient_accumulation_steps": accumulation,
        "gradient_clipping": (job.optimizer.clip or 0.0) if stage else 0.0,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**9,
        "wall_clock_breakdown": False,
    }
    if stage:
        # Reducing beside the backward pass pays only where the device runs it on a stream of its own.
        zero |= {"overlap_comm": cuda, "contiguous_gradients": True}
    if offload != "none":
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": cuda}
    if offload == "parameters":
        zero["offload_param"] = {"device": "cpu", "pin_memory": cuda}
    if engine.tensor > 1:
        # The loss wants all logits; AutoTP would keep the vocabulary of a tied head in parts.
        # It also counts all ranks as data-parallel ones when it checks the global batch, which follows from the others.
        del made["train_batch_size"]
        made["tensor_parallel"] = {"autotp_size": engine.tensor, "vocab_parallel_lm_head": False}
    if job.precision == "bf16":
        made["torch_autocast"] = {"enabled": True, "dtype": "bfloat16"}
        made["communication_data_type"] = "fp32"
    problems = [*_about_the_job(job, own, made), *_about_zero(engine, own, made), *_additions(own, made)]
    if problems:
        raise SpecError(problems)
    for path, value in _leaves(own):
        if value != AUTO and path[0] not in LEFT:
            _put(made, path, value if path in FREE or _get(made, path) is None else _get(made, path))
    return made


def chosen(engine: DeepSpeed, own: Mapping[str, Any]) -> tuple[int, str]:
    """ZeRO's stage and what is offloaded: what the job says, else what the own settings say, else the default."""
    stage: int = engine.zero
    found = _get(own, ("zero_optimization", "stage"))
    if "zero" not in engine.model_fields_set and found in (0, 1, 2, 3):
        stage = found
    offload: str = engine.offload
    if "offload" not in engine.model_fields_set:
        for name, kind in (("offload_param", "parameters"), ("offload_optimizer", "optimizer")):
            if offload == "none" and _get(own, ("zero_optimization", name, "device")) == "cpu":
                offload = kind
    return stage, offload


def _about_the_job(job: Job, own: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[Problem]:
    """What the settings say of batch, clipping, precision, optimizer and schedule, against the job."""
    for name, says in (
        ("train_batch_size", "the job's batch"),
        ("train_micro_batch_size_per_gpu", "the job's batch.micro"),
        ("gradient_accumulation_steps", "the job's batch and workers"),
    ):
        expected = made.get(name, job.global_sequences)
        yield from _differs(own, (name,), expected, f"{says} makes it {expected}")
    clip = job.optimizer.clip or 0.0
    yield from _differs(own, ("gradient_clipping",), clip, f"the job's optimizer.clip is {job.optimizer.clip}")
    precision = f"the job's precision is {job.precision}"
    yield from _differs(own, ("bf16", "enabled"), job.precision == "bf16", precision)
    yield from _differs(own, ("fp16", "enabled"), False, precision)
    kind = _get(own, ("optimizer", "type"))
    if kind is not None and str(kind).lower() not in ("adam", "adamw", AUTO):
        yield _problem(("optimizer", "type"), kind, "the job trains with AdamW")
    numbers = {
        "lr": job.optimizer.learning_rate,
        "weight_decay": job.optimizer.weight_decay,
        "eps": job.optimizer.eps,
        "betas": list(job.optimizer.betas),
    }
    for name, value in numbers.items():
        yield from _differs(own, ("optimizer", "params", name), value, f"the job's optimizer makes it {value}")
    for path, value in _leaves(own.get("scheduler", {}), ("scheduler",)):
        if value != AUTO and path != ("scheduler", "type"):
            yield _problem(path, value, f"the learning rates are the job's schedule, {job.schedule.kind}")


def _about_zero(engine: DeepSpeed, own: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[Problem]:
    """What the settings say of ZeRO, against the engine of the job."""
    zero: Mapping[str, Any] = made["zero_optimization"]
    root = ("zero_optimization",)
    why = f"the job's engine.tensor is {engine.tensor}"
    if engine.tensor > 1 or _get(own, ("tensor_parallel", "autotp_size")) not in (None, 0, 1, AUTO):
        yield from _differs(own, ("tensor_parallel", "autotp_size"), engine.tensor, why)
        yield from _differs(own, ("tensor_parallel", "vocab_parallel_lm_head"), False, "the loss wants all logits")
    yield from _differs(own, (*root, "stage"), zero["stage"], f"the job's engine.zero is {engine.zero}")
    for name in ("offload_optimizer", "offload_param"):
        device = _get(own, (*root, name, "device"))
        here = _get(zero, (name, "device")) or "none"
        if device not in (None, AUTO, here):
            why = f"the job's engine.offload is {engine.offload}"
            if device == "nvme":
                why = "the state has to lie in memory to be saved"
            yield _problem((*root, name, "device"), device, why)


def _additions(own: Mapping[str, Any], made: Mapping[str, Any]) -> Iterator[Problem]:
    """Settings that cannot be added: `auto` that the job has no value for, and those that the engine relies on."""
    known = {"optimizer", "scheduler", "bf16", "fp16"}
    for path, value in _leaves(own):
        if value == AUTO and path[0] not in known and _get(made, path) is None:
            if path[:2] not in {("zero_optimization", "offload_optimizer"), ("zero_optimization", "offload_param")}:
                yield _problem(path, value, "the job has no value for it", "write a value, or leave it out")
        elif path[0] in ("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "torch_autocast"):
            yield from _differs(own, path, _get(made, path), f"the engine needs {_get(made, path)}")


def _differs(own: Mapping[str, Any], path: Path, expected: Any, why: str) -> Iterator[Problem]:
    value = _get(own, path)
    if value is not None and value not in (AUTO, expected):
        yield _problem(path, value, why)


def _problem(path: Path, value: Any, why: str, fix: str = "leave it out: it is made from the job") -> Problem:
    return Problem(path=".".join(("engine.config", *path)), value=str(value), rule=f"contradicts: {why}", fix=fix)


def _get(tree: Mapping[str, Any], path: Path) -> Any:
    found: Any = tree
    for step in path:
        found = found.get(step) if isinstance(found, Mapping) else None
    return found


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for step in path[:-1]:
        tree = tree.setdefault(step, {})
    tree[path[-1]] = value


def _leaves(tree: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(tree, Mapping):
        for name, below in tree.items():
            yield from _leaves(below, (*path, str(name)))
    else:
        yield path, tree
