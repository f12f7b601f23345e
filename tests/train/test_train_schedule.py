"""The learning rate is a closed formula of the step."""

import itertools
import math

import pytest

from raytrain_eks.train.schedule import LearningRate, whole_steps


def rate(kind="cosine", peak=1.0, minimum=0.1, steps=100, warmup=10, decay=20) -> LearningRate:
    return LearningRate(kind=kind, peak=peak, minimum=minimum, steps=steps, warmup=warmup, decay=decay)


@pytest.mark.parametrize(
    ("kind", "step", "expected"),
    [
        ("cosine", 0, 0.1),  # first of ten warm-up steps
        ("cosine", 9, 1.0),  # the last warm-up step has the peak
        ("cosine", 54, 0.55),  # half-way down
        ("cosine", 99, 0.1),  # the last step has the minimum
        ("cosine", 500, 0.1),
        ("linear", 54, 0.55),
        ("linear", 99, 0.1),
        ("constant", 0, 0.1),
        ("constant", 99, 1.0),
        ("wsd", 79, 1.0),  # stable up to the last 20 steps
        ("wsd", 89, 0.55),
        ("wsd", 99, 0.1),
    ],
)
def test_literal_rates(kind, step, expected):
    assert rate(kind)(step) == pytest.approx(expected)


def test_cosine_is_the_formula_at_every_step():
    found = [rate()(step) for step in range(100)]
    expected = [(s + 1) / 10 if s < 10 else 0.1 + 0.45 * (1 + math.cos(math.pi * (s - 9) / 90)) for s in range(100)]
    assert found == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_no_kink_at_the_peak(kind):
    found = [rate(kind, steps=1000, warmup=100, decay=200)(step) for step in range(1000)]
    falls = [before - after for before, after in itertools.pairwise(found[99:])]
    assert all(fall >= 0 for fall in falls)
    assert max(falls) < 0.006


def test_without_warmup_the_first_step_is_already_on_the_curve():
    assert rate(warmup=0, steps=2)(0) == pytest.approx(0.55)
    assert rate(warmup=0, steps=1)(0) == pytest.approx(0.1)


@pytest.mark.parametrize(("amount", "steps", "expected"), [(7, 100, 7), ("3%", 100, 3), ("1%", 10, 1), ("0%", 10, 0)])
def test_shares_of_a_run_round_up(amount, steps, expected):
    assert whole_steps(amount, steps) == expected
