"""A training job, as a researcher writes it. The file says what is to be learnt from what; the rest is derived."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt

from raytrain_eks.spec import quantity
from raytrain_eks.spec.engine import Auto, Engine, Xla
from raytrain_eks.spec.job_data import Data, Location, Source, Text, Tokenizer, TrainTokenizer
from raytrain_eks.spec.job_training import Batch, Lora, Masking, ModelSource, Optimizer, Schedule
from raytrain_eks.spec.job_watch import Guard, Logger, Profile
from raytrain_eks.spec.kubernetes import Variable
from raytrain_eks.spec.model import Aside, Model, rule
from raytrain_eks.spec.problem import Problem, counted
from raytrain_eks.spec.quantity import Count, Cpu, Duration, Interval, Whole

__all__ = [
    "Batch",
    "Checkpoint",
    "Data",
    "Evaluate",
    "Failures",
    "Guard",
    "Job",
    "Lora",
    "Masking",
    "ModelSource",
    "Optimizer",
    "Profile",
    "Sample",
    "Schedule",
    "Source",
    "Stop",
    "Tokenizer",
    "TrainTokenizer",
    "Workers",
]

MOST_SEQUENCES = 10_000_000
"""Of a global batch; the largest that were published have some tens of thousands."""
RUN_NAME = r"^[a-z]([-a-z0-9]{0,45}[a-z0-9])?$"
_RUN_NAME = re.compile(RUN_NAME.replace("$", r"\Z"))


def _name(value: object) -> object:
    if isinstance(value, str) and not _RUN_NAME.match(value):
        near = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")[:47].rstrip("-")
        rule = "must be lower-case letters, digits and dashes, a letter first, at most 47 long (a RayJob's limit)"
        raise ValueError(f"{rule}: write {near}" if near else rule)
    return value


RunName = Annotated[
    str, BeforeValidator(_name, json_schema_input_type=Annotated[str, Field(pattern=RUN_NAME, examples=["first-run"])])
]


class Workers(Model):
    """Where and on how many accelerators the job runs: one process per accelerator."""

    group: Text | None = Aside(None)
    """The worker group of the cluster file. None: the only one there is."""

    nodes: Whole | None = Aside(None)
    """How many nodes of that group. None: as few as `count` needs, one without it."""

    count: Whole | None = Aside(None)
    """Worker processes in all. None: one per accelerator of the nodes; on a laptop, one per two CPUs and at most 2."""

    min: Whole | None = Aside(None)
    """With how many the job goes on while nodes are lost; it grows to `count` again when they are back. The global
    batch, the data and the learning rate stay what they are. None: it waits until all are there."""

    cpus: Cpu | None = Aside(None)
    """CPUs of one worker process, such as 4 or 500m. None: the process's part of its node."""

    @rule
    def _fewer(self) -> Iterator[Problem]:
        if self.min is not None and self.count is not None and self.min > self.count:
            fix = f"write at most {self.count}"
            yield Problem(path="min", value=str(self.min), rule=f"is more than `count`, {self.count}", fix=fix)


class Checkpoint(Model):
    """When the state is saved, and how much of it stays."""

    every: Interval = Aside("15m")
    """Steps (`500`) or time (`15m`) between checkpoints: so much is trained again after a crash, at most. The state
    after the last step is always saved."""

    keep: Whole = Aside(3)
    """How many of the newest stay."""

    keep_best: NonNegativeInt = Aside(1)
    """How many of the best by held-out loss stay, beside the newest; 0: none."""

    keep_every: Whole | None = Aside(None)
    """All checkpoints whose step is a multiple of this stay. None: no such."""

    verify: Literal["full", "sizes", "off"] = Aside("full")
    """What is checked of a checkpoint before it is used: the checksums of all its bytes, the sizes of its files, or
    only its manifest. One that fails is set aside, and the one before it is taken."""

    busy: Literal["wait", "skip"] = Aside("wait")
    """What a save does while the one before it is still being written: it waits, or it is left out."""

    failures: Whole = Aside(3)
    """Saves that fail in a row before the run ends; each is told at once."""

    mirror: Location | None = Aside(None)
    """Where committed checkpoints are copied to, e.g. `s3://bucket/prefix`. None: nowhere."""

    mirror_keep: Whole = Aside(5)
    """How many of the newest stay in the mirror; the best stays as well."""

    mirror_codec: Literal["planes", "zstd", "gzip", "none"] = Aside("planes")
    """How the mirror packs data. `planes` takes the bytes of floats apart before zstd, which packs weights and moments
    best; with `none` the mirror is a run folder that can be trained from as it is."""


