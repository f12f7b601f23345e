"""Progress lines have one fixed form, and come at most every two seconds of training."""

import pytest

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.train.journal import Journal
from raytrain_eks.train.progress import Lines, duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0s"), (59.6, "1m00s"), (45, "45s"), (90, "1m30s"), (7500, "2h05m"), (273600, "3d04h"), (-3, "0s")],
)
def test_durations_for_people(seconds, text):
    assert duration(seconds) == text


def metrics(step, loss=6.12345, seconds=0.5):
    return {"step": step, "loss": loss, "learning_rate": 0.0029, "tokens": 2048, "step_seconds": seconds}


def test_the_fixed_form():
    assert Lines(150).of([metrics(1)]) == ["step 1/150  loss 6.1235  lr 2.9e-03  4096 tok/s  eta 1m14s"]


def test_lines_come_every_two_seconds_and_for_the_last_step():
    lines = Lines(10).of(metrics(step) for step in range(1, 11))
    assert [line.split()[1] for line in lines] == ["1/10", "5/10", "9/10", "10/10"]


def test_held_out_loss_has_a_line_of_its_own():
    line = {"step": 50, "held_out_loss": 5.5, "bits_per_byte": 2.25}
    assert Lines(150).of([line]) == ["step 50/150  held-out loss 5.5000  2.2500 bits per byte"]


def test_the_journal_keeps_lines_that_could_not_be_written(tmp_path):
    (tmp_path / "run").write_text("a file where the folder should be")
    journal = Journal(Storage.of(tmp_path / "run"), every=60)
    journal.add("m", step=1, loss=float("nan"))
    journal.flush()
    assert journal.errors == 1
    (tmp_path / "run").unlink()
    journal.add("m", step=2)
    journal.close()
    assert (tmp_path / "run" / "m").read_text() == '{"step": 1, "loss": "nan"}\n{"step": 2}\n'


def test_the_log_tells_where_each_rank_is():
    ranks = [{"host": host, "pid": pid, "node": node} for host, pid, node in [("a", 7, "n1"), ("b", 7, "n2")] * 2]
    told = Lines(10).of([{"event": "worker", "ranks": ranks}])
    assert told == ["ranks on a (node n1): 0=7 2=7", "ranks on b (node n2): 1=7 3=7"]
