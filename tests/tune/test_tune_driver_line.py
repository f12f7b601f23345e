"""The line between a loop and its sweep, and what an error makes of a trial."""

import threading

import pytest

from raytrain_eks.train.loop import Progress
from raytrain_eks.tune.pilot import Line


def at(step: int, held: float | None = None, bits: float | None = None) -> Progress:
    return Progress(step=step, tokens=step * 10, held_last=held, bits_per_byte=bits)


def test_news_come_in_order_and_the_newest_step_is_told_once():
    line = Line([30], "eval_loss", trained=5)
    line.evaluated(at(0, 6.0))
    for step in range(1, 12):
        line.stepped(at(step), 5.0)
    assert line.news(0) == [{"step": 0, "tokens": 0, "trained": 5, "value": 6.0}]
    assert line.news(0) == [{"step": 11, "tokens": 110, "trained": 16, "value": None}]
    assert line.news(0) == []


def test_at_a_rung_the_run_stands_still_until_it_is_told():
    line, words = Line([30], "bits_per_byte"), []
    line.evaluated(at(30, 6.0, 2.5))
    waiting = threading.Thread(target=lambda: words.append(line.goes_on(at(30, 6.0, 2.5))))
    waiting.start()
    (news,) = line.news(10)
    assert (news["gate"], news["value"]) == (30, 2.5)
    assert waiting.is_alive()
    line.word(False)
    waiting.join(10)
    assert words == [False]
    assert [line.waits(step) for step in (29, 30)] == [False, True]


def test_train_loss_is_the_mean_of_the_last_steps_also_after_a_restart():
    line = Line([], "train_loss", losses=lambda step: [1.0] * step)
    assert line.value(at(0)) is None
    assert line.value(at(40)) == 1.0
    for step in range(41, 61):
        line.stepped(at(step), 3.0)
    assert line.value(at(60)) == 3.0


class Spoilt(RuntimeError):
    pass


def cases() -> list[tuple[Exception, tuple[str, str, bool]]]:
    from ray.exceptions import OutOfMemoryError

    return [
        (MemoryError("12 GiB"), ("failed", "out of memory: 12 GiB", True)),
        (OutOfMemoryError("node is full"), ("failed", "out of memory: node is full", True)),
        (Spoilt("20 steps were refused"), ("diverged", "20 steps were refused", True)),
        (ValueError("bad\nmore"), ("failed", "ValueError: bad", False)),
    ]


@pytest.mark.slow
def test_what_an_error_makes_of_a_trial():
    from raytrain_eks.tune.trial import why

    for error, expected in cases():
        assert why(error) == expected
