"""The driver's progress lines are read as they are written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.submit.progress import Progress, parse
from raytrain_eks.train.progress import Lines, duration


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "step 25/150  loss 6.1234  lr 2.9e-03  4096 tok/s  eta 1m30s",
            Progress(25, 150, 6.1234, 2.9e-3, 4096.0, 90.0),
        ),
        ("step 1/3  loss nan  lr 1.0e-05  7 tok/s  eta 2h05m", None),
        ("step 150/150  loss 5.0000  lr 3.0e-04  900 tok/s  eta 0s", Progress(150, 150, 5.0, 3e-4, 900.0, 0.0)),
        ("step 7/9  loss 4.2", Progress(7, 9, 4.2, None, None, None)),
        ("step 7/9", None),
        ("step 50  held-out loss 5.5", None),
        ("(TrainWorker pid=1) step 25/150  loss 6.1", None),
        ("", None),
    ],
)
def test_a_line(line, expected):
    if "nan" in line:
        found = parse(line)
        assert found is not None
        assert found.loss is not None
        assert found.loss != found.loss
        assert found.eta_s == 7500
    else:
        assert parse(line) == expected


def test_what_the_driver_writes_is_read():
    lines = Lines(150, every=0.0)
    step = {"step": 25, "loss": 6.1234, "learning_rate": 2.9e-3, "tokens": 4096, "step_seconds": 1.0, "attempt": 1}
    found = [parse(line) for line in lines.of([step])]
    assert [(told.step, told.steps, told.loss) for told in found if told] == [(25, 150, 6.1234)]


@given(st.floats(0, 10**7))
def test_durations_are_read_as_they_are_written(seconds):
    told = parse(f"step 1/2  loss 1.0  eta {duration(seconds)}")
    assert told is not None
    assert told.eta_s is not None
    assert abs(told.eta_s - seconds) <= (3600 if seconds >= 86400 else 60 if seconds >= 3600 else 0.5)


def test_the_share_of_a_run_is_never_over_one():
    assert Progress(5, 4, None, None, None, None).share == 1.0
    assert Progress(0, 0, None, None, None, None).share == 0.0
