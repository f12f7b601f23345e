"""Progress as lines that a person reads and a program can parse.

`step 25/150  loss 6.1234  lr 2.9e-03  4096 tok/s  eta 1m30s` is their fixed form. The driver follows the run's metrics
on shared storage and prints; the training itself never waits for it.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def duration(seconds: float) -> str:
    """Seconds for people: `45s`, `1m30s`, `2h05m`, `3d04h`."""
    whole = max(round(seconds), 0)
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if days:
        return f"{days}d{hours % 24:02d}h"
    if hours:
        return f"{hours}h{minutes % 60:02d}m"
    return f"{minutes}m{whole % 60:02d}s" if minutes else f"{whole}s"


class Speed:
    """Tokens and seconds per step over the last steps; an exact mean, since steps are few and times are noisy."""

    def __init__(self, window: int = 50):
        self._recent: deque[tuple[int, float]] = deque(maxlen=window)

    def add(self, tokens: int, seconds: float) -> None:
        """Count one step."""
        self._recent.append((tokens, seconds))

    @property
    def tokens_per_second(self) -> float:
        """0 before the first step."""
        seconds = sum(took for _, took in self._recent)
        return sum(tokens for tokens, _ in self._recent) / seconds if seconds else 0.0

    @property
    def seconds_per_step(self) -> float:
        """0 before the first step."""
        return sum(took for _, took in self._recent) / len(self._recent) if self._recent else 0.0


def places(ranks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Where each rank's own log is, a line for each node: `ranks on gpu-7 (node 3f2a...): 0=231 1=232`. `logs --rank`
    reads it where the run folder cannot be reached."""
    nodes: dict[tuple[str, str], list[str]] = {}
    for rank, each in enumerate(ranks):
        nodes.setdefault((str(each["host"]), str(each.get("node"))), []).append(f"{rank}={each['pid']}")
    return [f"ranks on {host} (node {node}): {' '.join(found)}" for (host, node), found in nodes.items()]


class Lines:
    """Turns metrics into lines, at most one every `every` seconds of training."""

    def __init__(self, steps: int, every: float = 2.0):
        self._steps, self._every, self._speed = steps, every, Speed()
        self._since = every

    def of(self, metrics: Iterable[Mapping[str, Any]]) -> list[str]:
        """The lines of newly arrived metrics."""
        lines = []
        for line in metrics:
            if line.get("event") == "worker":
                lines += places(line.get("ranks") or [])
            elif line.get("held_out_loss") is not None:
                bits = line.get("bits_per_byte")
                told = f"  {float(bits):.4f} bits per byte" if bits is not None else ""
                lines.append(
                    f"step {line['step']}/{self._steps}  held-out loss {float(line['held_out_loss']):.4f}{told}"
                )
            elif line.get("loss") is not None:
                self._speed.add(int(line["tokens"]), float(line["step_seconds"]))
                self._since += float(line["step_seconds"])
                if self._since >= self._every or line["step"] == self._steps:
                    self._since = 0.0
                    lines.append(self._step(line))
        return lines

    def _step(self, line: Mapping[str, Any]) -> str:
        left = (self._steps - int(line["step"])) * self._speed.seconds_per_step
        return (
            f"step {line['step']}/{self._steps}  loss {float(line['loss']):.4f}  lr {float(line['learning_rate']):.1e}"
            f"  {self._speed.tokens_per_second:.0f} tok/s  eta {duration(left)}"
        )


class Follower:
    """A thread that prints the progress of a run while the driver waits for it."""

    def __init__(self, news: Callable[[], list[dict[str, Any]]], steps: int, say: Callable[[str], None]):
        self._news, self._lines, self._say = news, Lines(steps), say
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)

    def __enter__(self) -> "Follower":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._closing.set()
        self._thread.join(timeout=10)
        self._tell()

    def _tell(self) -> None:
        for text in self._lines.of(self._news()):
            self._say(text)

    def _follow(self) -> None:
        while not self._closing.wait(0.5):
            try:
                self._tell()
            except OSError as error:
                self._say(f"metrics cannot be read now, training goes on: {error}")
                self._closing.wait(5)
