"""A training job, as a researcher writes it. The file says what is to be learnt from what; the rest is derived."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from raytrain_eks.spec import quantity
from raytrain_eks.spec.engine import Auto, Engine
from raytrain_eks.spec.model import Aside, Model
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Count, Cpu, Duration, Interval, Share, StepsOrShare

RUN_NAME = r"^[a-z]([-a-z0-9]{0,45}[a-z0-9])?$"


def _name(value: object) -> object:
    import re

    if isinstance(value, str) and not re.match(RUN_NAME, value):
        raise ValueError("must be a lower-case DNS label of at most 47 letters, digits and dashes (a RayJob's limit)")
    return value


RunName = Annotated[str, BeforeValidator(_name)]


class Workers(Model):
    """Where and on how many accelerators the job runs: one process per accelerator."""

    group: str | None = Aside(None)
    """The worker group of the cluster file. None: the only one there is."""

    nodes: PositiveInt | None = Aside(None)
    """How many nodes of that group."""

    count: PositiveInt | None = Aside(None)
    """Worker processes in all. None: one per accelerator of the nodes; on a laptop, one per two CPUs and at most 2."""

    cpus: Cpu | None = Aside(None)
    """CPUs of one worker process. None: the process's part of its node."""


class ModelSource(Model):
    """The model to train: pretrained by name or folder, or from scratch by a config."""

    name: str | None = None
    """A name on the Hugging Face hub (`meta-llama/Llama-3.1-8B`), or a local folder with a `config.json`."""

    config: dict[str, Any] | None = None
    """A Hugging Face config to train from scratch: `model_type` and the fields that differ from its defaults."""

    def problems(self) -> Iterator[Problem]:
        if (self.name is None) == (self.config is None):
            yield Problem(
                path="",
                rule="needs exactly one of `name` and `config`",
                fix="`name` for a pretrained model, `config` to train one from scratch",
            )
        if self.config is not None and not isinstance(self.config.get("model_type"), str):
            fix = "for example `model_type: llama`"
            yield Problem(path="config.model_type", rule="a config needs the model's family", fix=fix)


class TrainTokenizer(Model):
    """A byte-level BPE tokenizer trained on the job's own training text."""

    vocab_size: Annotated[int, Field(ge=300, le=1_000_000)]
    """Entries of the vocabulary, the 256 bytes and the special tokens included."""

    sample: Count = "16M"
    """Bytes of the training text that the vocabulary is learnt from, taken evenly over the files."""


class Tokenizer(Model):
    """Where the tokenizer comes from. Left out: from the model's own folder or name."""

    name: str | None = None
    """A name on the hub, or a local folder that holds a tokenizer."""

    train: TrainTokenizer | None = None
    """Train one on the job's training text."""

    def problems(self) -> Iterator[Problem]:
        if (self.name is None) == (self.train is None):
            yield Problem(path="", rule="needs exactly one of `name` and `train`")


class Source(Model):
    """One part of a mixture of training data."""

    path: str
    """A folder, a file or a URL (`s3://bucket/prefix`)."""

    weight: PositiveFloat = 1.0
    """Its part of the mixture, relative to the other sources."""


class Data(Model):
    """What is read, and how text becomes sequences."""

    train: str | list[Source]
    """A folder, a file, a URL (`s3://bucket/prefix`), `python-stdlib:` (the source of the standard library of the
    interpreter that runs the job), or a weighted mixture of them."""

    evaluate: str | None = None
    """Held-out data. None: `held_out` of the training files."""

    held_out: Share = "5%"
    """The part of the training files (of the rows of a single file) that is set apart, chosen by a stable hash."""

    format: Literal["text", "jsonl", "parquet", "datasets"] = "text"
    """`text` reads whole files, one document each; the others read rows."""

    files: str = "**/*"
    """Which files of a folder are read, as a glob pattern."""

    column: str = "text"
    """The column with the text, or with the `messages` of a chat."""

    sequence_length: Annotated[int, Field(ge=8)]
    """Tokens of a training sequence; the model's positions must reach that far."""

    pack: bool = True
    """Fill sequences with several documents, without attention across their boundaries."""

    bad_rows: Share = "1%"
    """Unreadable files and rows that are skipped and counted; more than this part of all ends the run."""


