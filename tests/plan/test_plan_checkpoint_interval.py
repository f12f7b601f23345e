"""The suggested checkpoint interval against the papers' formulas and against a simulation."""

import random
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.plan.checkpoint_interval import daly, duration, suggest, young


@pytest.mark.parametrize(
    ("stall", "between", "seconds"),
    [(5, 1000, 100.0), (0.5, 86400, sqrt(86400)), (60, 24 * 3600, 3219.94)],
)
def test_young(stall, between, seconds):
    assert young(stall, between) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    ("stall", "between", "seconds"),
    [
        # By hand: ratio = 5 / 2000 = 0.0025, its root 0.05; 100 (1 + 0.05 / 3 + 0.0025 / 9) - 5.
        (5, 1000, 100 * (1 + 0.05 / 3 + 0.0025 / 9) - 5),
        (50, 20, 20.0),
        (40, 20, 20.0),
    ],
)
def test_daly(stall, between, seconds):
    assert daly(stall, between) == pytest.approx(seconds)


@given(st.floats(1e-3, 1e2), st.floats(1e4, 1e7))
def test_daly_is_near_young_where_saves_are_cheap(stall, between):
    assert daly(stall, between) == pytest.approx(young(stall, between), rel=2.5 * sqrt(stall / between) + 1e-9)


def test_the_failure_rate_of_the_llama_3_paper():
    """16,384 accelerators failed 419 times in 54 days: every 3.1 hours."""
    found = suggest(stall=1.0, durable=30.0, accelerators=16_384)
    assert found.between_failures == pytest.approx(54 * 86400 / 419, rel=1e-4)
    assert "sqrt(2 C M)" in str(found)
    assert "C = 1 s" in str(found)


def test_saves_do_not_follow_faster_than_they_are_written():
    found = suggest(stall=0.001, durable=600.0, accelerators=16_384)
    assert found.seconds == 600
    assert "writing one takes that long" in str(found)


def test_simulated_runs_lose_least_near_it():
    """Training 2e5 s of work with failures at random: the suggested interval loses less than a third or thrice it."""
    best = suggest(stall=2.0, durable=0.0, accelerators=1000, accelerator_hours=1000, restart=10.0)

    def took(interval):
        dice = random.Random(5)
        clock, done, failure = 0.0, 0.0, dice.expovariate(1 / best.between_failures)
        while done < 2e6:
            need = interval + best.stall
            if clock + need <= failure:
                clock, done = clock + need, done + interval
            else:
                clock = failure + best.restart
                failure = clock + dice.expovariate(1 / best.between_failures)
        return clock / done - 1

    assert took(best.seconds) < min(took(best.seconds / 3), took(best.seconds * 3))
    assert took(best.seconds) == pytest.approx(best.lost, rel=0.15)


@pytest.mark.parametrize("wrong", [{"stall": 0}, {"accelerators": 0}, {"durable": -1}, {"accelerator_hours": 0}])
def test_nonsense_is_refused(wrong):
    with pytest.raises(ValueError, match="must be positive"):
        suggest(**({"stall": 1.0, "durable": 1.0, "accelerators": 8} | wrong))


@pytest.mark.parametrize(("seconds", "text"), [(0.2, "1s"), (45, "45s"), (100, "2m"), (900, "15m"), (7200, "2h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
