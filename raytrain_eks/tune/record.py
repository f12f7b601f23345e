"""What is known of a sweep: its trials, as the events of the journal tell it, one after the other.

The state is a pure function of the events. A driver that lives records each event as it happens; one that goes on
replays the file. Both come to the same state, which is why nothing is lost with a process.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

ENDS = ("completed", "stopped", "failed", "diverged", "cancelled")
"""How a trial can end: at its last step, by the scheduler, by an error, by its loss, by a person."""
Event = Mapping[str, Any]


@dataclass(kw_only=True)
class Clone:
    """A trial that went on from another one's checkpoint."""

    donor: str
    donor_step: int
    parameters: dict[str, Any]
    gate: int
    """The exchange at which it was decided."""
    copied: bool = False
    """Whether the trial has the checkpoint now: the donor's is no longer needed."""


@dataclass(kw_only=True)
class Trial:
    """One trial."""

    name: str
    number: int
    parameters: dict[str, Any]
    seed: int | None = None
    state: str = "pending"
    """pending, running, paused, or one of ENDS."""
    reason: str = ""
    step: int = 0
    tokens: int = 0
    values: dict[int, float] = field(default_factory=dict)
    """Step -> objective, of the lineage that the trial is on now."""
    rungs: dict[int, bool] = field(default_factory=dict)
    """Rung -> whether it was to go on."""
    gates: dict[int, float] = field(default_factory=dict)
    """Rung or exchange -> objective there."""
    clones: list[Clone] = field(default_factory=list)
    starts: int = 0
    trained: int = 0
    """Optimizer steps that were really done, those included that a crash undid."""
    busy: float = 0.0
    """Seconds in which it had its workers."""
    _seen: tuple[int, float] | None = None

    @property
    def over(self) -> bool:
        """Whether it will never run again."""
        return self.state in ENDS

    @property
    def value(self) -> float | None:
        """The newest objective."""
        return self.values[max(self.values)] if self.values else None

    def best(self, mode: str) -> tuple[int, float] | None:
        """Step and objective of the best evaluation; of equal ones the earlier."""
        finite = [(step, value) for step, value in sorted(self.values.items()) if math.isfinite(value)]
        sign = 1 if mode == "min" else -1
        return min(finite, key=lambda each: sign * each[1], default=None)


class Record:
    """All trials of a sweep, by name, in the order of their numbers."""

    def __init__(self, events: Iterable[Event] = ()):
        self.trials: dict[str, Trial] = {}
        self.rungs: dict[int, dict[str, float]] = {}
        """Rung -> trial -> objective, in the order in which they came."""
        self.seconds = 0.0
        """Wall-clock time of all attempts."""
        self.exchanged: set[int] = set()
        """Exchanges that are decided."""
        self._last: tuple[int, float] | None = None
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        """Take one event; one of a kind that is not known changes nothing, nor does one of a driver that was fenced."""
        at = (int(event.get("attempt", 0)), float(event.get("time", 0.0)))
        if self._last is not None and self._last[0] > at[0]:
            return
        if self._last is not None and self._last[0] == at[0]:
            self.seconds += max(at[1] - self._last[1], 0.0)
        self._last = at
        name = event.get("trial")
        if event["event"] == "created":
            fields = {key: event[key] for key in ("number", "parameters", "seed") if key in event}
            self.trials[str(name)] = Trial(name=str(name), **fields)
            return
        if event["event"] == "exchanged":
            self.exchanged.add(int(event["gate"]))
        trial = self.trials.get(str(name))
        take = getattr(self, f"_{event['event']}", None)
        if trial is None or take is None:
            return
        if trial.state == "running" and trial._seen is not None and trial._seen[0] == at[0]:
            trial.busy += max(at[1] - trial._seen[1], 0.0)
        trial._seen = at
        take(trial, event)

    def _started(self, trial: Trial, event: Event) -> None:
        trial.state, trial.starts = "running", trial.starts + 1

    def _progress(self, trial: Trial, event: Event) -> None:
        trial.step, trial.tokens = int(event["step"]), int(event["tokens"])
        trial.trained = max(trial.trained, int(event.get("trained", 0)))
        value = number(event.get("value"))
        if value is not None:
            trial.values[trial.step] = value
        if event.get("gate") is not None and value is not None:
            trial.gates[int(event["gate"])] = value

    def _paused(self, trial: Trial, event: Event) -> None:
        trial.state = "paused"

    def _rung(self, trial: Trial, event: Event) -> None:
        rung, value = int(event["rung"]), number(event["value"])
        trial.rungs[rung] = bool(event["kept"])
        trial.gates[rung] = math.nan if value is None else value
        self.rungs.setdefault(rung, {})[trial.name] = trial.gates[rung]

    def _cloned(self, trial: Trial, event: Event) -> None:
        donor = self.trials[str(event["donor"])]
        step = int(event["donor_step"])
        about = {"donor": donor.name, "donor_step": step, "gate": int(event["gate"])}
        trial.clones.append(Clone(parameters=dict(event["parameters"]), **about))
        trial.parameters = dict(event["parameters"])
        # What it had reached is given up: its history is now the donor's up to there.
        trial.values = {at: value for at, value in donor.values.items() if at <= step}
        trial.step, trial.tokens = step, int(event.get("tokens", donor.tokens))

    def _copied(self, trial: Trial, event: Event) -> None:
        trial.clones[-1].copied = True

    def _ended(self, trial: Trial, event: Event) -> None:
        trial.state, trial.reason = str(event["state"]), str(event.get("reason", ""))
        trial.step, trial.tokens = int(event["step"]), int(event["tokens"])
        trial.trained = max(trial.trained, int(event.get("trained", 0)))
        value = number(event.get("value"))
        if value is not None:
            trial.values[trial.step] = value

    # -- what follows from it -----------------------------------------------------------------------------------

    def ended(self, *states: str) -> list[Trial]:
        """Trials that ended so, or at all."""
        return [trial for trial in self.trials.values() if trial.state in (states or ENDS)]

    def ranking(self, mode: str) -> list[Trial]:
        """Trials from best to worst."""
        return ranking(self.trials.values(), mode)

    def best(self, mode: str) -> Trial | None:
        """The best trial; None while none has an objective."""
        first = next(iter(self.ranking(mode)), None)
        usable = first is not None and first.state not in ("failed", "diverged") and first.value is not None
        return first if usable else None


