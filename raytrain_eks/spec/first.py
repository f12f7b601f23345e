"""The text of a first job or sweep file: short comments, few fields, and valid as it stands."""

from dataclasses import dataclass

from raytrain_eks.spec.write import number, text

_COLUMN = 44
"""Where comments behind a line begin, when the line is shorter."""


@dataclass(frozen=True, kw_only=True)
class FirstJob:
    """What a first job file says; the defaults train a small model on a laptop in minutes."""

    name: str
    model: str | None = None
    """A name on the hub or a local folder; None: a small Llama from scratch."""
    data: str = "python-stdlib:"
    format: str = "text"
    sequence_length: int = 256
    batch_tokens: str = "4096"
    learning_rate: str = "3.0e-3"
    steps: int = 150
    cluster: str | None = None
    group: str | None = None
    nodes: int | None = None
    engine: str = "torch"

    def text(self, file: str) -> str:
        """The file; `file` is where it will lie, for the comment that says how to run it."""
        on = "http://HEAD:8265" if self.cluster else "local"
        lines = [
            "# A training job. Every field: raytrain-eks explain job",
            f"#   raytrain-eks validate {file}",
            f"#   raytrain-eks submit {file} --on {on} --follow",
            "kind: Job",
            line(f"name: {text(self.name, flow=False)}", "the run's name: the same name goes on where it stopped"),
        ]
        lines += self._where()
        lines += self._model()
        files = ', files: "**/*.py"' if self.data == "python-stdlib:" else ""
        shown = "" if self.format == "text" else f", format: {self.format}"
        lines += [
            f"data: {{train: {text(self.data, flow=True)}{shown}{files}, sequence_length: {self.sequence_length}}}",
            line(f"batch: {{tokens: {self.batch_tokens}}}", "of the whole step, at any number of workers"),
            f"optimizer: {{learning_rate: {self.learning_rate}}}",
            "schedule: {kind: cosine, warmup: 3%, minimum: 10%}",
            *([] if self.cluster else [line("precision: fp32", "bf16 is for accelerators")]),
            line(f"engine: {{kind: {self.engine}}}", "or torch {fsdp: true}, deepspeed {zero: 2}"),
            line("evaluate: {every: 50}", "steps; the 5% of the files that are held out"),
            line("checkpoint: {every: 15m, keep: 3}", "steps or time"),
            line(f"stop: {{steps: {self.steps}}}", "or epochs, or tokens; raise it to go on with a finished run"),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _where(self) -> list[str]:
        if self.cluster is None:
            return ["workers: {count: 2}"]
        chosen = [f"group: {text(self.group, flow=True)}"] if self.group else []
        chosen += [f"nodes: {self.nodes}"] if self.nodes else []
        workers = [line(f"workers: {{{', '.join(chosen)}}}", "one process per accelerator")] if chosen else []
        return [f"cluster: {text(self.cluster, flow=False)}", *workers]

    def _model(self) -> list[str]:
        if self.model is not None:
            return [f"model: {{name: {text(self.model, flow=True)}}}"]
        return [
            "model:",
            line("  config:", "from scratch: Hugging Face's own names"),
            "    model_type: llama",
            "    hidden_size: 192",
            "    intermediate_size: 512",
            "    num_hidden_layers: 4",
            "    num_attention_heads: 4",
            f"    max_position_embeddings: {max(512, self.sequence_length)}",
            "    tie_word_embeddings: true",
            line("tokenizer: {train: {vocab_size: 8192}}", "trained on the job's own text"),
        ]


@dataclass(frozen=True, kw_only=True)
class FirstSweep:
    """What a first sweep file says: learning rate and warm-up of a job, most trials stopped early."""

    name: str
    job: str
    """The job file."""
    rate: float
    """The job's learning rate; a tenth of it to three times as much is searched."""
    trials: int = 8

    def text(self, file: str) -> str:
        """The file; `file` is where it will lie, for the comment that says how to run it."""
        low, high = (number(float(f"{self.rate * factor:.2g}")) for factor in (0.1, 3))
        return "\n".join(
            [
                "# Many trials of one job. Every field: raytrain-eks explain sweep",
                f"#   raytrain-eks validate {file}",
                f"#   raytrain-eks sweep {file} --on local --follow",
                "kind: Sweep",
                line(f"name: {text(self.name, flow=False)}", "the same name goes on where it stopped"),
                f"job: {text(self.job, flow=False)}",
                line("space:", "any field of the job, by its path"),
                f"  optimizer.learning_rate: {{kind: loguniform, low: {low}, high: {high}}}",
                "  schedule.warmup: {kind: choice, values: [2%, 5%, 10%]}",
                line("objective: {metric: eval_loss, mode: min}", "or bits_per_byte, train_loss"),
                line("search: {kind: random}", "or grid, optuna"),
                line("scheduler: {kind: asha}", "or none, median, pbt"),
                f"trials: {self.trials}",
                "",
            ]
        )


def line(content: str, comment: str) -> str:
    """A line of a file with a comment behind it, in the same column as the others' where it is short enough."""
    return f"{content:<{_COLUMN}}  # {comment}" if len(content) < _COLUMN else f"{content}  # {comment}"
