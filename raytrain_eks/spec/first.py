"""The text of a first job, sweep or cluster file: short comments, few fields, and valid as it stands."""

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
            _line(f"name: {text(self.name, flow=False)}", "the run's name: the same name goes on where it stopped"),
        ]
        lines += self._where()
        lines += self._model()
        files = ', files: "**/*.py"' if self.data == "python-stdlib:" else ""
        shown = "" if self.format == "text" else f", format: {self.format}"
        lines += [
            f"data: {{train: {text(self.data, flow=True)}{shown}{files}, sequence_length: {self.sequence_length}}}",
            _line(f"batch: {{tokens: {self.batch_tokens}}}", "of the whole step, at any number of workers"),
            f"optimizer: {{learning_rate: {self.learning_rate}}}",
            "schedule: {kind: cosine, warmup: 3%, minimum: 10%}",
            *([] if self.cluster else [_line("precision: fp32", "bf16 is for accelerators")]),
            _line(f"engine: {{kind: {self.engine}}}", "or torch {fsdp: true}, deepspeed {zero: 2}"),
            _line("evaluate: {every: 50}", "steps; the 5% of the files that are held out"),
            _line("checkpoint: {every: 15m, keep: 3}", "steps or time"),
            _line(f"stop: {{steps: {self.steps}}}", "or epochs, or tokens; raise it to go on with a finished run"),
        ]
        return "".join(f"{line}\n" for line in lines)

    def _where(self) -> list[str]:
        if self.cluster is None:
            return ["workers: {count: 2}"]
        chosen = [f"group: {text(self.group, flow=True)}"] if self.group else []
        chosen += [f"nodes: {self.nodes}"] if self.nodes else []
        workers = [_line(f"workers: {{{', '.join(chosen)}}}", "one process per accelerator")] if chosen else []
        return [f"cluster: {text(self.cluster, flow=False)}", *workers]

    def _model(self) -> list[str]:
        if self.model is not None:
            return [f"model: {{name: {text(self.model, flow=True)}}}"]
        return [
            "model:",
            _line("  config:", "from scratch: Hugging Face's own names"),
            "    model_type: llama",
            "    hidden_size: 192",
            "    intermediate_size: 512",
            "    num_hidden_layers: 4",
            "    num_attention_heads: 4",
            f"    max_position_embeddings: {max(512, self.sequence_length)}",
            "    tie_word_embeddings: true",
            _line("tokenizer: {train: {vocab_size: 8192}}", "trained on the job's own text"),
        ]


@dataclass(frozen=True, kw_only=True)
class FirstCluster:
    """What a first cluster file says. Exactly one of `instance` and `gpus`, or neither: pods on nodes that exist."""

    name: str
    region: str
    zone: str | None = None
    instance: str | None = None
    gpus: str | None = None
    nodes: tuple[int, int] = (0, 4)
    capacity: str = "on-demand"
    image: str | None = None
    queue: str | None = None
    eks: str | None = None
    """The EKS cluster's name; None: the same as this one's."""

    def text(self, file: str) -> str:
        """The file; `file` is where it will lie, for the comment that says what to do with it."""
        existing = self.instance is None and self.gpus is None
        lines = [
            "# A training cluster on EKS. Every field: raytrain-eks explain cluster",
            f"#   raytrain-eks validate {file}",
            f"#   raytrain-eks render {file}",
            "kind: Cluster",
            f"name: {text(self.name, flow=False)}",
            "namespace: training",
            f"region: {text(self.region, flow=False)}",
        ]
        lines += [_line(f"eks: {text(self.eks, flow=False)}", "the EKS cluster's name")] if self.eks else []
        lines += (
            [_line(f"zone: {text(self.zone, flow=False)}", "EFA and FSx for Lustre stay within one")]
            if self.zone
            else []
        )
        lines += ['kubernetes: "1.33"', self._ray(), *self._head(existing), "workers:", *self._group(existing)]
        if self.queue:
            lines.append(_line(f"queue: {{kind: {self.queue}, name: training}}", "all pods of a job start, or none"))
        lines += ["provisioner: none"] if existing else []
        lines += [
            "# Data and checkpoints that all nodes share; for an existing file system:",
            "# storage:",
            "#   shared: {kind: efs, filesystem: fs-0123456789abcdef0, size: 1Ti, mount: /shared}",
        ]
        return "".join(f"{line}\n" for line in lines)

    def _ray(self) -> str:
        image = f", image: {text(self.image, flow=True)}" if self.image else ""
        comment = "your image, with torch and this package" if self.image else "image: your own, with torch in it"
        return _line(f"ray: {{version: 2.60.0{image}}}", comment)

    def _head(self, existing: bool) -> list[str]:
        if existing:
            return [_line("head: {instance: null, cpu: 1, memory: 4Gi}", "any node")]
        return [_line("head: {instance: m6i.2xlarge}", "plans and watches, runs no training")]

    def _group(self, existing: bool) -> list[str]:
        low, high = self.nodes
        count = str(high) if low == high else f"{{min: {low}, max: {high}}}"
        if existing:
            count = str(max(low, high))
            return ["  - name: cpu", f"    nodes: {count}", "    cpu: 2", "    memory: 4Gi"]
        kind = f"instance: {text(self.instance, flow=False)}" if self.instance else f"gpus: {self.gpus}"
        return [
            "  - name: main",
            _line(f"    {kind}", "CPU and memory are what fits"),
            f"    nodes: {count}",
            _line(f"    capacity: {self.capacity}", "or spot, reserved, capacity-block"),
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
                _line(f"name: {text(self.name, flow=False)}", "the same name goes on where it stopped"),
                f"job: {text(self.job, flow=False)}",
                _line("space:", "any field of the job, by its path"),
                f"  optimizer.learning_rate: {{kind: loguniform, low: {low}, high: {high}}}",
                "  schedule.warmup: {kind: choice, values: [2%, 5%, 10%]}",
                _line("objective: {metric: eval_loss, mode: min}", "or bits_per_byte, train_loss"),
                _line("search: {kind: random}", "or grid, optuna"),
                _line("scheduler: {kind: asha}", "or none, median, pbt"),
                f"trials: {self.trials}",
                "",
            ]
        )


def _line(content: str, comment: str) -> str:
    return f"{content:<{_COLUMN}}  # {comment}" if len(content) < _COLUMN else f"{content}  # {comment}"
