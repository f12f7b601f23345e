"""The global batch is the job's; how it is split follows from the workers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.plan.batch import MICRO_TOKENS, split


@pytest.mark.parametrize(
    ("sequences", "world", "length", "micro", "rows", "accumulation"),
    [
        (16, 2, 256, None, 8, 1),
        (16, 1, 256, None, 8, 2),
        (16, 3, 256, None, 6, 1),  # 18 rows in all, 2 of them empty
        (16, 2, 256, 2, 2, 4),
        (16, 2, 256, 16, 8, 1),  # more than the share is the share
        (1, 2, 4096, None, 1, 1),
        (7, 1, 1024, None, 1, 7),  # 7 is prime: rows of one
        (2 * 10**12, 2, 256, None, 8, 125 * 10**9),  # absurd, and answered at once
    ],
)
def test_literal_splits(sequences, world, length, micro, rows, accumulation):
    made = split(global_sequences=sequences, world=world, sequence_length=length, micro=micro)
    assert (made.micro, made.accumulation) == (rows, accumulation)


@given(st.integers(1, 512), st.integers(1, 64), st.integers(8, 8192), st.none() | st.integers(1, 64))
def test_every_row_has_a_place(sequences, world, length, micro):
    made = split(global_sequences=sequences, world=world, sequence_length=length, micro=micro)
    assert made.rows * world >= sequences
    assert (made.rows - made.micro) * world < sequences
    if micro is None:
        assert made.micro == 1 or made.micro * length <= MICRO_TOKENS
