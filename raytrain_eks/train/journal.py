"""The side channel: step metrics and events leave the loop here, never through Ray's `report()`.

Rank 0 hands lines over without waiting; a thread writes and flushes them each second.
"""

import json
import math
import threading
import time
from collections.abc import Callable
from typing import Any

from raytrain_eks.checkpoint.storage import Appender, Storage


class Journal:
    """Lines of JSON that a thread appends to files of a storage about once a second.

    Lines that cannot be written now are kept for the next try, and `errors` counts it. `tick` is called once a second
    from the same thread, and `listen` with each line.
    """

    def __init__(
        self,
        storage: Storage,
        *,
        every: float = 1.0,
        tick: Callable[[], None] = lambda: None,
        listen: Callable[[dict[str, Any]], None] = lambda line: None,
    ):
        self._storage, self._every, self._tick, self._listen = storage, every, tick, listen
        self._files: dict[str, Appender] = {}
        self._lines: dict[str, list[dict[str, Any]]] = {}
        self._texts: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._flushing = threading.Lock()
        self._closing = threading.Event()
        self.errors = 0
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def add(self, name: str, **fields: Any) -> None:
        """Hand over one line for the file `name`; never waits for a disk."""
        with self._lock:
            self._lines.setdefault(name, []).append(fields)

    def flush(self) -> None:
        """Write what is there now."""
        with self._flushing:
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            fresh, self._lines = self._lines, {}
            pending, self._texts = self._texts, {}
        for name, added in fresh.items():
            pending.setdefault(name, []).extend(_text(line) for line in added)
            for line in added:
                self._listen(line)
        for name, lines in pending.items():
            try:
                if name not in self._files:
                    self._files[name] = self._storage.appender(name)
                self._files[name].write("".join(lines).encode())
            except OSError:
                self.errors += 1
                with self._lock:
                    self._texts[name] = lines + self._texts.get(name, [])

    def close(self) -> None:
        """Write the rest and stop the thread."""
        self._closing.set()
        self._thread.join()
        self.flush()
        for file in self._files.values():
            file.close()

    def _write(self) -> None:
        while not self._closing.wait(self._every):
            self.flush()
            self._tick()


def _text(line: dict[str, Any]) -> str:
    return json.dumps({key: _finite(value) for key, value in line.items()}) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they are written as words, so that every reader can read every line."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def now() -> float:
    """Wall-clock seconds since the epoch, to the millisecond."""
    return round(time.time(), 3)
