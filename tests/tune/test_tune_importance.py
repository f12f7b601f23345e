"""Importance: rank correlations, the step at which trials are compared, and Optuna where it serves."""

import random
import sys

import pytest
import sweep_lines
from hypothesis import given
from hypothesis import strategies as st
from sweep_lines import created, told

from raytrain_eks.tune.history import History
from raytrain_eks.tune.importance import MINIMUM, comparable, importance, spearman


def by_rate(trials: int, seed: int = 0) -> History:
    """Trials whose objective depends on the learning rate, hardly on the warm-up, and on nothing else."""
    draw = random.Random(seed)
    events = []
    for number in range(1, trials + 1):
        rate, kind = 10 ** draw.uniform(-5, -1), draw.choice(["cosine", "linear"])
        parameters = {"optimizer.learning_rate": rate, "schedule.warmup": draw.randint(0, 100), "schedule.kind": kind}
        name = f"t{number:04d}"
        value = 3 + 1e3 * rate + parameters["schedule.warmup"] * 1e-4
        events += [created(name, number, parameters | {"seed": 1}), told("progress", name, step=10, value=value)]
    return History.of(events, name="s")


@pytest.mark.parametrize(
    ("xs", "ys", "expected"),
    [
        ([1, 2, 3, 4], [10, 20, 30, 400], 1.0),
        ([1, 2, 3, 4], [4, 3, 2, 1], -1.0),
        ([1, 1, 1, 1], [1, 2, 3, 4], 0.0),
        ([1, 2, 2, 3], [1, 2, 3, 4], 0.9486832980505138),
    ],
)
def test_spearman(xs, ys, expected):
    assert spearman(xs, ys) == pytest.approx(expected)


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2))
def test_spearman_is_within_one_and_symmetric(pairs):
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    found = spearman(xs, ys)
    assert -1 - 1e-9 <= found <= 1 + 1e-9
    assert spearman(ys, xs) == pytest.approx(found)


def test_trials_are_compared_where_enough_of_them_came():
    reach = {number: (10, 20, 40)[: 1 if number > 12 else 2 if number > 3 else 3] for number in range(1, 21)}
    events = [
        told("progress", f"t{number:04d}", step=step, value=float(number * 100 + step))
        for number, steps in reach.items()
        for step in steps
    ]
    step, pairs = comparable(History.of(sweep_lines.whole(events), name="s"))
    assert step == 20
    assert [value for _, value in pairs] == [number * 100.0 + 20 for number in range(1, 13)]


def test_few_trials_have_a_reason_and_no_importance():
    found = importance(History.of(sweep_lines.halving(8), name="s"))
    assert not found.shares
    assert found.why_not is not None
    assert str(MINIMUM) in found.why_not
    assert set(found.correlations) == set(sweep_lines.SPACE)


def test_without_optuna_it_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    found = importance(by_rate(30))
    assert not found.shares
    assert "Optuna is not installed" in (found.why_not or "")
    assert found.correlations["optimizer.learning_rate"] > 0.99


def test_optuna_finds_the_parameter_that_matters():
    pytest.importorskip("optuna")
    found = importance(by_rate(60))
    assert found.why_not is None
    assert next(iter(found.shares)) == "optimizer.learning_rate"
    assert found.shares["optimizer.learning_rate"] > 0.6
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.left_out == ["seed"]
    assert importance(by_rate(60)) == found


def test_a_sweep_without_objectives():
    found = importance(History.of([created("t0001", 1, {"seed": 1})], name="s"))
    assert (found.step, found.trials, found.shares) == (None, 0, {})


def test_trials_that_changed_in_flight_are_not_counted():
    found = importance(History.of(sweep_lines.population(), name="s"))
    assert found.trials == 1
