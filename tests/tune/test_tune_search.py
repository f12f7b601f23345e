"""Searchers: what they draw is of the space, and follows from the record alone."""

import pytest
from world import sweep

from raytrain_eks.tune.record import Record
from raytrain_eks.tune.search import suggest

SPACE = {
    "optimizer.learning_rate": {"kind": "loguniform", "low": 1e-4, "high": 1e-1},
    "schedule.kind": {"kind": "choice", "values": ["cosine", "wsd"]},
    "schedule.decay": {"kind": "int", "low": 5, "high": 25, "step": 5, "when": {"schedule.kind": "wsd"}},
    "optimizer.betas": {"kind": "choice", "values": [[0.9, 0.95], [0.9, 0.99]]},
}
TPE = {"kind": "optuna", "startup": 4}


def told(count: int, state: str = "completed") -> Record:
    """Trials on a line of learning rates; the best is at 1e-2 with wsd."""
    record = Record()
    for number in range(1, count + 1):
        name, rate = f"t{number:04d}", 10 ** (-4 + 3 * number / count)
        kind = "wsd" if number % 2 else "cosine"
        parameters = {"optimizer.learning_rate": rate, "schedule.kind": kind, "optimizer.betas": [0.9, 0.95]}
        parameters |= {"schedule.decay": 10} if kind == "wsd" else {}
        value = abs(rate - 1e-2) * 100 + (0.0 if kind == "wsd" else 1.0)
        record.add({"event": "created", "trial": name, "number": number, "parameters": parameters})
        record.add({"event": "progress", "trial": name, "step": 10, "tokens": 10, "value": value})
        if state != "running":
            record.add({"event": "ended", "trial": name, "state": state, "step": 90, "tokens": 90, "value": value})
    return record


def test_a_grid_ends():
    space = {"optimizer.eps": {"kind": "choice", "values": [1e-8, 1e-6]}}
    spec = sweep(space=space, search={"kind": "grid"}, trials=None)
    assert spec.number == 2
    assert [suggest(spec, Record(), number) for number in (1, 2, 3)] == [
        {"optimizer.eps": 1e-8},
        {"optimizer.eps": 1e-6},
        None,
    ]


def test_optuna_draws_at_random_at_first_then_near_the_good_ones():
    spec = sweep(space=SPACE, search=TPE, trials=40)
    assert suggest(spec, Record(), 4) == suggest(sweep(space=SPACE, trials=40), Record(), 4)
    record = told(12)
    drawn = [suggest(spec, record, number) for number in range(13, 25)]
    assert drawn[0] == suggest(spec, told(12), 13)
    near = sum(1e-3 < each["optimizer.learning_rate"] < 5e-2 for each in drawn)
    assert near >= 8
    assert sum(each["schedule.kind"] == "wsd" for each in drawn) >= 7
    for each in drawn:
        assert ("schedule.decay" in each) == (each["schedule.kind"] == "wsd")
        assert each.get("schedule.decay", 5) in (5, 10, 15, 20, 25)
        assert each["optimizer.betas"] in ([0.9, 0.95], [0.9, 0.99])


@pytest.mark.parametrize("state", ["stopped", "failed", "diverged", "running"])
def test_optuna_bears_trials_that_did_not_complete(state):
    spec = sweep(space=SPACE, search=TPE, trials=40)
    assert set(suggest(spec, told(8, state), 9)) >= {"optimizer.learning_rate", "schedule.kind"}


def test_optuna_passes_trials_over_that_lie_outside_a_changed_space():
    space = SPACE | {"optimizer.learning_rate": {"kind": "loguniform", "low": 1e-3, "high": 1e-2}}
    space |= {"optimizer.betas": {"kind": "choice", "values": [[0.8, 0.9], [0.9, 0.99]]}}
    drawn = suggest(sweep(space=space, search=TPE, trials=40), told(8), 9)
    assert 1e-3 <= drawn["optimizer.learning_rate"] <= 1e-2
