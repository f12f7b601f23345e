"""What goes wrong on purpose: answers instead of the right one, delays, cut connections, watches that end."""

import fnmatch
import threading
from dataclasses import dataclass, field


@dataclass
class Fault:
    """One kind of trouble, for requests that match its shell patterns, `times` times (-1: always)."""

    verb: str = "*"
    """`get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`; `get` for other addresses."""
    resource: str = "*"
    """Plural, with a subresource behind a slash: `rayjobs`, `pods/log`."""
    name: str = "*"
    path: str = "*"
    times: int = 1
    code: int = 0
    """The status to answer with; 0: none."""
    retry_after: int = 0
    """Seconds, in header and details."""
    seconds: float = 0
    """Wait so long first. Past the client's own time-out it is a time-out."""
    drop: bool = False
    """Cut the connection without an answer."""
    after: bool = False
    """The request is done, and only then goes wrong: the client cannot know that it was."""
    hits: int = field(default=0, init=False)

    def matches(self, verb: str, resource: str, name: str, path: str) -> bool:
        pairs = ((verb, self.verb), (resource, self.resource), (name, self.name), (path, self.path))
        return self.times != 0 and all(fnmatch.fnmatchcase(given, pattern) for given, pattern in pairs)


class Faults:
    """The faults of one API double; none at first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Fault] = []

    def add(self, fault: Fault) -> Fault:
        with self._lock:
            self._waiting.append(fault)
        return fault

    def respond(self, code: int, *, retry_after: int = 0, times: int = 1, after: bool = False, **where: str) -> Fault:
        """Answer with a status: `respond(429, retry_after=1, verb="list", resource="rayjobs")`."""
        return self.add(Fault(code=code, retry_after=retry_after, times=times, after=after, **where))

    def delay(self, seconds: float, *, times: int = 1, **where: str) -> Fault:
        """Answer late."""
        return self.add(Fault(seconds=seconds, times=times, **where))

    def drop(self, *, times: int = 1, after: bool = False, **where: str) -> Fault:
        """Cut the connection instead of answering."""
        return self.add(Fault(drop=True, times=times, after=after, **where))

    def clear(self) -> None:
        with self._lock:
            self._waiting = []

    def take(self, verb: str, resource: str, name: str, path: str) -> Fault | None:
        """The fault that meets a request, counted; None mostly."""
        with self._lock:
            for fault in self._waiting:
                if fault.matches(verb, resource, name, path):
                    fault.times -= 1 if fault.times > 0 else 0
                    fault.hits += 1
                    return fault
        return None
