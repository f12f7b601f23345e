"""Values out of a search space: within it, spread as its kind says, the same again for the same seed and number."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from raytrain_eks.spec.sweep_space import Parameter, Space
from raytrain_eks.tune.draw import at_random, changed, generator, grid, value

PARAMETER = TypeAdapter(Parameter)
SPACE = TypeAdapter(Space)

WHOLE = st.integers(1, 1000)


@st.composite
def parameters(draw):
    low, span = draw(WHOLE), draw(WHOLE)
    kind = draw(st.sampled_from(["uniform", "step", "loguniform", "int", "log", "choice"]))
    if kind == "choice":
        return {"kind": "choice", "values": list(range(low, low + span))}
    if kind == "log":
        return {"kind": "int", "low": low, "high": low + span, "log": True}
    if kind == "step":
        return {
            "kind": "uniform",
            "low": low / 7,
            "high": (low + span) / 7,
            "step": draw(st.sampled_from([0.1, 0.3, 5.0])),
        }
    if kind == "int":
        return {"kind": "int", "low": low, "high": low + span, "step": draw(st.integers(1, 9))}
    return {"kind": kind, "low": low / 7, "high": (low + span) / 7}


@given(spec=parameters(), seed=st.integers(0, 2**32 - 1), number=WHOLE)
def test_every_value_is_of_the_space(spec, seed, number):
    parameter = PARAMETER.validate_python(spec)
    drawn = value(parameter, generator(seed, "trial", number))
    listed = parameter.all()
    if listed is not None:
        assert drawn in listed
    else:
        assert parameter.low <= drawn <= parameter.high
    moved = changed(parameter, drawn, generator(seed, 1), resample=0.2, factors=[0.8, 1.25])
    assert moved in listed if listed is not None else parameter.low <= moved <= parameter.high
    assert type(moved) is type(drawn)


@given(seed=st.integers(0, 2**32 - 1), number=WHOLE)
def test_a_trial_draws_the_same_again_whatever_came_before(seed, number):
    space = SPACE.validate_python(
        {"a": {"kind": "uniform", "low": 0, "high": 1}, "b": {"kind": "int", "low": 0, "high": 9}}
    )
    assert at_random(space, seed, number) == at_random(space, seed, number)
    assert at_random(space, seed, number)["a"] != at_random(space, seed, number + 1)["a"]


@given(number=WHOLE, old=st.integers(0, 2**33))
def test_a_long_range_is_drawn_from_without_listing_it(number, old):
    parameter = PARAMETER.validate_python({"kind": "int", "low": -2, "high": 2**32, "step": 3})
    assert (value(parameter, generator(number)) + 2) % 3 == 0
    moved = changed(parameter, parameter.all()[old // 6], generator(number), resample=0.0, factors=[0.5, 2.0])
    assert moved in parameter.all()


def test_a_neighbour_in_a_range_is_the_nearest_the_smaller_of_two():
    parameter = PARAMETER.validate_python({"kind": "int", "low": 1, "high": 9, "step": 2})
    for old, factor, expected in [(3, 2.0, 5), (3, 1.3, 3), (9, 2.0, 9), (1, 0.1, 1), (5, 1.3, 7)]:
        assert changed(parameter, old, generator(0), resample=0.0, factors=[factor]) == expected


def test_orders_of_magnitude_are_as_likely():
    parameter = PARAMETER.validate_python({"kind": "loguniform", "low": 1e-4, "high": 1e-1})
    drawn = [value(parameter, generator(0, number)) for number in range(3000)]
    counts = [sum(math.floor(math.log10(each)) == power for each in drawn) for power in (-4, -3, -2)]
    assert all(900 < count < 1100 for count in counts)


def test_a_grid_is_every_combination_once_the_last_fastest():
    space = SPACE.validate_python(
        {"a": {"kind": "grid", "values": [1, 2]}, "b": {"kind": "int", "low": 0, "high": 4, "step": 2}}
    )
    assert [tuple(each.values()) for each in grid(space)] == [(1, 0), (1, 2), (1, 4), (2, 0), (2, 2), (2, 4)]


def test_a_parameter_without_its_condition_is_not_there_and_makes_no_second_combination():
    space = SPACE.validate_python(
        {
            "decay": {"kind": "choice", "values": [5, 10], "when": {"kind": "wsd"}},
            "kind": {"kind": "choice", "values": ["cosine", "wsd"]},
        }
    )
    assert list(grid(space)) == [{"kind": "cosine"}, {"decay": 5, "kind": "wsd"}, {"decay": 10, "kind": "wsd"}]
    for number in range(1, 30):
        drawn = at_random(space, 0, number)
        assert ("decay" in drawn) == (drawn["kind"] == "wsd")


def test_grid_values_take_turns_in_a_random_search():
    space = SPACE.validate_python(
        {
            "a": {"kind": "grid", "values": ["x", "y"]},
            "b": {"kind": "grid", "values": [1, 2, 3]},
            "c": {"kind": "uniform", "low": 0, "high": 1},
        }
    )
    drawn = [at_random(space, 5, number) for number in range(1, 13)]
    turns = [("x", 1), ("x", 2), ("x", 3), ("y", 1), ("y", 2), ("y", 3)]
    assert [(each["a"], each["b"]) for each in drawn] == turns * 2
    assert len({each["c"] for each in drawn}) == 12


@pytest.mark.parametrize(("old", "expected"), [(1, {1, 2}), (2, {1, 3}), (3, {2, 3})])
def test_a_choice_moves_to_a_neighbour(old, expected):
    parameter = PARAMETER.validate_python({"kind": "choice", "values": [1, 2, 3]})
    found = {changed(parameter, old, generator(0, number), resample=0.0, factors=[1.2]) for number in range(40)}
    assert found == expected


def test_a_number_is_multiplied_within_its_range():
    parameter = PARAMETER.validate_python({"kind": "loguniform", "low": 1e-4, "high": 1e-2})
    found = {changed(parameter, 9e-3, generator(0, number), resample=0.0, factors=[0.5, 2.0]) for number in range(40)}
    assert found == {4.5e-3, 1e-2}
