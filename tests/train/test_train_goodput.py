"""Where the time of a run went, from lines that could be its own."""

import pytest

from raytrain_eks.train.goodput import ledger


def step(number, time, attempt=1, took=2.0, data=0.5):
    return {"step": number, "time": time, "attempt": attempt, "step_seconds": took, "data_seconds": data}


def event(name, time, attempt=1, **more):
    return {"event": name, "time": time, "attempt": attempt, **more}


def test_a_run_without_a_crash():
    events = [event("worker", 110, seconds=10), event("evaluated", 114, took=1.0), event("evaluated", 121, took=1.0)]
    found = ledger([step(1, 116), step(2, 118), step(3, 120)], events)
    expected = {"productive": 4.5, "data": 1.5, "redone": 0, "evaluation": 2, "stalls": 0, "startup": 13, "idle": 0}
    assert found == pytest.approx(expected | {"goodput": 4.5 / 21}, abs=1e-3)


def test_steps_that_were_done_again_and_the_time_between():
    metrics = [step(1, 112), step(2, 114), step(3, 116), step(3, 142, 2), step(4, 144, 2)]
    events = [
        event("worker", 110, seconds=0),
        event("worker", 135, 2, seconds=5),
        event("save", 114, stall_seconds=0.25),
    ]
    found = ledger(metrics, events)
    assert found["redone"] == 2
    assert found["productive"] == 6
    assert found["idle"] == 14  # from 116 to the start of the second driver at 130
    assert found["startup"] == 10  # from 130 to the first step at 140
    assert found["stalls"] == 0.25


def test_a_group_that_the_same_driver_started_again_does_not_count_its_start_twice():
    events = [event("worker", 110, seconds=10), event("worker", 125, 2, seconds=25)]
    found = ledger([step(1, 120), step(2, 130, 2)], events)
    assert found["startup"] == 18 + 8  # 100 to 118, then from the last sign at 120 to 128
    assert found["idle"] == 0


def test_nothing_has_happened_yet():
    assert ledger([], [])["goodput"] == 0
