"""What a sweep's folder tells: its trials, what became of each, and why. Reads only; imports neither ray nor torch.

The driver of a sweep appends to `trials.jsonl`; this module folds those lines into trials. A line of an attempt older
than one seen before it is ignored: its writer was fenced. Half a line at the end, left by a crash, is left out.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.checkpoint.storage import Storage

TRIALS = "trials.jsonl"
SUMMARY = "sweep.json"
FILE = "sweep.yaml"
RUNS = "trials"
"""The folder of the trials' run folders."""
OVER = ("completed", "stopped", "failed", "diverged", "cancelled")
"""States in which a trial stays, unless a later attempt starts it again."""
BAD = ("failed", "diverged")
STATES = ("pending", "running", "paused", "interrupted", *OVER)


@dataclass(frozen=True, kw_only=True)
class Rung:
    """A decision of the scheduler about a trial."""

    rung: int
    step: int
    value: float | None
    cutoff: float | None
    """What the value was held against; None: too few trials had come so far."""
    kept: bool


@dataclass(frozen=True, kw_only=True)
class Clone:
    """A trial of population based training took over the state of another one."""

    step: int
    """Where the trial was, or where its donor's checkpoint is when that is not known."""
    donor: str
    donor_step: int
    parameters: dict[str, Any]
    """Those it went on with."""


@dataclass(kw_only=True)
class Trial:
    """One trial: an ordinary run, and what the sweep decided about it."""

    id: str
    number: int = 0
    """In the order of creation, from 1."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """Path in the job -> value; those of now, where they changed in flight."""
    state: str = "pending"
    """pending, running, paused, interrupted (the sweep goes on, but has not come to it again), or one of OVER."""
    reason: str | None = None
    step: int | None = None
    tokens: int | None = None
    points: dict[int, float] = field(default_factory=dict)
    """Step -> objective, as far as it was finite."""
    rungs: list[Rung] = field(default_factory=list)
    clones: list[Clone] = field(default_factory=list)
    seed: int | None = None
    starts: int = 0
    attempt: int = 0
    """Of the newest line about it."""
    began: float | None = None
    """Wall-clock seconds of its first start, for people only."""
    ended: float | None = None

    @property
    def value(self) -> float | None:
        """The newest objective."""
        return self.points[max(self.points)] if self.points else None

    def best(self, mode: str) -> tuple[int, float] | None:
        """(step, objective) of its best; the earlier one of equals."""
        sign = -1 if mode == "max" else 1
        return min(self.points.items(), key=lambda point: (sign * point[1], point[0]), default=None)

    def value_by(self, step: int) -> float | None:
        """The newest objective at or before a step, None for a trial that never came so far."""
        if not self.points or max(self.points) < step:
            return None
        return self.points.get(max((each for each in self.points if each <= step), default=-1))


@dataclass(kw_only=True)
class History:
    """A sweep, as far as it has come."""

    name: str
    metric: str = "objective"
    mode: str = "min"
    state: str = "running"
    reason: str | None = None
    seed: int | None = None
    seconds: float | None = None
    """Of the sweep, over all attempts, as its driver says."""
    attempt: int = 0
    trials: list[Trial] = field(default_factory=list)
    """In the order of creation."""
    counted: int | None = None
    """Trained steps as the driver counted them, where it has done so."""
    export: str | None = None
    """Where the best trial's model is, relative to the sweep's folder."""

    @staticmethod
    def read(storage: "Storage | str", name: str) -> "History | None":
        """The sweep of that name; None when there is none. Raises OSError where storage does not answer."""
        folder = Storage.of(storage).child(name)
        try:
            text = folder.read(TRIALS)
        except FileNotFoundError:
            text = b""
            if not folder.exists(FILE):
                return None
        summary = _json(folder, SUMMARY)
        found = History.of(lines(text), name=name, **_objective(summary or _yaml(folder)))
        if summary:
            found.state, found.reason = str(summary.get("state", "running")), summary.get("reason")
            found.seed, found.seconds, found.export = (summary.get(key) for key in ("seed", "seconds", "export"))
            found.counted = summary.get("trained_steps")
        return found

    @staticmethod
    def of(events: Iterable[Mapping[str, Any]], **fields: Any) -> "History":
        """The sweep that these lines tell, in their order; `fields` are those of History."""
        found = History(**fields)
        trials: dict[str, Trial] = {}
        for line in events:
            attempt = line.get("attempt", 0)
            if attempt < found.attempt or not isinstance(line.get("trial"), str):
                continue
            found.attempt = attempt
            trial = trials.setdefault(line["trial"], Trial(id=line["trial"], number=len(trials) + 1))
            trial.attempt = attempt
            if line.get("event") == "cloned":
                _clone(trial, line, trials.get(str(line.get("donor"))))
            else:
                _take(trial, line)
        found.trials = sorted(trials.values(), key=lambda trial: (trial.number, trial.id))
        for trial in found.trials:
            if trial.state in ("running", "paused") and trial.attempt < found.attempt:
                # A newer driver has not come to it yet.
                trial.state = "interrupted"
        return found

    @property
    def best(self) -> Trial | None:
        """The trial that ranks first; None before the first objective."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].points and ranked[0].state not in BAD else None

    def ranked(self) -> list[Trial]:
        """From best to worst: completed trials by their last objective, then the others by how far they came and by
        objective, since one from an early step says less; what failed or diverged comes last."""
        sign = -1.0 if self.mode == "max" else 1.0

        def place(trial: Trial) -> tuple[float, ...]:
            value = trial.value
            if value is None or trial.state in BAD:
                return 2, 0, 0.0, trial.number
            done = trial.state == "completed"
            return 0 if done else 1, 0 if done else -(trial.step or 0), sign * value, trial.number

        return sorted(self.trials, key=place)

    def parameters(self) -> list[str]:
        """Every parameter that some trial has, in the order in which they came up."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.parameters))

    def counts(self) -> dict[str, int]:
        """State -> how many trials are in it."""
        states = [trial.state for trial in self.trials]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    @property
    def trained_steps(self) -> int:
        """Steps of all trials: as the driver counted them, else where the trials are now."""
        return self.counted if self.counted is not None else sum(trial.step or 0 for trial in self.trials)


def lines(text: bytes) -> list[dict[str, Any]]:
    """Every whole JSON object of a file of lines."""
    found = []
    for line in text.split(b"\n"):
        with contextlib.suppress(ValueError):
            if isinstance(parsed := json.loads(line), dict):
                found.append(parsed)
    return found


def number(value: Any) -> float | None:
    """A finite number; None for everything else, also for the words that stand for NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _take(trial: Trial, line: Mapping[str, Any]) -> None:
    """What one line says about its trial."""
    event, step = line.get("event"), line.get("step")
    if event == "created":
        trial.number = int(line.get("number", trial.number))
        trial.parameters, trial.seed = dict(line.get("parameters") or {}), line.get("seed")
    elif event == "started":
        trial.state, trial.reason, trial.ended = "running", None, None
        trial.starts += 1
        trial.began = trial.began if trial.began is not None else number(line.get("time"))
    elif event == "progress" and trial.state not in OVER:
        trial.state = "running"
    elif event == "rung":
        value, cutoff = number(line.get("value")), number(line.get("cutoff"))
        kept, at = bool(line.get("kept", True)), int(step or 0)
        rung = Rung(rung=int(line.get("rung", 0)), step=at, value=value, cutoff=cutoff, kept=kept)
        # After a crash the same rung is reached again; the later decision is the one that was followed.
        trial.rungs = [each for each in trial.rungs if each.rung != rung.rung] + [rung]
    elif event == "paused":
        trial.state = "paused"
    elif event == "ended":
        trial.state, trial.reason = str(line.get("state", "completed")), line.get("reason") or None
        trial.ended = number(line.get("time"))
    if isinstance(step, int):
        trial.step = step
        if event in ("progress", "ended", "rung") and (value := number(line.get("value"))) is not None:
            trial.points[step] = value
    if isinstance(line.get("tokens"), int):
        trial.tokens = line["tokens"]