class Evaluate(Model):
    """When held-out loss is measured; it always is before the first step and after the last."""

    every: Whole | None = Aside(None)
    """Steps between evaluations. None: only before and after."""

    sequences: Whole = Aside(64)
    """Sequences of an evaluation at most, always the same ones."""


class Stop(Model):
    """When the run is complete; the first condition that holds ends it. Raising one extends a complete run."""

    steps: Whole | None = Aside(None)
    """Optimizer steps."""

    epochs: Annotated[float, Field(ge=1e-6, le=1e6)] | None = Aside(None)
    """Passes over the training data; 0.5 is half of it."""

    tokens: Count | None = Aside(None)
    """Tokens of all global batches, padding included: `2G` is 2,000,000,000."""

    @rule
    def _some(self) -> Iterator[Problem]:
        if self.steps is None and self.epochs is None and self.tokens is None:
            fix = "for example `steps: 150`"
            yield Problem(path="", rule="needs at least one of `steps`, `epochs` and `tokens`", fix=fix)


class Failures(Model):
    """What a run survives by itself."""

    restarts: NonNegativeInt = Aside(3)
    """How often the worker group is started again from the last checkpoint before the job fails; 0: never."""

    hang: Duration = Aside("5m")
    """A step that takes longer than this counts as a hang: stacks are dumped and the group is torn down."""


class Sample(Model):
    """Text that the summary shows at the end, continued by the trained model."""

    prompts: list[Text] = Aside([])
    """What is to be continued."""

    tokens: Whole = Aside(48)
    """New tokens for each prompt."""


