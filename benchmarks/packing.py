"""Real tokens a second: our loop over packed rows beside Hugging Face's Trainer over padded ones.

    python benchmarks/packing.py [--rounds N] [--steps N]

Both train the same small Llama in this process on the same documents, cut at the same length, 8 rows a step, with the
same optimizer and one thread, and take turns. Document lengths are log-normal, as those of instruction data are. A real
token is one that is not padding. The Trainer pads as its collator does by default, to the longest of a batch, and to
the full length. (Its grouping by length is left out: in so few steps it would show the longest documents only.) `ratio`
is by the clock, the median of the rounds; `processor` by processor time, which other work on the machine hardly moves.
`fill` is the part of all positions that holds text; `packing` is the time to pack and assemble the rows of a step, and
`wait` the time that the loop waited for them, both over the time of a step.
"""

import argparse
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LENGTH, ROWS, DOCUMENTS, SEED = 256, 8, 4000, 0
MEDIAN, SPREAD = 130, 1.0
"""Characters of a document: the median, and the standard deviation of the logarithm."""
MODEL = {"hidden_size": 128, "intermediate_size": 344, "num_hidden_layers": 3, "num_attention_heads": 4}
MODEL |= {"max_position_embeddings": LENGTH}
WARM, STEPS, ROUNDS = 2, 8, 4
WAYS: dict[str, int | None] = {"padded to the longest": None, "padded to the full length": LENGTH}
"""How the Trainer pads, and what its rows are a multiple of."""
TARGET = 2.5
"""The least that our speed over the Trainer's should be."""


def now() -> tuple[float, float]:
    """Seconds of the clock, and of this process's processors."""
    return time.perf_counter(), time.process_time()


@dataclass
class Taken:
    """What the timed steps of one side did."""

    tokens: int = 0
    positions: int = 0
    seconds: float = 0.0
    processor: float = 0.0
    rounds: list[float] = field(default_factory=list)
    """Real tokens a second of each round."""

    def add(self, tokens: int, positions: int, began: tuple[float, float], ended: tuple[float, float]) -> None:
        """Count a round."""
        seconds = ended[0] - began[0]
        self.tokens, self.positions = self.tokens + tokens, self.positions + positions
        self.seconds, self.processor = self.seconds + seconds, self.processor + ended[1] - began[1]
        self.rounds.append(tokens / seconds)


def write_documents(folder: Path) -> None:
    """Pieces of the standard library's source whose lengths are log-normal, as JSON lines."""
    draw = random.Random(SEED)
    source = "\n".join(path.read_text("utf-8") for path in sorted(Path(os.__file__).parent.glob("*.py"))[:120])
    with (folder / "documents.jsonl").open("w") as file:
        for _ in range(DOCUMENTS):
            size = max(round(draw.lognormvariate(math.log(MEDIAN), SPREAD)), 8)
            at = draw.randrange(len(source) - size) if size < len(source) else 0
            file.write(json.dumps({"text": source[at : at + size]}) + "\n")


def job_of(folder: Path) -> Any:
    """The job that our side trains."""
    from raytrain_eks.spec.job import Job

    data = {"train": str(folder), "format": "jsonl", "column": "text", "sequence_length": LENGTH, "held_out": "1%"}
    return Job.parse(
        {
            "name": "bench-packing",
            "model": {"config": {"model_type": "llama", **MODEL}},
            "tokenizer": {"train": {"vocab_size": 1024}},
            "data": data,
            "batch": {"sequences": ROWS, "micro": ROWS},
            "optimizer": {"learning_rate": 1e-3},
            "precision": "fp32",
            "checkpoint": {"every": 10**6},
            "stop": {"steps": 10**6},
        }
    )