def _clone(trial: Trial, line: Mapping[str, Any], donor: Trial | None) -> None:
    """The trial goes on from its donor's state: what it had reached is given up, its history is now the donor's."""
    at = int(line.get("donor_step") or 0)
    step = line.get("step")
    where = step if isinstance(step, int) else (trial.step or at)
    fresh = dict(line.get("parameters") or {})
    trial.clones.append(Clone(step=where, donor=str(line.get("donor")), donor_step=at, parameters=fresh))
    trial.parameters = trial.parameters | fresh
    trial.step = at
    if donor is not None:
        trial.points = {step: value for step, value in donor.points.items() if step <= at}


def _json(folder: Storage, path: str) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = json.loads(folder.read(path))
        return found if isinstance(found, dict) else None
    return None


def _yaml(folder: Storage) -> dict[str, Any]:
    """`sweep.yaml` as plain data; empty where there is none or it is no mapping."""
    from ruamel.yaml import YAML, YAMLError

    with contextlib.suppress(FileNotFoundError, YAMLError):
        found = YAML(typ="safe", pure=True).load(folder.read(FILE))
        return found if isinstance(found, dict) else {}
    return {}


def _objective(told: Mapping[str, Any]) -> dict[str, str]:
    """Metric and mode, as `History` takes them."""
    objective = told.get("objective")
    found = objective if isinstance(objective, dict) else {}
    return {key: str(found[key]) for key in ("metric", "mode") if found.get(key)}
