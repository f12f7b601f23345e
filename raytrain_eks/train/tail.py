"""Following files of JSON lines that grow on shared storage."""

import contextlib
import json
from typing import Any

from raytrain_eks.checkpoint.storage import Storage


class Tail:
    """New whole lines of one file, from where it ended when the Tail was made."""

    def __init__(self, storage: Storage, path: str):
        self._storage, self._path = storage, path
        self._offset = storage.size(path) or 0

    def __call__(self) -> list[dict[str, Any]]:
        """The lines that have come since the last call; a half-written last line waits for its end. Raises OSError."""
        size = self._storage.size(self._path)
        if size is None or size <= self._offset:
            return []
        content = self._storage.read(self._path, start=self._offset)
        whole = content.rfind(b"\n") + 1
        self._offset += whole
        found = []
        for line in content[:whole].split(b"\n"):
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return [line for line in found if isinstance(line, dict)]
