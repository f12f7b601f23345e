"""A log is followed without a line lost or doubled, whatever the connection does."""

import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.submit import follow
from raytrain_eks.submit.errors import Lost, NotFound, Unreachable
from raytrain_eks.submit.target import JobState, Phase


class Scripted:
    """A target whose log connection breaks after given numbers of bytes, and which is away for a while."""

    name = "http://scripted:8265"

    def __init__(
        self, content: bytes, *, breaks: list[int], chunk: int = 7, away: int = 0, ends: Phase = Phase.SUCCEEDED
    ):
        self.content, self.breaks, self.chunk, self.away, self.ends = content, list(breaks), chunk, away, ends
        self.asked = 0
        self.complete = False
        self.gone: str | None = None
        self.known = True

    def job(self, id: str) -> JobState | None:
        self.asked += 1
        if self.asked == 1:
            return JobState(id=id, phase=Phase.PENDING)
        if self.away:
            self.away -= 1
            raise Unreachable(f"{self.name} is not reachable")
        if not self.known:
            return None
        return JobState(id=id, phase=self.ends if self.complete else Phase.RUNNING, node="n")

    def log(
        self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None
    ) -> "Scripted.Stream":
        end = len(self.content)
        broken = False
        if follow and self.breaks:
            end, broken = min(self.breaks.pop(0), end), True
        elif follow:
            self.complete = True
            # The last bytes are written as the job ends: only the fetch after the end sees them.
            end = max(end - 5, 0)
        return self.Stream(self, skip, end, broken=broken, follow=follow)

    class Stream:
        def __init__(self, target: "Scripted", skip: int, end: int, *, broken: bool, follow: bool):
            self.target, self.skip, self.end, self.broken, self.follow = target, skip, end, broken, follow
            self.closed = threading.Event()

        def __iter__(self) -> Iterator[bytes]:
            for start in range(self.skip, self.end, self.target.chunk):
                yield self.target.content[start : min(start + self.target.chunk, self.end)]
            if self.broken:
                raise Unreachable("cut")
            if self.follow:
                self.closed.wait(10)

        def close(self) -> None:
            self.closed.set()

    def lost(self) -> str | None:
        return self.gone


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(follow, "POLL_S", 0.002)


def followed(target: Scripted) -> tuple[list[str], follow.Follower, list[str]]:
    said: list[str] = []
    follower = follow.Follower(target, "j", say=said.append)
    return list(follower.lines()), follower, said


LINES = st.lists(st.text(st.characters(exclude_characters="\n\r", exclude_categories=["Cs"]), max_size=12), max_size=12)


@settings(deadline=None, max_examples=80)
@given(lines=LINES, chunk=st.integers(1, 9), data=st.data(), unfinished=st.booleans(), away=st.integers(0, 3))
def test_every_line_comes_once_over_any_chunks_and_breaks(lines, chunk, data, unfinished, away):
    content = "".join(f"{line}\n" for line in lines).encode()
    expected = list(lines)
    if unfinished:
        content += "no end ü".encode()
        expected.append("no end ü")
    breaks = data.draw(st.lists(st.integers(0, len(content)), max_size=3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(follow, "POLL_S", 0.002)
        found, follower, _ = followed(Scripted(content, breaks=breaks, chunk=chunk, away=away))
    assert found == expected
    assert follower.state is not None
    assert follower.state.phase is Phase.SUCCEEDED


def test_bytes_that_are_no_text_are_shown_as_such():
    found, _, _ = followed(Scripted(b"\xff\xfe ok\n\xc3", breaks=[]))
    assert found == ["\ufffd\ufffd ok", "\ufffd"]


def test_a_line_without_an_end_is_passed_on_in_parts(monkeypatch):
    monkeypatch.setattr(follow, "LONGEST_LINE", 100)
    found, _, _ = followed(Scripted(b"x" * 350, breaks=[], chunk=50))
    assert "".join(found) == "x" * 350
    assert max(map(len, found)) <= 150


def test_a_cluster_that_comes_back_is_told_once():
    _, _, said = followed(Scripted(b"a\nb\n", breaks=[2], away=5))
    assert [text for text in said if "waiting" in text] == [
        "http://scripted:8265 is not reachable; waiting for it to come back"
    ]
    assert said[-1] == "http://scripted:8265 answers again"


def test_a_cluster_that_stays_away_ends_following(monkeypatch):
    monkeypatch.setattr(follow, "AWAY_S", 0.05)
    with pytest.raises(Unreachable, match="the job may go on"):
        followed(Scripted(b"a\n", breaks=[], away=10**9))


def test_a_job_that_was_never_there_is_not_found():
    target = Scripted(b"", breaks=[])
    target.asked, target.known = 1, False
    with pytest.raises(NotFound, match="knows no job j"):
        followed(target)


def test_a_job_that_is_gone_with_its_cluster_still_shows_its_last_lines():
    target = Scripted(b"a\nlast words", breaks=[3, 3, 3])
    target.asked = 1
    follower = follow.Follower(target, "j", say=lambda text: None)
    lines = follower.lines()
    found = [next(lines)]
    target.known, target.gone = False, "the local Ray is gone"
    with pytest.raises(Lost, match="the local Ray is gone; the job went with it"):
        found.extend(lines)
    assert found == ["a", "last words"]


def test_a_slow_reader_holds_the_log_back():
    target = Scripted(b"x\n" * 100_000, breaks=[], chunk=100)
    lines = follow.Follower(target, "j", say=lambda text: None).lines()
    next(lines)
    time.sleep(0.05)
    # 64 chunks wait at most; the thread that reads stands still.
    assert sum(1 for _ in lines) == 99_999


@pytest.mark.parametrize(
    ("phase", "code", "expected", "words"),
    [
        (Phase.SUCCEEDED, 0, 0, "done"),
        (Phase.FAILED, 1, 1, "ended with exit code 1"),
        (Phase.FAILED, 3, 3, "refused"),
        (Phase.FAILED, -9, 1, "killed by signal 9"),
        (Phase.FAILED, 77, 1, "exit code 77"),
        (Phase.FAILED, None, 1, "failed before its driver ran: no such image"),
        (Phase.STOPPED, None, 1, "stopped"),
    ],
)
def test_how_a_job_ended_as_code_and_sentence(phase, code, expected, words):
    state = JobState(id="j", phase=phase, exit_code=code, message="Traceback\nno such image\n")
    assert follow.exit_code(state) == expected
    assert words in follow.ending(state)
