"""The loop with real data, engine and checkpoints in one process: guards, rewinds, reports, profile."""

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.data.prepare import prepare
from raytrain_eks.spec.job import Job
from raytrain_eks.train.assembly import assemble
from raytrain_eks.train.journal import Journal
from raytrain_eks.train.loggers import Loggers
from raytrain_eks.train.loop import Spoilt
from raytrain_eks.train.watch import Watch

pytestmark = pytest.mark.slow


def job_of(folder: Path, steps: int = 12, **top) -> Job:
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    fields = {
        "name": "one",
        "model": {"config": {"model_type": "llama", "max_position_embeddings": 64, **sizes}},
        "tokenizer": {"train": {"vocab_size": 300}},
        "data": {"train": str(folder / "text"), "sequence_length": 32},
        "batch": {"sequences": 4},
        "optimizer": {"learning_rate": 1e-3},
        "precision": "fp32",
        "checkpoint": {"every": 2},
        "evaluate": {"sequences": 4},
        "stop": {"steps": steps},
    }
    return Job.parse(fields | top)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "text").mkdir()
    for number in range(30):
        words = " ".join(f"word{(number * index) % 17}" for index in range(120))
        (tmp_path / "text" / f"{number:02d}.txt").write_text(words + "\n")
    return tmp_path


class Rank:
    """What a worker is to its parts, without Ray."""

    def __init__(self, job: Job, folder: Path):
        self.job, self.rank, self.world, self.stop = job, 0, 1, False
        self.run = RunFolder(Storage.of(folder / "runs"), job.name)
        prepared = prepare(job, folder / "runs", execute=lambda work, units: map(work, units))
        self.task = SimpleNamespace(prepared=prepared.url, steps=job.stop.steps)
        self.attempt = self.run.claim(job)
        self.loggers = Loggers(job, self.run.storage.folder, 1)
        self.journal = Journal(self.run.storage, every=60, listen=self.loggers.add)
        self.watch = Watch(self.run.storage, attempt=1, rank=0, world=1, limit=600, say=print)
        self.notice, self.pilot = (lambda: False), None
        self.loop = assemble(self).loop

    def event(self, name: str, **fields) -> None:
        self.journal.add("events.jsonl", event=name, **fields)

    def tell(self, event: dict) -> None:
        self.event(**{"name" if key == "event" else key: value for key, value in event.items()})

    def go(self) -> list[dict]:
        """Run the loop to its end; the lines of its metrics."""
        try:
            self.loop.run()
        finally:
            self.loop.saver.wait()
            self.loop.stream.close()
            self.journal.close()
        return list(self.run.lines("metrics.jsonl"))

    def events(self, name: str) -> list[dict]:
        return [event for event in self.run.lines("events.jsonl") if event["event"] == name]


def poison(loop, when, what) -> None:
    """Let the loss, or the gradients, of the steps that `when(ids)` names be `what`."""
    micro_step, drawn = loop.engine.micro_step, loop.stream.next
    state = SimpleNamespace(ids=[])

    def next_step():
        step = drawn()
        state.ids = list(step.ids)
        return step

    def poisoned(batch, tokens, *, last):
        loss = micro_step(batch, tokens, last=last)
        if not when(state.ids):
            return loss
        if what == "gradient":
            next(iter(loop.engine.model.parameters())).grad.fill_(math.nan)
            return loss
        return torch.full_like(loss, what)

    loop.engine.micro_step, loop.stream.next = poisoned, next_step


def weights(loop) -> dict:
    return {name: weight.detach().clone() for name, weight in loop.engine.model.named_parameters()}


@pytest.mark.parametrize("what", [math.nan, math.inf, 1e9, "gradient"])
def test_a_poisoned_step_is_not_applied_and_its_batch_is_named(folder, what):
    rank = Rank(job_of(folder, guard={"window": 4}), folder)
    seen, before = [], {}

    def sixth(ids):
        if ids not in seen:
            seen.append(ids)
        if len(seen) == 6:
            before.update(weights(rank.loop))
        if len(seen) == 7 and before:
            after = weights(rank.loop)
            assert all(torch.equal(before[name], after[name]) for name in before)
            before.clear()
        return len(seen) == 6

    poison(rank.loop, sixth, what)
    lines = rank.go()
    assert [line["step"] for line in lines if "refused" in line] == [6]
    (refused,) = rank.events("refused")
    assert refused["ids"] == seen[5]
    assert [line["step"] for line in lines] == list(range(1, 13))
    assert all(math.isfinite(float(line["loss"])) for line in lines if "refused" not in line)
    assert not before


def test_after_so_many_in_a_row_the_run_goes_back_and_does_not_read_them_again(folder):
    rank = Rank(job_of(folder, guard={"in_a_row": 3, "rewinds": 1}), folder)
    seen = []

    def window(ids):
        if ids not in seen:
            seen.append(ids)
        return 6 <= len(seen) <= 8

    poison(rank.loop, window, math.nan)
    lines = rank.go()
    (rewound,) = rank.events("rewound")
    assert (rewound["step"], rewound["to"]) == (8, 4)
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6, 7, 8, 5, 6, 7, 8, 9, 10, 11, 12]
    firsts = [line["first_id"] for line in lines]
    assert len(set(firsts)) == len(firsts)
    assert all("refused" not in line for line in lines[8:])


