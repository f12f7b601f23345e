"""What a status says of goodput and utilisation, from the lines of a run's own folder."""

import json
from pathlib import Path

import pytest

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.job import Job
from raytrain_eks.submit import run_status
from raytrain_eks.submit.run_status import facts, status

TEXT = """\
kind: Job
name: left
model: {name: m}
data: {train: ./texts, sequence_length: 32}
batch: {sequences: 2}
optimizer: {learning_rate: 1.0e-3}
stop: {steps: 9}
"""


class Nowhere:
    name, shares_files = "local", True

    def job(self, id):
        return None

    def jobs(self):
        return []


def lines(folder: Path, **more: float) -> None:
    run = RunFolder(str(folder), "left")
    run.claim(Job.read(TEXT, "left.yaml"), text=TEXT)
    step = {"loss": 5.0, "tokens": 64, "step_seconds": 2.0, "data_seconds": 0.5, "attempt": 1} | more
    told = [step | {"step": number, "time": 100.0 + 2 * number} for number in (1, 2, 3)]
    (folder / "left" / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in told))
    event = {"event": "worker", "seconds": 3.0, "time": 100.0, "attempt": 1}
    (folder / "left" / "events.jsonl").write_text(json.dumps(event) + "\n")


def test_goodput_and_utilisation_of_any_run(tmp_path):
    lines(tmp_path, mfu=0.415)
    found = status("left", storage=str(tmp_path), target=Nowhere(), job_id=None)
    assert found.goodput == pytest.approx(4.5 / 9.0, abs=1e-3), (
        "three steps without their wait for data, of nine seconds"
    )
    assert found.mfu == 0.415
    assert facts(found)["mfu"] == "41.5%"
    assert str(facts(found)["goodput"]).startswith("50.0%")


def test_a_run_that_is_too_long_has_none(tmp_path, monkeypatch):
    lines(tmp_path)
    monkeypatch.setattr(run_status, "LEDGER_LIMIT", 10)
    found = status("left", storage=str(tmp_path), target=Nowhere(), job_id=None)
    assert (found.goodput, found.mfu, found.step) == (None, None, 3)