class Batch(Model):
    """The global batch of one optimizer step, the same at any number of workers."""

    tokens: Count | None = None
    """Tokens of the global batch, a multiple of `sequence_length`."""

    sequences: PositiveInt | None = None
    """The global batch in sequences; instead of `tokens`."""

    micro: PositiveInt | None = Aside(None)
    """Sequences of one forward and backward pass on one worker. None: derived; accumulation follows from it."""

    def problems(self) -> Iterator[Problem]:
        if (self.tokens is None) == (self.sequences is None):
            yield Problem(path="", rule="needs exactly one of `tokens` and `sequences`")


class Optimizer(Model):
    """AdamW with decoupled weight decay (Loshchilov and Hutter 2019), which skips biases and norms."""

    learning_rate: PositiveFloat
    """The peak of the schedule."""

    weight_decay: NonNegativeFloat = 0.1
    """Decoupled weight decay of matrices; biases and norms have none."""

    betas: tuple[float, float] = (0.9, 0.95)
    """Decay rates of the first and second moment."""

    eps: PositiveFloat = 1e-8
    """Added to the root of the second moment."""

    clip: PositiveFloat | None = 1.0
    """The largest global gradient norm; null: no clipping."""

    def problems(self) -> Iterator[Problem]:
        if not all(0 <= beta < 1 for beta in self.betas):
            yield Problem(path="betas", rule="each must be at least 0 and below 1")


class Schedule(Model):
    """The learning rate over optimizer steps."""

    kind: Literal["cosine", "linear", "constant", "wsd"] = "cosine"
    """`wsd` is warm-up, stable, decay: constant until the last `decay` of the run, then linear to the minimum."""

    warmup: StepsOrShare = "3%"
    """Steps, or the part of the run, in which the rate rises linearly to its peak."""

    minimum: Share = "10%"
    """The rate at the end, as a part of the peak."""

    decay: StepsOrShare = "20%"
    """Only for `wsd`: steps, or the part of the run, in which the rate falls."""


