"""The rules by which trials go on: Ray Tune's own, decision by decision, and pure functions of the record."""

import math
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from world import sweep

from raytrain_eks.spec.sweep_steering import Asha, Median
from raytrain_eks.tune.record import Record
from raytrain_eks.tune.scheduler import asha, decide, exchanges, gates, levels, median_rule, quantile

VALUES = st.floats(-10, 10).map(lambda each: round(each, 3))


@pytest.mark.parametrize(
    ("scheduler", "expected"),
    [
        ({"kind": "none"}, []),
        ({"kind": "asha"}, [10, 30]),
        ({"kind": "asha", "reduction": 2}, [23, 45]),
        ({"kind": "asha", "first": 5}, [5, 15, 45]),
        ({"kind": "asha", "rungs": [7, 50]}, [7, 50]),
        ({"kind": "asha", "clock": "tokens", "first": 1280}, [1280, 3840]),
        ({"kind": "median", "every": 20}, [20, 40, 60, 80]),
        ({"kind": "pbt"}, [9, 18, 27, 36, 45, 54, 63, 72, 81]),
    ],
)
def test_where_trials_wait(scheduler, expected):
    assert levels(sweep(scheduler=scheduler), 90, 128) == expected


def test_a_clock_of_tokens_is_in_each_trial_s_own_steps():
    assert gates([1280, 3840], "tokens", steps=90, tokens_per_step=128) == {10: 0, 30: 1}
    assert gates([1280, 3840], "tokens", steps=90, tokens_per_step=300) == {5: 0, 13: 1}
    assert gates([1280, 3840], "tokens", steps=13, tokens_per_step=300) == {5: 0}


@pytest.mark.slow
@given(
    seen=st.lists(VALUES, min_size=1, max_size=20),
    mode=st.sampled_from(["min", "max"]),
    reduction=st.sampled_from([2, 3, 4]),
)
def test_asha_decides_as_ray_tune_does(seen, mode, reduction):
    from ray.tune.schedulers import ASHAScheduler

    theirs = ASHAScheduler(
        time_attr="step", metric="value", mode=mode, max_t=100, grace_period=10, reduction_factor=reduction
    )
    for index, value in enumerate(seen):
        trial = SimpleNamespace(trial_id=str(index))
        theirs.on_trial_add(None, trial)
        # Only the lowest rung is looked at: the next one would be at 10 * reduction.
        word = theirs.on_trial_result(None, trial, {"step": 10, "value": value})
        assert asha(seen[:index], value, mode=mode, reduction=reduction).kept == (word == "CONTINUE")


@pytest.mark.slow
@given(
    curves=st.lists(st.lists(VALUES, min_size=4, max_size=4), min_size=2, max_size=8),
    mode=st.sampled_from(["min", "max"]),
    least=st.integers(1, 3),
)
def test_the_median_rule_decides_as_ray_tune_does(curves, mode, least):
    from ray.tune.schedulers import MedianStoppingRule

    places, rule = [10, 20, 30, 40], Median(kind="median", every=10, first=20, trials=least)
    theirs = MedianStoppingRule(
        time_attr="step", metric="value", mode=mode, grace_period=20, min_samples_required=least
    )
    nobody_waits = SimpleNamespace(get_live_trials=list)
    record, stopped = Record(), set()
    for index in range(len(curves)):
        record.add({"event": "created", "trial": str(index), "number": index, "parameters": {}})
    for rung, step in enumerate(places):
        for index, curve in enumerate(curves):
            if index in stopped:
                continue
            trial, value = record.trials[str(index)], curve[rung]
            ours = median_rule(rule, record, trial, rung, value, places, mode=mode)
            word = theirs.on_trial_result(nobody_waits, str(index) and _named(index), {"step": step, "value": value})
            assert ours.kept == (word == "CONTINUE")
            record.add({"event": "rung", "trial": str(index), "rung": rung, "value": value, "kept": ours.kept})
            if not ours.kept:
                stopped.add(index)


_NAMES: dict[int, SimpleNamespace] = {}


class _Trial(SimpleNamespace):
    __hash__ = object.__hash__


def _named(index: int) -> SimpleNamespace:
    return _NAMES.setdefault(index, _Trial(trial_id=str(index)))


@given(values=st.lists(VALUES, min_size=1, max_size=12), share=st.floats(0, 1))
def test_a_quantile_lies_between_its_neighbours(values, share):
    found = quantile(values, share)
    assert min(values) - 1e-9 <= found <= max(values) + 1e-9
    assert quantile(values, 0) == min(values)
    assert quantile(values, 1) == max(values)


@pytest.mark.parametrize("kind", ["asha", "median"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_not_finite_never_goes_on(kind, value):
    spec, record = sweep(scheduler={"kind": kind}), Record()
    record.add({"event": "created", "trial": "t0001", "number": 1, "parameters": {}})
    assert not decide(spec, record, record.trials["t0001"], 0, value, levels(spec, 90, 128)).kept


def test_the_first_at_a_rung_goes_on_and_a_diverged_one_sets_no_bar():
    assert asha([], 5.0, mode="min", reduction=3).kept
    found = asha([math.nan], 5.0, mode="min", reduction=3)
    assert (found.kept, found.cutoff) == (True, None)
    assert Asha(kind="asha").reduction == 3.0


def population(values: dict[str, float]) -> Record:
    record = Record()
    for number, (name, value) in enumerate(values.items(), 1):
        about = {"number": number, "parameters": {"optimizer.learning_rate": 0.01 * number}}
        record.add({"event": "created", "trial": name, **about})
        record.add({"event": "progress", "trial": name, "step": 9, "tokens": 9, "value": value, "gate": 0})
        record.add({"event": "paused", "trial": name, "step": 9})
    return record


def test_the_worst_quarter_copies_the_best_quarter():
    spec = sweep(scheduler={"kind": "pbt"}, trials=8)
    record = population({f"t{number:04d}": value for number, value in enumerate([5, 1, 8, 3, 2, 7, math.nan, 4], 1)})
    found = exchanges(spec, record, 0)
    assert [each.trial for each in found] == ["t0003", "t0007"]
    assert {each.donor for each in found} <= {"t0002", "t0005"}
    for each in found:
        old = record.trials[each.donor].parameters["optimizer.learning_rate"]
        assert each.parameters["optimizer.learning_rate"] != old
    assert exchanges(spec, record, 0) == found


def test_a_population_of_two_has_one_of_each():
    (found,) = exchanges(sweep(scheduler={"kind": "pbt"}), population({"t0001": 2.0, "t0002": 1.0}), 0)
    assert (found.trial, found.donor) == ("t0001", "t0002")