def test_a_run_that_stays_bad_fails_with_the_reason(folder):
    rank = Rank(job_of(folder, guard={"in_a_row": 2, "rewinds": 1}), folder)
    poison(rank.loop, lambda ids: rank.loop.progress.step >= 4, math.nan)
    with pytest.raises(Spoilt, match="as often as it may"):
        rank.go()


def test_what_is_reported(folder):
    rank = Rank(job_of(folder), folder)
    lines = rank.go()
    for line in lines:
        parts = line["data_seconds"] + line["compute_seconds"] + line["optimizer_seconds"]
        assert parts == pytest.approx(line["step_seconds"], abs=1e-4)
        assert line["tokens_per_second"] > 0
        assert "mfu" not in line  # a CPU has no peak in the catalogue
    assert json.loads((folder / "runs" / "one" / "attempts" / "0001.json").read_text())["attempt"] == 1


def test_a_trace_of_the_steps_that_were_asked_for(folder):
    rank = Rank(job_of(folder, steps=5, profile={"steps": [2, 3]}), folder)
    rank.go()
    (profiled,) = rank.events("profiled")
    assert profiled["step"] == 3
    trace = json.loads((folder / "runs" / "one" / profiled["file"]).read_text())
    assert sum("AdamW.step" in str(event.get("name")) for event in trace["traceEvents"]) == 2


def tensorboard_events(content: bytes) -> list:
    """The events of a TFRecord file: length (8 bytes), its checksum (4), the record, its checksum (4)."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    while content:
        size = int.from_bytes(content[:8], "little")
        found.append(Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    return found


def test_tensorboard_gets_every_step(folder):
    rank = Rank(job_of(folder, steps=5, loggers=["tensorboard"]), folder)
    rank.go()
    rank.loggers.close()
    (written,) = (folder / "runs" / "one" / "tensorboard").iterdir()
    (file,) = written.iterdir()
    found = [
        (event.step, value.tag) for event in tensorboard_events(file.read_bytes()) for value in event.summary.value
    ]
    assert [step for step, tag in found if tag == "loss"] == [1, 2, 3, 4, 5]
    assert [step for step, tag in found if tag == "held_out_loss"] == [0, 5]


def test_resuming_in_another_process_judges_as_before(folder):
    job = job_of(folder, guard={"window": 4})
    first = Rank(job_of(folder, steps=6, guard={"window": 4}), folder)
    first.go()
    second = Rank(job, folder)
    assert list(second.loop.sentry.losses) == list(first.loop.sentry.losses)
    assert second.loop.progress.step == 6
    second.go()


@pytest.mark.parametrize(("again", "saved"), [(3600.0, [4, 12]), (0.0, list(range(4, 13)))])
def test_once_the_machine_will_be_taken_away_a_checkpoint_is_made_at_once_and_again(folder, monkeypatch, again, saved):
    monkeypatch.setattr("raytrain_eks.train.loop.AGAIN", again)
    rank = Rank(job_of(folder, checkpoint={"every": 100}), folder)
    rank.loop.reclaimed = lambda: rank.loop.progress.step >= 3
    rank.go()
    assert [event["step"] for event in rank.events("reclaimed")] == [4]
    assert [event["step"] for event in rank.events("save")] == saved


class Pilot:
    """Says at each of its steps what it was told to say, in turn, and remembers what the loop told."""

    def __init__(self, *words: bool):
        self.words, self.asked, self.steps = list(words), [], []

    def waits(self, step: int) -> bool:
        return step in (4, 8)

    def stepped(self, progress, loss) -> None:
        self.steps.append(progress.step)

    def evaluated(self, progress) -> None:
        pass

    def goes_on(self, progress) -> bool:
        self.asked.append((progress.step, progress.held_last))
        return self.words.pop(0)


def test_at_a_pilot_s_step_the_run_saves_evaluates_and_waits_for_the_word(folder):
    clean = Rank(job_of(folder), folder)
    losses = [line["loss"] for line in clean.go()]
    (folder / "runs" / "one").rename(folder / "clean")
    first = Rank(job_of(folder), folder)
    first.loop.pilot = Pilot(True, False)
    first.go()
    # Not one step beyond the place at which it was stopped.
    assert first.loop.pilot.steps == list(range(1, 9))
    assert [step for step, held in first.loop.pilot.asked if held is not None] == [4, 8]
    assert first.run.storage.exists("checkpoints/step-00000008/manifest.json")
    # As after a crash while it waited: it asks again before it does anything.
    second = Rank(job_of(folder), folder)
    second.loop.pilot = Pilot(False)
    second.go()
    assert (second.loop.pilot.steps, second.loop.pilot.asked) == ([], first.loop.pilot.asked[1:])
    third = Rank(job_of(folder), folder)
    third.loop.pilot = Pilot(True)
    assert [line["loss"] for line in third.go()] == losses
