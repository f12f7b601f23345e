"""The order of samples: a permutation in every epoch, the same for everyone, found again from any point."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.data.order import ROWS, WINDOW, Cursor, Mixture, Position, permutation

counts_of_units = st.lists(st.integers(0, 7), min_size=1, max_size=50).filter(any)


START = Position()


def cursor(counts: list[int], position: Position = START, *, seed: int = 3, source: int = 0) -> Cursor:
    return Cursor(
        seed=seed, source=source, first=0, units=len(counts), rows=lambda unit: counts[unit], position=position
    )


def test_the_permutation_is_fixed_for_all_time():
    assert permutation(8, 1, 2, 3).tolist() == [7, 2, 0, 6, 4, 3, 5, 1]
    assert permutation(0, 1).tolist() == []


@given(counts_of_units, st.integers(0, 5))
def test_every_epoch_has_every_sample_once_and_an_order_of_its_own(counts, seed):
    walker = cursor(counts, seed=seed)
    everything = [unit * ROWS + row for unit, count in enumerate(counts) for row in range(count)]
    epochs = [walker.take(len(everything)).tolist() for _ in range(3)]
    assert all(sorted(epoch) == everything for epoch in epochs)
    if len(everything) > 20:
        assert epochs[0] != epochs[1] != epochs[2]


@given(counts_of_units, st.lists(st.integers(0, 90), min_size=1, max_size=8))
def test_a_position_is_all_that_is_needed_to_go_on(counts, takes):
    whole = cursor(counts).take(sum(takes)).tolist()
    position, seen = Position(), []
    for count in takes:
        walker = cursor(counts, position)
        seen += walker.take(count).tolist()
        position = walker.position
    assert seen == whole


def test_seeking_looks_at_one_window_alone():
    asked: list[int] = []

    def rows(unit: int) -> int:
        asked.append(unit)
        return 100

    walker = Cursor(seed=0, source=0, first=0, units=10_000, rows=rows, position=Position(7, 300, 50))
    walker.take(10)
    assert len(asked) == WINDOW


def test_a_source_without_samples_is_an_error_and_no_endless_loop():
    with pytest.raises(ValueError, match="source 0 holds no sample"):
        cursor([0, 0, 0]).take(1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5))
@settings(max_examples=40)
def test_a_mixture_keeps_its_proportions_at_every_point(weights):
    mixture = Mixture([cursor([5, 9, 4], source=number) for number in range(len(weights))], weights)
    for taken in range(1, 60):
        mixture.take(1)
        for drawn, weight in zip(mixture.drawn, weights, strict=True):
            assert abs(drawn - taken * weight / sum(weights)) < len(weights)
    assert sum(mixture.drawn) == 59


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6))
def test_a_mixture_goes_on_from_its_counts(takes):
    def fresh(positions: list[Position], drawn: list[int]) -> Mixture:
        walkers = [cursor([5, 9, 4], position, source=number) for number, position in enumerate(positions)]
        return Mixture(walkers, [0.7, 0.2, 0.1], drawn)

    whole = fresh([Position()] * 3, [0, 0, 0]).take(sum(takes)).tolist()
    positions, drawn, seen = [Position()] * 3, [0, 0, 0], []
    for count in takes:
        mixture = fresh(positions, drawn)
        seen += mixture.take(count).tolist()
        positions, drawn = [walker.position for walker in mixture.cursors], mixture.drawn
    assert seen == whole
