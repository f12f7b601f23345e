"""A driver's log out of the pods that submit it: every line once, whoever reads and however often."""

import itertools
import threading
import tracemalloc

import pytest

from raytrain_eks.submit import eks_log
from raytrain_eks.submit.eks_log import KEPT, Feed, Whole
from raytrain_eks.submit.errors import Unreachable
from raytrain_eks.submit.follow import Follower
from raytrain_eks.submit.target import JobState, Phase

BEGIN = "Running entrypoint for job x: exec python"


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(eks_log, "PAUSE_S", 0.01)


def whole(feed: Feed, skip: int = 0) -> bytes:
    return b"".join(feed.reader(skip))


def test_a_log_is_read_from_any_byte_again():
    lines = [f"line {number}" for number in range(1000)]
    feed = Feed(lambda: ["a"], lambda pod: iter(lines))
    text = "".join(f"{line}\n" for line in lines).encode()
    assert whole(feed) == text
    for skip in (0, 1, 500, len(text) - 1, len(text)):
        assert whole(feed, skip) == text[skip:]


def test_a_second_pod_that_submits_goes_on_where_the_first_was_lost():
    logs = {
        "a": ["submitted", BEGIN, "one", "two"],
        "b": ["waiting", BEGIN, "one", "two", "three", "two"],
    }
    pods = ["a"]
    feed = Feed(lambda: list(pods), lambda pod: iter(logs[pod]))
    begun = whole(feed)
    pods.append("b")
    rest = whole(feed, len(begun))
    assert (begun + rest).decode().splitlines() == ["submitted", BEGIN, "one", "two", "three", "two"]


def test_a_driver_that_was_submitted_again_is_told_in_full():
    logs = {
        "a": ["Job 'x' submitted successfully", BEGIN, "one", "two"],
        "b": ["INFO cli.py:60 -- Job 'x' submitted successfully", BEGIN, "one", "going on from step 10"],
    }
    feed = Feed(lambda: ["a", "b"], lambda pod: iter(logs[pod]))
    told = whole(feed).decode().splitlines()
    assert told[1:] == [BEGIN, "one", "two", BEGIN, "one", "going on from step 10"]


def test_what_broke_is_read_on_without_a_line_twice():
    tries = itertools.count()

    def lines(pod):
        yield from [BEGIN, "one"]
        if next(tries) == 0:
            raise Unreachable("the API is away")
        yield "two"

    feed = Feed(lambda: ["a"], lines)
    parts: list[bytes] = []
    with pytest.raises(Unreachable):
        parts.extend(feed.reader(0))
    got = b"".join(parts)
    got += whole(feed, len(got))
    assert got.decode().splitlines() == [BEGIN, "one", "two"]


def test_a_reader_that_waits_is_let_go():
    wait = threading.Event()

    def lines(pod):
        yield "one"
        wait.wait(30)

    reader = Feed(lambda: ["a"], lines).reader(0)
    parts: list[bytes] = []
    thread = threading.Thread(target=lambda: parts.extend(reader))
    thread.start()
    while not parts:
        pass
    reader.close()
    thread.join(timeout=10)
    wait.set()
    assert not thread.is_alive()


@pytest.mark.slow
def test_a_long_log_takes_little_memory_however_slowly_it_is_read():
    count = 40_000
    feed = Feed(lambda: ["a"], lambda pod: (f"{number:09d} {'x' * 490}" for number in range(count)))

    class Target:
        name = "eks"

        def job(self, id):
            return JobState(id="x", phase=Phase.SUCCEEDED if self.over else Phase.RUNNING)

        def log(self, state, *, skip=0, follow=False, last=None):
            return feed.reader(skip)

        over = False

    target, seen = Target(), 0
    tracemalloc.start()
    try:
        for line in Follower(target, "x", say=print).lines():
            assert int(line[:9]) == seen
            seen += 1
            target.over = seen == count
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert seen == count
    assert peak < 3 * KEPT, "20 MB of log"


def test_a_log_without_following():
    assert b"".join(Whole(iter(["a", "b"]))) == b"a\nb\n"
    assert b"".join(Whole(iter([]))) == b""
    assert len(list(Whole(f"{n:09d}" for n in range(20_000)))) > 1
