"""What a sweep's folder tells a person: its trials, what became of each, and why. Reads only; imports neither ray nor
torch.

What the journal means is decided by `tune.record`, for the driver and for whoever looks on; here it is put together
with what only a person wants to know: decisions and lineage. Half a line at the end, left by a crash, is left out.
"""

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.tune import record
from raytrain_eks.tune.record import ENDS

TRIALS = "trials.jsonl"
SUMMARY = "sweep.json"
FILE = "sweep.yaml"
RUNS = "trials"
"""The folder of the trials' run folders."""
BAD = ("failed", "diverged")
STATES = ("pending", "running", "paused", "interrupted", *ENDS)


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
    """pending, running, paused, interrupted (the sweep goes on, but has not come to it again), or one of ENDS."""
    reason: str | None = None
    step: int | None = None
    tokens: int | None = None
    points: dict[int, float] = field(default_factory=dict)
    """Step -> objective, as far as it was finite."""
    rungs: list[Rung] = field(default_factory=list)
    clones: list[Clone] = field(default_factory=list)
    seed: int | None = None
    starts: int = 0
    trained: int = 0
    """Optimizer steps that were really done, those included that a crash undid."""
    attempt: int = 0
    """Of the newest line about it."""
    furthest: int | None = None
    """The step that the last line about it told."""
    busy: float = 0.0
    """Seconds in which it had its workers."""

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
        return found

    @staticmethod
    def of(events: Iterable[Mapping[str, Any]], **fields: Any) -> "History":
        """The sweep that these lines tell, in their order; `fields` are those of History."""
        told: list[Mapping[str, Any]] = []
        attempt = 0
        for line in events:
            # A lower attempt's writer was fenced.
            if line.get("attempt", 0) >= attempt:
                attempt = line.get("attempt", 0)
                told.append(line)
        known = record.Record(told)
        trials = {name: _trial(trial) for name, trial in known.trials.items()}
        for line in told:
            if (shown := trials.get(str(line.get("trial")))) is not None:
                _look(shown, line)
        for shown in trials.values():
            if shown.state in ("running", "paused") and shown.attempt < attempt:
                # A newer driver has not come to it yet.
                shown.state = "interrupted"
        ordered = sorted(trials.values(), key=lambda trial: (trial.number, trial.id))
        return History(**{"seconds": known.seconds} | fields, attempt=attempt, trials=ordered)

    @property
    def best(self) -> Trial | None:
        """The trial that ranks first; None before the first objective."""
        ranked = self.ranked()
        return ranked[0] if ranked and ranked[0].points and ranked[0].state not in BAD else None

    def ranked(self) -> list[Trial]:
        """From best to worst, as `record.ranking` has it."""
        return record.ranking(self.trials, self.mode)

    def parameters(self) -> list[str]:
        """Every parameter that some trial has, in the order in which they came up."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.parameters))

    def counts(self) -> dict[str, int]:
        """State -> how many trials are in it."""
        states = [trial.state for trial in self.trials]
        return {state: states.count(state) for state in dict.fromkeys(states)}

    @property
    def trained_steps(self) -> int:
        """Optimizer steps that were really done in all trials."""
        return sum(trial.trained for trial in self.trials)


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


def _trial(known: record.Trial) -> Trial:
    """A trial as the record has it."""
    begun = known.starts > 0 or known.step > 0 or known.state != "pending"
    return Trial(
        id=known.name,
        number=known.number,
        parameters=dict(known.parameters),
        state=known.state,
        reason=known.reason or None,
        step=known.step if begun else None,
        tokens=known.tokens if begun else None,
        points={step: value for step, value in sorted(known.values.items()) if math.isfinite(value)},
        seed=known.seed,
        starts=known.starts,
        trained=known.trained,
        busy=known.busy,
    )


def _look(trial: Trial, line: Mapping[str, Any]) -> None:
    """What a line adds to what the record knows: which decision, held against what, and where a clone was taken."""
    event, step = line.get("event"), line.get("step")
    trial.attempt = line.get("attempt", 0)
    if event == "rung":
        value, cutoff = number(line.get("value")), number(line.get("cutoff"))
        kept, at = bool(line["kept"]), int(step or 0)
        rung = Rung(rung=int(line["rung"]), step=at, value=value, cutoff=cutoff, kept=kept)
        # After a crash the same rung may be reached again; the later decision is the one that was followed.
        trial.rungs = [each for each in trial.rungs if each.rung != rung.rung] + [rung]
    elif event == "cloned":
        at, fresh = int(line["donor_step"]), dict(line["parameters"])
        where = trial.furthest if trial.furthest is not None else at
        trial.clones.append(Clone(step=where, donor=str(line["donor"]), donor_step=at, parameters=fresh))
        trial.furthest = at
    if isinstance(step, int) and event != "started":
        trial.furthest = step


def _json(folder: Storage, path: str) -> dict[str, Any] | None:
    with contextlib.suppress(FileNotFoundError, ValueError):
        found = json.loads(folder.read(path))
        return found if isinstance(found, dict) else None
    return None


def _yaml(folder: Storage) -> dict[str, Any]:
    """`sweep.yaml` as plain data; empty where there is none or it is no mapping."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    with contextlib.suppress(FileNotFoundError, YAMLError):
        found = YAML(typ="safe", pure=True).load(folder.read(FILE))
        return found if isinstance(found, dict) else {}
    return {}


def _objective(told: Mapping[str, Any]) -> dict[str, str]:
    """Metric and mode, as `History` takes them."""
    objective = told.get("objective")
    found = objective if isinstance(objective, dict) else {}
    return {key: str(found[key]) for key in ("metric", "mode") if found.get(key)}
