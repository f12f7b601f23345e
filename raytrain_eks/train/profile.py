"""A trace of a few steps by torch's profiler, into the run folder: open it with Perfetto or `chrome://tracing`."""

import tempfile
from pathlib import Path
from typing import Any

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.job_watch import Profile


class Profiler:
    """Traces the steps that the job names, each rank into a file of its own."""

    def __init__(self, asked: Profile | None, storage: Storage, *, attempt: int, rank: int):
        self._steps = asked.steps if asked is not None else None
        self._storage = storage
        self.path = f"profile/attempt-{attempt:04d}-rank-{rank:05d}.json"
        self._running: Any = None

    def before(self, step: int) -> None:
        """Step `step` (counted from 1) is about to begin."""
        if self._steps is not None and step == self._steps[0]:
            import torch

            activities = [torch.profiler.ProfilerActivity.CPU]
            if torch.cuda.is_available():
                activities.append(torch.profiler.ProfilerActivity.CUDA)
            self._running = torch.profiler.profile(activities=activities, record_shapes=True)
            self._running.__enter__()

    def after(self, step: int) -> bool:
        """Step `step` is done; whether a trace was written."""
        if self._running is None or self._steps is None or step < self._steps[1]:
            return False
        self._running.__exit__(None, None, None)
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "trace.json"
            self._running.export_chrome_trace(str(file))
            self._storage.write(self.path, file.read_bytes())
        self._running = None
        return True
