"""A sweep's progress as lines of its driver's log, told from the journal while the driver works.

Trials' lines have one fixed form (`tune.table`), from which a terminal that follows the log draws its table.
"""

import threading
from collections.abc import Callable

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.tune.history import History
from raytrain_eks.tune.table import Lines

EVERY = 2.0
"""Seconds between two looks into the journal."""


class Telling:
    """A thread that tells each trial's news; all that is left is told at the end."""

    def __init__(self, storage: Storage | str, name: str, say: Callable[[str], None], *, every: float = EVERY):
        self._storage, self._name, self._say, self._every = Storage.of(storage), name, say, every
        self._lines = Lines()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="sweep-telling", daemon=True)

    def __enter__(self) -> "Telling":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._thread.join(timeout=30)
        self._tell()

    def _tell(self) -> None:
        try:
            history = History.read(self._storage, self._name)
        except OSError as error:
            self._say(f"the sweep's journal cannot be read now, trials go on: {error}")
            return
        for text in self._lines.of(history) if history is not None else []:
            self._say(text)

    def _work(self) -> None:
        while not self._closing.wait(self._every):
            self._tell()