class Ours:
    """Our loop, on one rank."""

    def __init__(self, job: Any, prepared: Any, model: Any, folder: Path):
        from raytrain_eks.checkpoint.storage import Storage
        from raytrain_eks.data.stream import Stream
        from raytrain_eks.plan.batch import split_of
        from raytrain_eks.train import engines
        from raytrain_eks.train.guard import Sentry
        from raytrain_eks.train.journal import Journal
        from raytrain_eks.train.loop import Loop
        from raytrain_eks.train.profile import Profiler
        from raytrain_eks.train.watch import Watch

        self.folder, storage = folder, Storage.of(folder)
        split = split_of(job, 1)
        self.stream = Stream.of(prepared, job, rank=0, world=1, micro=split.micro, state=None)
        self.tokens: list[int] = []
        self.marks: list[tuple[float, float]] = []
        self.journal = Journal(storage)
        self.loop = Loop(
            job=job,
            engine=engines.build(job, model, rank=0, world=1, micro=split.micro, accumulation=split.accumulation),
            stream=SimpleNamespace(next=self._next, state=self.stream.state),
            held_out=SimpleNamespace(batches=[], targets=0, bytes=0),
            saver=SimpleNamespace(save=lambda *args, **more: None, wait=lambda: None),
            split=split,
            rank=0,
            sentry=Sentry(job.guard),
            rewind=lambda: None,
            speed=lambda tokens, seconds: {"tokens_per_second": tokens / seconds},
            steps=10**6,
            journal=self.journal,
            attempt=1,
            watch=Watch(storage, attempt=1, rank=0, world=1, limit=3600, say=print),
            profiler=Profiler(job.profile, storage, attempt=1, rank=0),
            stop_requested=lambda: False,
        )
        self.taken, self.waits = Taken(), 0.0

    def _next(self) -> Any:
        self.marks.append(now())
        step = self.stream.next()
        self.tokens.append(sum(int((each["segment_ids"] > 0).sum()) for each in step.micro_batches))
        return step

    def round(self, steps: int) -> None:
        """Train on; the first steps of a round are not counted."""
        self.tokens, self.marks = [], []
        self.loop.steps = self.loop.progress.step + WARM + steps
        self.loop.run()
        self.taken.add(sum(self.tokens[WARM:]), steps * ROWS * LENGTH, self.marks[WARM], now())
        self.journal.flush()
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        self.waits += sum(line["data_seconds"] for line in lines[-steps:])

    def close(self) -> None:
        """Stop the threads."""
        self.stream.close()
        self.journal.close()


class Theirs:
    """Hugging Face's Trainer with one way of padding."""

    def __init__(self, model: Any, tokenizer: Any, pieces: list[list[int]], way: str, folder: Path):
        self.model, self.tokenizer, self.pieces, self.folder = model, tokenizer, pieces, folder
        self.multiple = WAYS[way]
        self.taken = Taken()

    def round(self, steps: int, seed: int) -> None:
        """Train with a Trainer of its own; the first steps are not counted."""
        from transformers import (
            DataCollatorForLanguageModeling,
            PrinterCallback,
            Trainer,
            TrainerCallback,
            TrainingArguments,
        )

        marks: list[tuple[tuple[float, float], int, int]] = []
        seen = [0, 0]

        class Counted(Trainer):  # type: ignore[misc]
            def training_step(self, model: Any, inputs: Any, *more: Any, **named: Any) -> Any:
                seen[0] += int(inputs["attention_mask"].sum())
                seen[1] += inputs["attention_mask"].numel()
                return super().training_step(model, inputs, *more, **named)

        class Marks(TrainerCallback):  # type: ignore[misc]
            def on_step_end(self, *_: Any, **__: Any) -> None:
                marks.append((now(), *seen))

        arguments = TrainingArguments(
            output_dir=str(self.folder),
            per_device_train_batch_size=ROWS,
            max_steps=WARM + steps,
            learning_rate=1e-3,
            weight_decay=0.1,
            adam_beta2=0.95,
            optim="adamw_torch_fused",
            max_grad_norm=1.0,
            use_cpu=True,
            seed=seed,
            report_to=[],
            save_strategy="no",
            logging_strategy="no",
            disable_tqdm=True,
            dataloader_pin_memory=False,
        )
        collator = DataCollatorForLanguageModeling(self.tokenizer, mlm=False, pad_to_multiple_of=self.multiple)
        rows = [{"input_ids": piece, "attention_mask": [1] * len(piece)} for piece in self.pieces]
        trainer = Counted(model=self.model, args=arguments, train_dataset=rows, data_collator=collator)
        trainer.add_callback(Marks())
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        first, last = marks[WARM - 1], marks[-1]
        self.taken.add(last[1] - first[1], last[2] - first[2], first[0], last[0])


