"""Putting a rank together: model, engine, stream, checkpoints and mirror, restored where a run goes on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raytrain_eks.checkpoint.of_job import restored, saver_of
from raytrain_eks.checkpoint.reader import NoSuchTensor
from raytrain_eks.data.packer import OnTheFly
from raytrain_eks.data.prepared import Prepared
from raytrain_eks.data.stream import Stream, evaluation
from raytrain_eks.plan.batch import split_of
from raytrain_eks.plan.flops import Shape, mfu
from raytrain_eks.plan.mesh import mesh_of
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train import engines
from raytrain_eks.train.apart import prove_apart
from raytrain_eks.train.guard import Sentry
from raytrain_eks.train.loop import Loop, Progress
from raytrain_eks.train.lora import base_of, check_base
from raytrain_eks.train.masking import Masking, position_offset
from raytrain_eks.train.model import build_model, model_config
from raytrain_eks.train.peak import peak_of
from raytrain_eks.train.profile import Profiler
from raytrain_eks.train.proof import prove_all_reduce

if TYPE_CHECKING:
    from raytrain_eks.train.worker import Worker


@dataclass(frozen=True, kw_only=True)
class Parts:
    """All that a rank holds while it trains."""

    loop: Loop
    tokenizer: Any
    parameters: int
    """Of the whole model, tied weights once."""


def assemble(worker: "Worker") -> Parts:
    """Everything for one rank's loop. Raises SpecError for what no new start could change."""
    job, rank, world = worker.job, worker.rank, worker.world
    prepared = Prepared.load(worker.task.prepared)
    tokenizer = prepared.tokenizer()
    config = model_config(job, tokenizer)
    worker.event("documents_apart", proven=prove_apart(job, config))
    model = build_model(job, config)
    base, offset = base_of(model, job), position_offset(model)
    model_shape = _shape(model)
    worker.event("model", parameters=model_shape.parameters)
    mesh = mesh_of(job, world)
    shape = split_of(job, mesh.data)
    engine = engines.build(job, model, rank=rank, world=world, micro=shape.micro, accumulation=shape.accumulation)
    prove_all_reduce(engine.device, world)
    sentry = Sentry(job.guard)
    progress, data_state = _restore(worker, engine, sentry, base)
    place = {"rank": mesh.data_rank(rank), "world": mesh.data, "micro": shape.micro}
    stream = Stream.of(_source(job, prepared, rank, world), job, state=data_state, **place)
    held_out = evaluation(prepared, sequences=job.evaluate.sequences, **place)
    masking = None
    if job.task == "mlm":
        masking = Masking.of(job, tokenizer, rank=place["rank"], world=place["world"], offset=offset)
        held_out = masking.of_evaluation(held_out, engine.reduce)
    saver = saver_of(worker.run, job.checkpoint, attempt=worker.attempt, rank=rank, world=world, tell=worker.tell)
    worker.event("ready", step=progress.step, split=f"{shape.accumulation} x {shape.micro} x {shape.world}")
    loop = Loop(
        job=job,
        engine=engine,
        stream=stream,
        held_out=held_out,
        masking=masking,
        base=base,
        saver=saver,
        split=shape,
        rank=rank,
        sentry=sentry,
        rewind=lambda: _rewound(worker, engine, base),
        speed=_speed(job, model_shape, engine.device, world),
        steps=worker.task.steps,
        journal=worker.journal,
        attempt=worker.attempt.number,
        watch=worker.watch,
        profiler=Profiler(job.profile, worker.run.storage, attempt=worker.attempt.number, rank=rank),
        stop_requested=lambda: worker.stop,
        reclaimed=worker.notice,
        pilot=worker.pilot,
        progress=progress,
    )
    return Parts(loop=loop, tokenizer=tokenizer, parameters=model_shape.parameters)


def _source(job: Job, prepared: Prepared, rank: int, world: int) -> Any:
    """Where packed rows come from: the prepared shards, or tasks that pack while training runs."""
    if job.data.prepare:
        return prepared
    return OnTheFly(prepared, rank=rank, world=world, bad_rows=quantity.share(job.data.bad_rows))


def _rewound(worker: "Worker", engine: Any, base: dict[str, str] | None) -> Progress | None:
    """The state of the newest checkpoint; its data position and the guard's memory stay behind."""
    progress, data_state = _restore(worker, engine, None, base)
    return progress if data_state is not None else None


def _speed(job: Job, shape: Shape, device: Any, world: int) -> Callable[[int, float], dict[str, float]]:
    """What a step reports of its speed: tokens per second; MFU where the catalogue knows the device."""
    import torch

    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    found = peak_of(name) if name else None
    flops = shape.flops_per_token(job.data.sequence_length)

    def of(tokens: int, seconds: float) -> dict[str, float]:
        speed = tokens / seconds
        told = {"tokens_per_second": round(speed, 1)}
        if found is not None:
            used = mfu(tokens_per_second=speed, flops_per_token=flops, peak=found[1], accelerators=world)
            told |= {"mfu": round(used, 4), "memory_bytes": float(torch.cuda.max_memory_allocated(device))}
        return told

    return of


def _shape(model: Any) -> Shape:
    """What MFU needs of a transformers model."""
    config, embedding = model.config, model.get_input_embeddings().weight
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return Shape(
        parameters=sum(weight.numel() for weight in model.parameters()),
        embedding=embedding.numel(),
        tied=bool(config.tie_word_embeddings),
        layers=config.num_hidden_layers,
        width=width * config.num_attention_heads,
    )


def _restore(
    worker: "Worker", engine: Any, sentry: Sentry | None, base: dict[str, str] | None
) -> tuple[Progress, dict[str, Any] | None]:
    """Take the newest whole checkpoint; where the run stands, and where its data does."""
    about = {"attempt": worker.attempt, "rank": worker.rank, "world": worker.world}
    reader = restored(worker.run, worker.job.checkpoint, **about)
    if reader is None:
        return Progress(), None
    with reader:
        check_base(reader.meta, base)
        try:
            engine.load(reader)
        except NoSuchTensor as error:
            fix = "give this run a new `name`, or put the checkpoints of another model away"
            raise SpecError([Problem(path="model", rule=f"{error} ({worker.run.url})", fix=fix)]) from None
    progress = Progress(**reader.meta["progress"])
    if sentry is not None:
        sentry.take(reader.meta["guard"])
    worker.event("restored", step=progress.step)
    return progress, reader.meta["data"]
