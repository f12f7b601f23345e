"""Packing: nothing lost, nothing mixed, and full rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.data.packing import IGNORED, batch, best_fit, from_table, pack, to_table

VOCABULARY = np.ones(1000, dtype=np.int32)


@pytest.mark.parametrize(
    ("lengths", "capacity", "bins"),
    [
        ([], 8, []),
        ([8], 8, [[0]]),
        ([3, 5, 4, 4], 8, [[1, 0], [2, 3]]),
        ([6, 2, 5, 3], 8, [[0, 1], [2, 3]]),
        ([7, 6, 1, 2], 8, [[0, 2], [1, 3]]),
        ([1, 1, 1], 8, [[0, 1, 2]]),
    ],
)
def test_best_fit_takes_the_fullest_bin_that_still_fits(lengths, capacity, bins):
    assert best_fit(lengths, capacity) == bins


def test_a_piece_longer_than_a_row_is_refused():
    with pytest.raises(ValueError, match="9 tokens does not fit into a row of 8"):
        best_fit([9], 8)


@given(st.lists(st.integers(1, 64), max_size=200))
def test_best_fit_places_every_piece_once_and_within_the_capacity(lengths):
    bins = best_fit(lengths, 64)
    assert sorted(index for members in bins for index in members) == list(range(len(lengths)))
    assert all(sum(lengths[index] for index in members) <= 64 for members in bins)
    rooms = sorted(64 - sum(lengths[index] for index in members) for members in bins)
    assert len(rooms) < 2 or rooms[-2] + rooms[-1] < 64 + min(lengths), "two bins could have been one"


def documents_of(lengths: list[int]) -> list[np.ndarray]:
    starts = np.cumsum([0, *lengths])
    return [np.arange(start, start + length) % 900 + 1 for start, length in zip(starts, lengths, strict=False)]


@given(st.lists(st.integers(2, 70), min_size=1, max_size=30), st.booleans())
def test_every_token_is_in_one_row_and_a_boundary_is_never_learnt(lengths, together):
    documents = documents_of(lengths)
    rows = pack(documents, length=16, pad=0, token_bytes=VOCABULARY, together=together)
    assert sum(int(segments.sum()) for segments in rows.segments) == sum(lengths)
    made = batch([(rows, index) for index in range(len(rows))], length=16, pad=0)
    pieces = {tuple(document[at : at + 16]) for document in documents for at in range(0, len(document), 16)}
    for ids, labels, positions, segments in zip(*(made[key] for key in made), strict=True):
        for number in range(1, segments.max() + 1):
            here = segments == number
            assert tuple(ids[here]) in pieces
            assert list(positions[here]) == list(range(here.sum()))
            assert labels[here][0] == IGNORED
            assert list(labels[here][1:]) == list(ids[here][1:])
        assert (labels[segments == 0] == IGNORED).all()
        assert (ids[segments == 0] == 0).all()
    assert [rows.targets(index) for index in range(len(rows))] == (made["labels"] != IGNORED).sum(axis=1).tolist()
    assert together or all(len(segments) == 1 for segments in rows.segments)


def test_a_batch_says_exactly_which_document_every_token_is_of():
    rows = pack(documents_of([3, 4]), length=8, pad=999, token_bytes=VOCABULARY)
    made = batch([(rows, 0), None], length=8, pad=999)
    assert made["input_ids"].tolist() == [[4, 5, 6, 7, 1, 2, 3, 999], [999] * 8]
    assert made["labels"].tolist() == [[-100, 5, 6, 7, -100, 2, 3, -100], [-100] * 8]
    assert made["position_ids"].tolist() == [[0, 1, 2, 3, 0, 1, 2, 0], list(range(8))]
    assert made["segment_ids"].tolist() == [[1, 1, 1, 1, 2, 2, 2, 0], [0] * 8]
    assert all(array.dtype == np.int64 for array in made.values())


def test_only_answers_are_learnt_where_they_are_marked():
    answers = [np.array([False, False, True, True]), np.array([True, True])]
    rows = pack(documents_of([4, 2]), length=8, pad=0, token_bytes=VOCABULARY, answers=answers)
    made = batch([(rows, 0)], length=8, pad=0)
    assert made["labels"].tolist() == [[-100, -100, 3, 4, -100, 6, -100, -100]]
    assert rows.targets(0) == 3
    assert rows.bytes.tolist() == [3]


def test_bytes_are_those_of_the_targets_alone():
    sizes = np.zeros(10, dtype=np.int32)
    sizes[[1, 2, 3]] = [100, 20, 3]
    rows = pack([np.array([1, 2, 3])], length=8, pad=0, token_bytes=sizes)
    assert rows.bytes.tolist() == [23]


@pytest.mark.parametrize("lengths", [[], [5], [5, 17, 3, 2]])
def test_rows_survive_arrow(lengths):
    rows = pack(documents_of(lengths), length=8, pad=0, token_bytes=VOCABULARY)
    back = from_table(to_table(rows))
    assert back.tokens.tolist() == rows.tokens.tolist()
    assert back.tokens.dtype == np.uint16
    assert [row.tolist() for row in back.segments] == [row.tolist() for row in rows.segments]
    assert back.bytes.tolist() == rows.bytes.tolist()


def test_packing_fills_rows_of_a_log_normal_mix_of_lengths():
    lengths = np.clip(np.exp(np.random.default_rng(0).normal(5.2, 0.9, 3000)).astype(int), 8, 2048)
    rows = pack(documents_of(lengths.tolist()), length=2048, pad=0, token_bytes=VOCABULARY)
    assert lengths.sum() / rows.tokens.size > 0.99