class Ranked(Protocol):
    """What a trial's place depends on."""

    number: int
    state: str

    @property
    def step(self) -> int | None: ...

    @property
    def value(self) -> float | None: ...


AnyTrial = TypeVar("AnyTrial", bound=Ranked)


def ranking(trials: Iterable[AnyTrial], mode: str) -> list[AnyTrial]:
    """Trials from best to worst: completed ones by their last objective, then stopped ones by how far they came and by
    objective, since an objective from an early step says less; what failed or diverged comes last."""
    sign = 1.0 if mode == "min" else -1.0

    def key(trial: AnyTrial) -> tuple[float, ...]:
        value = trial.value
        if value is None or not math.isfinite(value) or trial.state in ("failed", "diverged"):
            return 2, -(trial.step or 0), 0.0, trial.number
        done = trial.state == "completed"
        return 0 if done else 1, 0 if done else -(trial.step or 0), sign * value, trial.number

    return sorted(trials, key=key)


def number(value: Any) -> float | None:
    """A float of the journal, in which words stand for what JSON has not; None for none."""
    if value is None or isinstance(value, bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def summary(record: Record, *, name: str, metric: str, mode: str, seed: int, state: str, reason: str) -> dict[str, Any]:
    """The body of `sweep.json`."""
    trials = []
    for trial in record.trials.values():
        best = trial.best(mode)
        # What runs while nobody works on the sweep was cut short.
        shown = trial.state if state == "running" or trial.over else "interrupted" if trial.starts else "pending"
        trials.append(
            {
                "trial": trial.name,
                "number": trial.number,
                "parameters": trial.parameters,
                "state": shown,
                "reason": trial.reason,
                "step": trial.step,
                "tokens": trial.tokens,
                "value": _json(trial.value),
                "best_value": best[1] if best else None,
                "best_step": best[0] if best else None,
                "trained_steps": trial.trained,
                "seconds": round(trial.busy, 3),
            }
        )
    winner = record.best(mode)
    return {
        "name": name,
        "state": state,
        "reason": reason,
        "objective": {"metric": metric, "mode": mode},
        "trials": trials,
        "best": winner.name if winner is not None else None,
        "trained_steps": sum(trial.trained for trial in record.trials.values()),
        "seconds": round(record.seconds, 3),
        "seed": seed,
    }


def _json(value: float | None) -> float | str | None:
    return value if value is None or math.isfinite(value) else str(value)
