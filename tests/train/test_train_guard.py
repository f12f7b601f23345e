"""Which steps are not applied, and when a run goes back."""

import math

import pytest

from raytrain_eks.spec.job_watch import Guard
from raytrain_eks.train.guard import Sentry


def sentry(losses=(), **rule) -> Sentry:
    made = Sentry(Guard(window=4, **rule))
    for loss in losses:
        made.applied(loss)
    return made


@pytest.mark.parametrize(
    ("losses", "loss", "stopped"),
    [
        ([], math.nan, True),
        ([], math.inf, True),
        ([], 1e30, False),  # nothing to compare with yet
        ([2.0, 2.1, 1.9], 50.0, False),  # the window is not full
        ([2.0, 2.1, 1.9, 2.0], 50.0, True),
        ([2.0, 2.1, 1.9, 2.0], 2.5, False),
        ([2.0, 2.0, 2.0, 2.0], 2.11, False),  # the least deviation is 0.01
        ([2.0, 2.0, 2.0, 2.0], 2.13, True),
        ([9.0, 8.0, 7.0, 6.0], 9.5, False),
        ([2.0, 2.1, 1.9, 2.0], 0.1, False),  # only upwards
    ],
)
def test_verdicts(losses, loss, stopped):
    assert (sentry(losses).verdict(loss) is not None) == stopped


def test_without_spike_only_what_is_not_finite_is_stopped():
    assert sentry([2.0] * 4, spike=None).verdict(1e9) is None
    assert sentry([2.0] * 4, spike=None).verdict(math.nan)


def test_the_run_goes_back_after_so_many_in_a_row_and_fails_after_so_many_times():
    made = sentry(in_a_row=2, rewinds=1)
    assert [made.stopped() for _ in range(2)] == [False, True]
    assert not made.spent
    made.stopped()
    made.applied(2.0)  # one that is applied starts the count anew
    assert [made.stopped() for _ in range(2)] == [False, True]
    assert made.spent