class Job(Model):
    """One training run."""

    kind: Literal["Job"] = "Job"
    """The kind of file this is."""

    name: RunName = Aside()
    """The run's name; with `storage` it says which run this is: the same name goes on where it stopped."""

    cluster: Text | None = Aside(None)
    """The cluster file that the job runs on, relative to the working directory; not needed on a laptop."""

    workers: Workers = Aside(Workers.model_construct())
    """Where and on how many accelerators. The result does not depend on it."""

    model: ModelSource
    """The model to train: `name`, or `config`."""

    task: Literal["pretrain", "sft", "mlm"] = "pretrain"
    """Next token of text, answers of a chat, or masked tokens."""

    tokenizer: Tokenizer | None = None
    """The tokenizer: `name`, or `train`. None: the model's own."""

    lora: Lora | None = None
    """Train low-rank adapters instead of the whole model. None: the whole model."""

    masking: Masking = Masking.model_construct()
    """What is hidden from a masked language model."""

    data: Data
    """What is read, and how it becomes sequences."""

    batch: Batch
    """The global batch of one step: `tokens`, or `sequences`."""

    optimizer: Optimizer
    """AdamW and its numbers."""

    schedule: Schedule = Schedule.model_construct()
    """The learning rate over the steps."""

    precision: Literal["bf16", "fp32"] = "bf16"
    """Compute type of matrix products; weights and optimizer state stay fp32."""

    engine: Engine = Aside(Auto.model_construct())
    """What runs the steps: `{kind: torch}`, `{kind: deepspeed, zero: 2}`, `{kind: xla}`; `auto` takes `torch`."""

    checkpoint: Checkpoint = Aside(Checkpoint.model_construct())
    """When the state is saved, and how much stays."""

    evaluate: Evaluate = Aside(Evaluate.model_construct())
    """When held-out loss is measured."""

    stop: Stop = Aside()
    """When the run is complete: `steps`, `epochs` or `tokens`."""

    failures: Failures = Aside(Failures.model_construct())
    """What the run survives by itself."""

    guard: Guard = Guard.model_construct()
    """When a step is not applied: losses and gradients that are not finite, and spikes."""

    loggers: list[Logger] = Aside([])
    """Who is told the metrics beside `metrics.jsonl`: `tensorboard` and `mlflow` write files into the run folder,
    `wandb` needs its package and its key in the environment."""

    profile: Profile | None = Aside(None)
    """Trace a few steps with torch's profiler. None: no."""

    sample: Sample = Aside(Sample.model_construct())
    """Text that the summary shows."""

    environment: dict[Variable, str] = Aside({})
    """Environment variables of every process of the job; each value is text, numbers in quotes."""

    storage: Location | None = Aside(None)
    """The folder or `s3://bucket/prefix` that holds run folders. None: the cluster's shared storage; on a laptop
    `$RAYTRAIN_STORAGE`, else `~/.local/share/raytrain-eks/runs`."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    """Seeds initial weights, data order and dropout."""

    @rule
    def _batch_is_whole_sequences(self) -> Iterator[Problem]:
        length = self.data.sequence_length
        if self.batch.tokens is not None and quantity.count(self.batch.tokens) % length:
            below = quantity.count(self.batch.tokens) // length * length
            why = f"must be a multiple of data.sequence_length, which is {length}"
            fix = f"write {below} or {below + length}" if below else f"write {length}"
            yield Problem(path="batch.tokens", rule=why, fix=fix)

    @rule
    def _batch_can_be(self) -> Iterator[Problem]:
        if self.batch.tokens is self.batch.sequences is None:
            return
        if self.global_sequences > MOST_SEQUENCES:
            path, length = ("sequences", 1) if self.batch.tokens is None else ("tokens", self.data.sequence_length)
            why = f"is more than {MOST_SEQUENCES:,} sequences in one step, and no run has as many"
            yield Problem(path=f"batch.{path}", rule=why, fix=f"write at most {MOST_SEQUENCES * length}")

    @rule
    def _micro_fits(self) -> Iterator[Problem]:
        if self.batch.micro is None or self.batch.tokens is self.batch.sequences is None:
            return
        if self.batch.micro > self.global_sequences:
            why = f"is more than the global batch, which is {counted(self.global_sequences, 'sequence')}"
            yield Problem(path="batch.micro", rule=why, fix="leave it out: it is derived")

    @rule
    def _positions_reach(self) -> Iterator[Problem]:
        positions = self.model.positions
        if positions is not None and positions < self.data.sequence_length:
            why = f"is longer than the model's max_position_embeddings, which is {positions}"
            fix = f"write at most {positions}, or raise the model's"
            yield Problem(path="data.sequence_length", rule=why, fix=fix)

    @rule
    def _tokenizer_fits(self) -> Iterator[Problem]:
        if self.model.config is not None and self.tokenizer is None:
            fix = "for example `tokenizer: {train: {vocab_size: 8192}}`"
            yield Problem(path="tokenizer", rule="a model from a config brings no tokenizer", fix=fix)
        if self.model.name is not None and self.tokenizer is not None and self.tokenizer.train is not None:
            why = "a pretrained model knows only the vocabulary of its own tokenizer"
            yield Problem(path="tokenizer.train", rule=why, fix="leave `tokenizer` out")

    @rule
    def _vocabulary_fits(self) -> Iterator[Problem]:
        size = (self.model.config or {}).get("vocab_size")
        trained = self.tokenizer.train if self.tokenizer is not None else None
        if isinstance(size, int) and trained is not None and size < trained.vocab_size:
            why = f"is smaller than the tokenizer's, which is {trained.vocab_size}"
            yield Problem(path="model.config.vocab_size", rule=why, fix="leave it out: it follows the tokenizer")

    @rule
    def _adapters_need_a_trained_model(self) -> Iterator[Problem]:
        if self.lora is not None and self.model.config is not None:
            why = "adapters on a frozen model with random weights learn nothing"
            yield Problem(path="lora", rule=why, fix="give `model.name`, or leave `lora` out")

    @rule
    def _adapters_are_whole(self) -> Iterator[Problem]:
        tensor = getattr(self.engine, "tensor", 1)
        if self.lora is not None and tensor > 1:
            why = "layers with adapters cannot be split over workers"
            fix = "leave it out; `fsdp: true` shards the frozen model as well"
            yield Problem(path="engine.tensor", value=str(tensor), rule=why, fix=fix)

    @rule
    def _masking_is_mlms(self) -> Iterator[Problem]:
        if "masking" in self.model_fields_set and self.task != "mlm":
            why = f"only masked language models hide tokens; task is {self.task}"
            yield Problem(path="masking", rule=why, fix="write `task: mlm`, or leave `masking` out")

    @rule
    def _epochs_have_an_end(self) -> Iterator[Problem]:
        stop = self.stop
        if stop.epochs is not None and stop.steps is None and stop.tokens is None and not self.data.prepare:
            why = "how long an epoch is shows only when all data is packed, and data.prepare is false"
            yield Problem(path="stop.epochs", rule=why, fix="write `steps` or `tokens`, or `prepare: true`")

    @rule
    def _chats_are_rows(self) -> Iterator[Problem]:
        if self.task == "sft" and self.data.format == "text":
            why = "`task: sft` reads chats from rows, and data.format is text"
            yield Problem(path="data.format", rule=why, fix="write `format: jsonl` or `parquet`")

    @rule
    def _best_needs_held_out_data(self) -> Iterator[Problem]:
        if self.data.evaluate is not None or quantity.share(self.data.held_out) > 0:
            return
        why, fix = "nothing is held out (data.held_out is 0%)", "hold out a few per cent, or give `data.evaluate`"
        if self.evaluate.every is not None:
            yield Problem(path="evaluate.every", rule=f"cannot evaluate: {why}", fix=fix)
        if "keep_best" in self.checkpoint.model_fields_set and self.checkpoint.keep_best:
            yield Problem(path="checkpoint.keep_best", rule=f"no checkpoint is the best: {why}", fix=fix)

    @rule
    def _warmup_ends(self) -> Iterator[Problem]:
        warmup, steps = self.schedule.warmup, self.stop.steps
        if isinstance(warmup, int) and steps is not None and warmup > steps:
            why = f"the run ends during its warm-up: stop.steps is {steps}"
            yield Problem(path="schedule.warmup", rule=why, fix="write a share of the run, such as 3%")

    @rule
    def _stochastic_rounding_is_of_bf16(self) -> Iterator[Problem]:
        if isinstance(self.engine, Xla) and self.engine.stochastic_rounding and self.precision != "bf16":
            why = f"keeps weights in bf16, and precision is {self.precision}"
            yield Problem(path="engine.stochastic_rounding", rule=why, fix="write `precision: bf16`")

    @rule
    def _group_is_a_clusters(self) -> Iterator[Problem]:
        if self.workers.group is not None and self.cluster is None:
            why = "names a worker group, but the job names no cluster file"
            yield Problem(path="workers.group", rule=why, fix="add `cluster: cluster_specs/...yaml`, or leave it out")

    @property
    def global_sequences(self) -> int:
        """Sequences of one optimizer step over all workers."""
        if self.batch.sequences is not None:
            return self.batch.sequences
        return max(quantity.count(self.batch.tokens) // self.data.sequence_length, 1)