def prepared_of(job: Any, folder: Path) -> tuple[Any, list[list[int]], float]:
    """Packed rows, the same documents as pieces of token ids, and the seconds that packing takes per row."""
    from raytrain_eks.data import execution, tokenizer
    from raytrain_eks.data.packing import batch, pack
    from raytrain_eks.data.prepare import prepare

    prepared = prepare(job, folder, execute=execution.here)
    pieces: list[list[int]] = []
    for unit in range(prepared.units[0][1]):
        rows = prepared.read(unit)
        for index, sizes in enumerate(rows.segments):
            ends = sizes.cumsum()
            pieces += [rows.tokens[index, end - size : end].tolist() for size, end in zip(sizes, ends, strict=True)]
    random.Random(SEED).shuffle(pieces)
    import numpy as np

    documents = [np.array(piece) for piece in pieces]
    began = time.perf_counter()
    packed = pack(
        documents, length=LENGTH, pad=prepared.pad, token_bytes=tokenizer.token_bytes(prepared.tokenizer_folder())
    )
    for at in range(0, len(packed) - ROWS, ROWS):
        batch([(packed, at + row) for row in range(ROWS)], length=LENGTH, pad=prepared.pad)
    return prepared, pieces, (time.perf_counter() - began) / len(packed)


def models(job: Any, prepared: Any, count: int) -> list[Any]:
    """The same model so many times."""
    import copy

    from raytrain_eks.train.model import build_model, model_config

    model = build_model(job, model_config(job, prepared.tokenizer()))
    return [copy.deepcopy(model) for _ in range(count)]


def rows(rounds: int = ROUNDS, steps: int = STEPS) -> list[dict[str, Any]]:
    """A row for each way of padding, and one for the packing itself."""
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
    sys.path.insert(0, str(ROOT))
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="bench-packing-") as name:
        folder = Path(name)
        (folder / "documents").mkdir()
        write_documents(folder / "documents")
        job = job_of(folder / "documents")
        prepared, pieces, per_row = prepared_of(job, folder)
        first, *others = models(job, prepared, 1 + len(WAYS))
        tokenizer = prepared.tokenizer()
        ours = Ours(job, prepared, first, folder / "run")
        theirs = {way: Theirs(model, tokenizer, pieces, way, folder) for way, model in zip(WAYS, others, strict=True)}
        try:
            for turn in range(rounds):
                for side in theirs.values():
                    side.round(steps, turn)
                ours.round(steps)
        finally:
            ours.close()
    return [
        *(beside(ours.taken, side, way) for way, side in theirs.items()),
        about(ours, prepared, per_row, rounds * steps),
    ]


def beside(ours: Taken, theirs: Theirs, way: str) -> dict[str, Any]:
    """Our speed over that of one way of padding."""
    ratios = [mine / other for mine, other in zip(ours.rounds, theirs.taken.rounds, strict=True)]
    return {
        "benchmark": "packing",
        "what": f"real tokens/s over Trainer, {way}",
        "tokens_per_s": round(statistics.median(ours.rounds)),
        "beside": round(statistics.median(theirs.taken.rounds)),
        "its_fill": round(theirs.taken.tokens / theirs.taken.positions, 3),
        "ratio": round(statistics.median(ratios), 2),
        "processor": round(ours.tokens / ours.processor * theirs.taken.processor / theirs.taken.tokens, 2),
        "min_max": [round(min(ratios), 2), round(max(ratios), 2)],
        "target": f">= {TARGET}",
    }


def about(ours: Ours, prepared: Any, per_row: float, steps: int) -> dict[str, Any]:
    """How full the packed rows are, and what that costs."""
    step = ours.taken.seconds / steps
    return {
        "benchmark": "packing",
        "what": "fill of packed rows, and its cost",
        "fill": round(prepared.fill, 4),
        "packing": f"{per_row * ROWS / step:.2%}",
        "wait": f"{ours.waits / ours.taken.seconds:.2%}",
        "step_ms": round(step * 1000, 1),
        "target": "fill >= 0.99, packing < 1 % of a step",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    found = rows(given.rounds, given.steps)
    for row in found:
        facts = ", ".join(f"{key} {value}" for key, value in row.items() if key not in ("benchmark", "what"))
        print(f"{row['what']:55} {facts}", file=sys.stderr)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
