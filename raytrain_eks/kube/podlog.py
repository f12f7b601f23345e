"""A container's log, followed over any number of connections with no line twice and none lost.

The kubelet takes a point of time to start from, in whole seconds, and puts a time with nanoseconds before each line. So
a new connection begins one second before the last line's, and the lines since then that were told already are left out,
each as often as it was told. (One second earlier, since stdout and stderr are stamped apart.)
"""

import re
import time
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import Asked, Invalid, NotFound, Unreachable

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

SILENCE_S = 60.0
"""So long after the last byte a connection is made anew: it may have died in silence."""
PATIENCE_S = 300
"""Seconds without any answer after which the API counts as gone."""
_PAUSE_S = 1.0
KEPT = 10_000
"""Lines that are remembered: the kubelet writes fewer than that out of the order of their times."""
_STAMP = re.compile(r"(?P<second>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(?P<zone>Z|[+-]\d\d:\d\d)")
_BEGINS = re.compile(r"waiting to start: (ContainerCreating|PodInitializing)|is not available|not yet")


def logs(
    client: "Client",
    pod: str,
    where: str,
    *,
    container: str | None = None,
    follow: bool = False,
    tail: int | None = None,
    previous: bool = False,
    timestamps: bool = False,
) -> Iterator[str]:
    """Lines without their ends. Raises NotFound, Invalid for a container that cannot start, Unreachable."""
    told = Told()
    path, asked = _request(client, pod, where)
    options: dict[str, Any] = {"container": container, "timestamps": "true"}
    options |= {"follow": "true"} if follow else {}
    options |= {"previous": "true"} if previous else {}
    heard = time.monotonic()
    while True:
        started = told.since is not None
        point = {"sinceTime": told.since} if started else {"tailLines": tail}
        told.again()
        try:
            for line in client.transport.lines(path, asked, params=options | point, silence_s=SILENCE_S):
                heard = time.monotonic()
                if told.new(line):
                    yield line if timestamps else _text(line)
            heard = time.monotonic()
            if not follow or _over(client, pod, where, container):
                return
        except NotFound:
            if started:
                return
            raise
        except Invalid as error:
            if not follow or not _BEGINS.search(str(error)):
                raise
        except (ConnectionError, Unreachable) as error:
            # A quiet container is no dead one: each silence is followed by a new connection that is answered.
            if time.monotonic() - heard > PATIENCE_S and not _answers(client):
                raise Unreachable(f"{client.server} has not answered for {PATIENCE_S} s: {error}") from None
        time.sleep(_PAUSE_S)


class Told:
    """The last lines that were told, by their times and hashes: as many as KEPT, however long the log is."""

    def __init__(self) -> None:
        self.since: str | None = None
        """What a new connection starts from (RFC 3339); None as long as nothing was told."""
        self._lines: deque[tuple[str, int]] = deque()
        self._before = ""
        """The time of the last line that is no longer kept: up to here all were told."""
        self._skip: Counter[int] = Counter()
        self._second = ""

    def again(self) -> None:
        """A new connection begins: what was told since its start will come once more."""
        self._skip = Counter(key for _, key in self._lines)

    def new(self, line: str) -> bool:
        """Whether a line was not told yet. Notes it as told."""
        stamp, key = line.partition(" ")[0], hash(line)
        found = _STAMP.fullmatch(stamp)
        if found is None:
            stamp = self._lines[-1][0] if self._lines else ""
        elif self._skip and stamp <= self._before:
            return False
        if self._skip[key] > 0:
            self._skip[key] -= 1
            return False
        if found is not None and found["second"] > self._second:
            self._second = found["second"]
            start = datetime.fromisoformat(self._second) - timedelta(seconds=1)
            self.since = start.isoformat() + found["zone"]
        self._lines.append((stamp, key))
        if len(self._lines) > KEPT:
            self._before = self._lines.popleft()[0]
        return True


def _text(line: str) -> str:
    stamp, _, text = line.partition(" ")
    return text if _STAMP.fullmatch(stamp) else line


def _request(client: "Client", pod: str, where: str) -> tuple[str, Asked]:
    kind = client.kind("v1", "Pod")
    return kind.path(where, pod, "log"), kind.asked("get", where, pod, "log")


def _answers(client: "Client") -> bool:
    try:
        client.version()
    except Unreachable:
        return False
    return True


def _over(client: "Client", pod: str, where: str, container: str | None) -> bool:
    """Whether a container will write no more: it has ended and is not started again, or its pod goes away."""
    found = client.find("v1", "Pod", pod, where)
    if found is None or found["metadata"].get("deletionTimestamp"):
        return True
    status = found.get("status") or {}
    if status.get("phase") in ("Succeeded", "Failed"):
        return True
    states = [*(status.get("containerStatuses") or []), *(status.get("initContainerStatuses") or [])]
    own: dict[str, Any] = next((each for each in states if container is None or each.get("name") == container), {})
    ended = (own.get("state") or {}).get("terminated")
    policy = (found.get("spec") or {}).get("restartPolicy", "Always")
    return ended is not None and (policy == "Never" or (policy == "OnFailure" and ended.get("exitCode") == 0))