class Lora(Model):
    """Low-rank adapters (Hu et al. 2021) on a frozen model."""

    rank: PositiveInt
    """The inner dimension of the adapters."""

    alpha: PositiveFloat | None = None
    """Scale of the adapters, over the rank. None: twice the rank."""

    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout in front of the adapters."""

    target_modules: list[str] | None = None
    """Names of the linear layers that get one. None: all of them but the head."""


class Checkpoint(Model):
    """When the state is saved, and how much of it stays."""

    every: Interval = Aside("15m")
    """Steps (`500`) or time (`15m`) between checkpoints."""

    keep: PositiveInt = Aside(3)
    """How many of the newest stay; the best by held-out loss stays as well."""

    keep_best: NonNegativeInt = Aside(1)
    """How many of the best by held-out loss stay."""

    mirror: str | None = Aside(None)
    """Where committed checkpoints are copied to, e.g. `s3://bucket/prefix`. None: nowhere."""


class Evaluate(Model):
    """When held-out loss is measured; it always is before the first step and after the last."""

    every: Interval | None = None
    """Steps between evaluations. None: only before and after."""

    sequences: PositiveInt = 64
    """Sequences of an evaluation at most, always the same ones."""


class Stop(Model):
    """When the run is complete; the first condition that holds ends it. Raising one extends a complete run."""

    steps: PositiveInt | None = Aside(None)
    """Optimizer steps."""

    epochs: PositiveFloat | None = Aside(None)
    """Passes over the training data."""

    tokens: Count | None = Aside(None)
    """Tokens of all global batches."""

    def problems(self) -> Iterator[Problem]:
        if self.steps is None and self.epochs is None and self.tokens is None:
            yield Problem(path="", rule="needs at least one of `steps`, `epochs` and `tokens`")


class Failures(Model):
    """What a run survives by itself."""

    restarts: NonNegativeInt = Aside(3)
    """How often the worker group is started again from the last checkpoint before the job fails."""

    hang: Duration = Aside("5m")
    """A step that takes longer than this counts as a hang: stacks are dumped and the group is torn down."""


class Sample(Model):
    """Text that the summary shows at the end, continued by the trained model."""

    prompts: list[str] = Aside([])
    """What is to be continued."""

    tokens: PositiveInt = Aside(48)
    """New tokens for each prompt."""


class Job(Model):
    """One training run."""

    kind: Literal["Job"] = "Job"
    """The kind of file this is."""

    name: RunName
    """The run's name; with `storage` it is the run's identity: the same name goes on where it stopped."""

    cluster: str | None = Aside(None)
    """The cluster file that the job runs on; not needed on a laptop."""

    workers: Workers = Aside(Workers())
    """Where and on how many accelerators."""

    model: ModelSource
    """The model to train."""

    task: Literal["pretrain", "sft", "mlm"] = "pretrain"
    """Next token of text, answers of a chat, or masked tokens."""

    tokenizer: Tokenizer | None = None
    """The tokenizer. None: the model's own."""

    lora: Lora | None = None
    """Train low-rank adapters instead of the whole model."""

    data: Data
    """What is read, and how it becomes sequences."""

    batch: Batch
    """The global batch of one step."""

    optimizer: Optimizer
    """AdamW and its numbers."""

    schedule: Schedule = Schedule()
    """The learning rate over the steps."""

    precision: Literal["bf16", "fp32"] = "bf16"
    """Compute type of matrix products; weights and optimizer state stay fp32 unless the engine says otherwise."""

    engine: Engine = Auto()
    """What runs the steps. `auto` takes `torch`."""

    checkpoint: Checkpoint = Aside(Checkpoint())
    """When the state is saved, and how much stays."""

    evaluate: Evaluate = Aside(Evaluate())
    """When held-out loss is measured."""

    stop: Stop
    """When the run is complete."""

    failures: Failures = Aside(Failures())
    """What the run survives by itself."""

    sample: Sample = Aside(Sample())
    """Text that the summary shows."""

    environment: dict[str, str] = Aside({})
    """Environment variables of every process of the job."""

    storage: str | None = Aside(None)
    """The folder or URL that holds run folders. None: the cluster's shared storage, or `runs` here on a laptop."""

    seed: NonNegativeInt = 0
    """Seeds initial weights, data order and dropout."""

    def problems(self) -> Iterator[Problem]:
        length = self.data.sequence_length
        if self.batch.tokens is not None and quantity.count(self.batch.tokens) % length:
            below = max(quantity.count(self.batch.tokens) // length, 1) * length
            rule = f"must be a multiple of data.sequence_length, which is {length}"
            yield Problem(path="batch.tokens", rule=rule, fix=f"write {below} or {below + length}")
        if self.batch.micro and self.global_sequences % self.batch.micro:
            rule = f"must divide the global batch, which is {self.global_sequences} sequences"
            yield Problem(path="batch.micro", rule=rule)
        positions = (self.model.config or {}).get("max_position_embeddings")
        if isinstance(positions, int) and positions < length:
            yield Problem(
                path="data.sequence_length",
                rule=f"is longer than the model's max_position_embeddings, which is {positions}",
                fix=f"write at most {positions}, or raise the model's",
            )
        if self.model.config is not None and self.tokenizer is None:
            fix = "for example `tokenizer: {train: {vocab_size: 8192}}`"
            yield Problem(path="tokenizer", rule="a model from a config brings no tokenizer", fix=fix)

    @property
    def global_sequences(self) -> int:
        """Sequences of one optimizer step over all workers."""
        if self.batch.sequences is not None:
            return self.batch.sequences
        return max(quantity.count(self.batch.tokens) // self.data.sequence_length, 1)
