"""The goodput ledger: where the wall-clock time of a run went, out of its own metrics and events.

Pure: it reads lines and gives seconds. The kinds add up to the time from the first sign of the run to its last:

- `productive`: optimizer steps that count, without their wait for data;
- `data`: waiting for data in them;
- `redone`: steps that a crash undid and a later attempt did again;
- `evaluation`, `stalls`: held-out loss; the loop waiting for a snapshot;
- `startup`: from the start of a driver or worker group to its first step;
- `idle`: nobody worked on the run: from a crash or a stop to the next start.
"""

from collections.abc import Iterable, Mapping
from typing import Any

KINDS = ("productive", "data", "redone", "evaluation", "stalls", "startup", "idle")
_ENDS = ("stopped", "finished")


def ledger(metrics: Iterable[Mapping[str, Any]], events: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds of each kind, and `goodput`, the productive part of the whole (0 before the first step)."""
    steps, told = list(metrics), list(events)
    seconds = dict.fromkeys(KINDS, 0.0)
    newest: dict[int, Mapping[str, Any]] = {}
    for line in steps:
        before = newest.get(line["step"])
        if before is not None:
            seconds["redone"] += float(before["step_seconds"])
        newest[line["step"]] = line
    for line in newest.values():
        seconds["productive"] += float(line["step_seconds"]) - float(line["data_seconds"])
        seconds["data"] += float(line["data_seconds"])
    for event in told:
        seconds["evaluation"] += float(event.get("took", 0.0)) if event["event"] == "evaluated" else 0.0
        seconds["stalls"] += float(event.get("stall_seconds", 0.0))
    _gaps(steps, told, seconds)
    whole = sum(seconds.values())
    return {kind: round(value, 3) for kind, value in seconds.items()} | {
        "goodput": round(seconds["productive"] / whole, 4) if whole else 0.0
    }


def _gaps(steps: list[Mapping[str, Any]], told: list[Mapping[str, Any]], seconds: dict[str, float]) -> None:
    """Start-up of every attempt, and the time between the last sign of one and the start of the next."""
    signs: dict[int, list[float]] = {}
    first: dict[int, float] = {}
    began: dict[int, float] = {}
    for line in steps:
        signs.setdefault(line["attempt"], []).append(line["time"])
        start = line["time"] - line["step_seconds"]
        first[line["attempt"]] = min(first.get(line["attempt"], start), start)
    for event in told:
        signs.setdefault(event["attempt"], []).append(event["time"])
        if event["event"] == "worker":
            # The driver began so long before; a group that Ray started again has the same driver.
            began[event["attempt"]] = event["time"] - float(event.get("seconds", 0.0))
    last: float | None = None
    for attempt in sorted(signs):
        ends = max(signs[attempt])
        start = began.get(attempt, min(signs[attempt]))
        if last is not None:
            seconds["idle"] += max(start - last, 0.0)
            start = max(start, last)
        ready = first.get(attempt, ends)
        before = sum(
            float(event.get("took", 0.0))
            for event in told
            if event["attempt"] == attempt and event["event"] == "evaluated" and event["time"] <= ready
        )
        seconds["startup"] += max(ready - start - before, 0.0)
        last = ends
