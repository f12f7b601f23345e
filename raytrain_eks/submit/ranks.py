"""The own log of one rank: where it is, and following it through restarts of its worker group.

Where each rank is stands in the run's events; where these cannot be read from here, in the driver's log.
"""

import contextlib
import re
import time

from raytrain_eks.checkpoint.run import EVENTS, RunFolder
from raytrain_eks.submit.errors import NotFound, TargetError
from raytrain_eks.submit.target import JobState, RankPlace, Stream, Target

_LINE = re.compile(rb"ranks on \S+ \(node (?P<node>\w+)\): (?P<ranks>[\d= ]+)")
"""See `train.progress.places`."""
LOOK_S = 60.0
"""How often it is asked whether the rank was started anew."""


def places(run: str, state: JobState, target: Target, *, storage: str | None) -> dict[int, RankPlace]:
    """Rank -> where it is in the newest worker group; empty while none has begun."""
    if storage is not None:
        with contextlib.suppress(OSError):
            events = [each for each in RunFolder(storage, run).lines(EVENTS) if each.get("event") == "worker"]
            if events:
                found = enumerate(events[-1].get("ranks") or [])
                return {rank: RankPlace(rank=rank, node=each["node"], pid=each["pid"]) for rank, each in found}
    return _from_log(target.log(state))


def _from_log(log: Stream) -> dict[int, RankPlace]:
    found: dict[int, RankPlace] = {}
    rest = b""
    for chunk in log:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if match := _LINE.fullmatch(line):
                for each in match["ranks"].split():
                    rank, _, pid = each.partition(b"=")
                    found[int(rank)] = RankPlace(rank=int(rank), node=match["node"].decode(), pid=int(pid))
    return found


class RankView:
    """A target on which a job's log is that of one rank. What `Follower` needs of a `Target`."""

    def __init__(self, target: Target, run: str, rank: int, *, storage: str | None):
        self.target, self.run, self.rank, self.storage = target, run, rank, storage
        self.name = target.name
        self.lost = target.lost
        self._place: RankPlace | None = None
        self._base = self._told = 0
        self._looked = 0.0
        self._stream: Stream | None = None

    def job(self, id: str) -> JobState | None:
        """The job; where its rank was started anew, the log goes on there."""
        state = self.target.job(id)
        if state is not None and not state.phase.over and time.monotonic() - self._looked > LOOK_S:
            with contextlib.suppress(TargetError):
                if self._stream is not None and self.place(state) != self._place:
                    self._stream.close()
        return state

    def place(self, state: JobState) -> RankPlace:
        """Where the rank is now. Raises NotFound."""
        self._looked = time.monotonic()
        known = places(self.run, state, self.target, storage=self.storage)
        if self.rank not in known:
            there = (
                f"there are 0 to {max(known)}" if known else "its workers have not begun, or their places are unknown"
            )
            raise NotFound(f"{self.run} has no rank {self.rank}: {there}")
        return known[self.rank]

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream:
        """The rank's output after what was told of it."""
        now = self.place(state)
        if now != self._place:
            self._place, self._base = now, skip
        self._stream = self.target.rank_log(state, now, skip=skip - self._base, last=last, follow=follow)
        return self._stream
