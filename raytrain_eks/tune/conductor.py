"""What a sweep does next. It knows the record and decides; it starts nothing itself and knows neither Ray nor torch.

`next` gives the next leg: a trial that begins or goes on. `heard` takes what a trial tells and gives the word at a
rung. `finished` and `lost` take how a leg ended. Every decision is in the journal before the word is given, so a driver
that dies at any instant is followed by one that decides on.
"""

import contextlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raytrain_eks.checkpoint.retention import being_read, reading
from raytrain_eks.checkpoint.run import CHECKPOINTS, EXPORT
from raytrain_eks.spec import quantity
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError, counted
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.spec.sweep_job import tokens_per_step, trial_job, with_parameters
from raytrain_eks.spec.sweep_steering import Pbt
from raytrain_eks.tune import scheduler
from raytrain_eks.tune.folder import Journal
from raytrain_eks.tune.record import Trial, summary
from raytrain_eks.tune.search import suggest

ALIKE = 3
"""So many first trials that all fail alike end the sweep."""
LOSSES = 3
"""How often a trial's process may vanish before the trial counts as failed."""
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A job whose data is prepared."""

    prepared: str
    """URL of the prepared data."""
    steps: int
    """Optimizer steps of the whole run."""


@dataclass(frozen=True, kw_only=True)
class Leg:
    """A stretch of a trial: from where it is to its end, or to where it is told to stop. Plain data."""

    trial: str
    job: dict[str, Any]
    trials: str
    """URL of the folder with the trials' run folders."""
    prepared: str
    steps: int
    metric: str
    gates: dict[int, int] = field(default_factory=dict)
    """Step at which the trial waits for the word -> number of the rung."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """What the trial has of its own: in nothing else may its job differ from the run that is there."""
    clone: dict[str, Any] | None = None
    """`{"donor": .., "step": .., "number": ..}`: whose checkpoint it goes on from, and the how-manieth clone it is."""


class Conductor:
    """One attempt of a sweep, from where decisions are made."""

    def __init__(
        self,
        sweep: Sweep,
        journal: Journal,
        *,
        steps: int,
        ready: Callable[[Job], Ready],
        say: Say,
        workers: int,
        stop: Callable[[], str | None] = lambda: None,
    ):
        """`steps`: of the base job. `ready` prepares a trial's data, and raises SpecError for a job that cannot run.
        `stop` gives a reason when somebody asks the sweep to end."""
        self.sweep, self.journal, self.record, self.say = sweep, journal, journal.record, say
        self._ready, self._workers, self._asked = ready, workers, stop
        self.base = sweep.job_data()
        job = Job.parse(self.base)
        self._tokens = tokens_per_step(job)
        self._clock = getattr(sweep.scheduler, "clock", "step")
        self.places = scheduler.levels(sweep, steps, self._tokens)
        self.live: dict[str, Leg] = {}
        """Trials that have a leg now."""
        self._ending: dict[str, str] = {}
        """Living trials that were told to stop -> why: `stopped`, `paused`, `interrupted`."""
        self._pins: dict[str, contextlib.ExitStack] = {}
        self._ended: list[Trial] = []
        """Trials that ended in this attempt: whoever resumes a sweep has seen the earlier failures."""
        self._learnt = False
        """Whether any trial of this attempt came to an objective."""
        self._exhausted = False
        self._lost: dict[str, int] = {}
        self.ending: str | None = None
        """Why no further trial begins and the living ones are ended; None while all is well."""
        self.failed = False
        """Whether it ends because of failures."""
        for trial in self.record.trials.values():
            self._pinned_clone(trial)

    # -- what is next ---------------------------------------------------------------------------------------------

    def next(self) -> Leg | None:
        """The next leg, None when there is none now; ask again after something has ended, until `done`."""
        while not self._judged():
            trial = self._waiting()
            if trial is None and self._may_create():
                trial = self._create()
            if trial is None:
                return None
            leg = self._leg(trial)
            if leg is not None:
                return leg
        return None

    @property
    def done(self) -> bool:
        """Whether nothing runs and nothing more will."""
        if self.live:
            return False
        return self._judged() or (not self._may_create() and self._waiting() is None)

    def _judged(self) -> bool:
        """Whether the sweep is to end; takes notice of what asks for it."""
        if self.ending is None:
            self.ending = self._asked() or self._over_budget()
        if self.ending is None and (why := self._too_many_failures()) is not None:
            self.ending, self.failed = why, True
        return self.ending is not None

    def _over_budget(self) -> str | None:
        budget = self.sweep.budget
        if budget.time is not None and self.record.seconds >= quantity.seconds(budget.time):
            return f"its time is used up: budget.time is {budget.time}"
        hours = sum(trial.busy for trial in self.record.trials.values()) * self._workers / 3600
        if budget.accelerator_hours is not None and hours >= budget.accelerator_hours:
            return f"its accelerator hours are used up: budget.accelerator_hours is {budget.accelerator_hours:g}"
        return None

    def _too_many_failures(self) -> str | None:
        total = self.sweep.number or len(self.record.trials)
        failed = [trial for trial in self._ended if trial.state == "failed"]
        if not failed:
            return None
        first = self._ended[: min(ALIKE, total)]
        reasons = {_alike(trial.reason) for trial in first if trial.state == "failed"}
        if len(first) == min(ALIKE, total) and len(reasons) == 1 and not self._learnt:
            return f"the first {counted(len(first), 'trial')} all failed alike: {first[0].reason}"
        most = self.sweep.max_failures if self.sweep.max_failures is not None else max(total // 2, 1)
        if len(failed) > most:
            return f"{counted(len(failed), 'trial')} failed, max_failures is {most}; the last: {failed[-1].reason}"
        return None

    def _may_create(self) -> bool:
        number = self.sweep.number
        return not self._exhausted and (number is None or len(self.record.trials) < number)

    def _waiting(self) -> Trial | None:
        """A trial that was begun and can go on: the one that is least far."""
        if isinstance(self.sweep.scheduler, Pbt):
            self._exchange()
        able = [
            trial
            for trial in self.record.trials.values()
            if not trial.over and trial.name not in self.live and self._may_go_on(trial)
        ]
        return min(able, key=lambda trial: (trial.step, trial.number), default=None)

    def _may_go_on(self, trial: Trial) -> bool:
        return trial.state != "paused" or max(trial.gates, default=-1) in self.record.exchanged

    def _create(self) -> Trial | None:
        number = len(self.record.trials) + 1
        parameters = suggest(self.sweep, self.record, number)
        if parameters is None:
            self._exhausted = True
            return None
        name = f"t{number:04d}"
        seed = parameters.get("seed", self.base.get("seed", 0))
        self.journal.add("created", name, number=number, parameters=parameters, seed=seed)
        return self.record.trials[name]

    def _leg(self, trial: Trial) -> Leg | None:
        """What a trial is to do; None when it cannot, and has ended."""
        try:
            job = trial_job(self.base, trial.name, trial.parameters)
            ready = self._ready(job)
            job = trial_job(_watched(self.sweep, job, ready.steps), trial.name, {})
        except SpecError as error:
            problem = error.problems[0]
            self._end(trial, "failed", f"{problem.path}: {problem.rule}")
            return None
        own = tokens_per_step(job)
        stops = scheduler.gates(self.places, self._clock, steps=ready.steps, tokens_per_step=own)
        passed = {gate for gate in trial.gates if isinstance(self.sweep.scheduler, Pbt)}
        leg = Leg(
            trial=trial.name,
            job=job.written(),
            trials=self.journal.folder.trials.url,
            prepared=ready.prepared,
            steps=ready.steps,
            metric=self.sweep.objective.metric,
            gates={step: gate for step, gate in stops.items() if gate not in passed},
            parameters=trial.parameters,
            clone=self._pinned_clone(trial),
        )
        self.live[trial.name] = leg
        self.journal.add("started", trial.name, step=trial.step)
        return leg

    # -- what trials tell -----------------------------------------------------------------------------------------

    def heard(self, name: str, news: Mapping[str, Any]) -> bool:
        """Take what a living trial tells (`step`, `tokens`, `value`, `trained`, and `gate` where it waits for the
        word); whether it goes on."""
        trial, leg = self.record.trials[name], self.live[name]
        if name in self._ending:
            return False
        self._release(name)
        value, gate = news.get("value"), news.get("gate")
        rung = leg.gates.get(gate) if gate is not None else None
        fields = {key: news[key] for key in ("step", "tokens", "trained")}
        self._learnt = self._learnt or (value is not None and news["step"] > 0)
        if rung is not None and value is None:
            value = trial.values.get(int(gate))
        extra = {"gate": rung} if rung is not None and isinstance(self.sweep.scheduler, Pbt) else {}
        self.journal.add("progress", name, value=value, **fields, **extra)
        if value is not None and not math.isfinite(value):
            return self._stop(trial, "diverged", f"its {self.sweep.objective.metric} is {value} at step {trial.step}")
        if rung is not None and not self._word(trial, rung, value):
            return False
        if self._judged():
            self._ending[name] = "interrupted"
            return False
        return True

    def _word(self, trial: Trial, rung: int, value: float | None) -> bool:
        """The decision at a rung; the one that was made before, where it was."""
        if isinstance(self.sweep.scheduler, Pbt):
            self.journal.add("paused", trial.name, step=trial.step)
            self._ending[trial.name] = "paused"
            return False
        if rung in trial.rungs:
            return trial.rungs[rung]
        found = math.nan if value is None else value
        decision = scheduler.decide(self.sweep, self.record, trial, rung, found, self.places)
        about = {"rung": rung, "step": trial.step, "value": found, "cutoff": decision.cutoff, "kept": decision.kept}
        self.journal.add("rung", trial.name, **about)
        if decision.kept:
            return True
        metric = self.sweep.objective.metric
        against = f" against {decision.cutoff:.4f}" if decision.cutoff is not None else ""
        return self._stop(trial, "stopped", f"{metric} {found:.4f}{against} at rung {rung}, step {trial.step}")

    def _stop(self, trial: Trial, state: str, reason: str) -> bool:
        self._ending[trial.name] = "stopped"
        self._end(trial, state, reason)
        return False

    def finished(self, name: str, outcome: Mapping[str, Any]) -> None:
        """A leg has ended: `state` is `completed`, `ended` (it was told to), `failed` or `diverged`."""
        trial = self.record.trials[name]
        self.live.pop(name)
        told = self._ending.pop(name, None)
        self._release(name)
        fields = {key: outcome[key] for key in ("step", "tokens", "trained") if outcome.get(key) is not None}
        if trial.over or told == "paused":
            self._tidy()
            return
        if outcome["state"] == "ended":
            # Told to from elsewhere, or the whole sweep ends: it goes on when the sweep does.
            if self.ending is None and told is None:
                self.ending = f"{name} was asked to stop"
            about = {"step": trial.step, "tokens": trial.tokens} | fields
            self.journal.add("progress", name, value=outcome.get("value"), **about)
        else:
            self._end(trial, outcome["state"], outcome.get("reason", ""), value=outcome.get("value"), **fields)
        self._tidy()

    def lost(self, name: str, reason: str) -> None:
        """What drove a leg has vanished: the trial goes on from its checkpoint, or has failed when it happens often."""
        trial = self.record.trials[name]
        self.live.pop(name, None)
        told = self._ending.pop(name, None)
        self._release(name)
        self._lost[name] = self._lost.get(name, 0) + 1
        if not trial.over and told is None and self._lost[name] > LOSSES:
            self._end(trial, "failed", reason)
        elif not trial.over:
            self.say(f"{name}: {reason}; it goes on from its last checkpoint")

    def _end(self, trial: Trial, state: str, reason: str, *, value: float | None = None, **fields: Any) -> None:
        about: dict[str, Any] = {"step": trial.step, "tokens": trial.tokens, "trained": trial.trained} | fields
        value = value if value is not None else trial.value
        self.journal.add("ended", trial.name, state=state, reason=reason, value=value, **about)
        self._ended.append(trial)
        self.write()

    def write(self, state: str = "running", reason: str = "") -> None:
        """Write `sweep.json`."""
        sweep = self.sweep
        about = {"name": sweep.name, "metric": sweep.objective.metric, "mode": sweep.objective.mode, "seed": sweep.seed}
        self.journal.folder.write_summary(summary(self.record, state=state, reason=reason, **about))

    # -- population based training ----------------------------------------------------------------------------------

    def _exchange(self) -> None:
        """Decide an exchange once the whole population has come to it."""
        living = [trial for trial in self.record.trials.values() if not trial.over]
        if self._may_create() or not living or any(trial.state != "paused" for trial in living):
            return
        gate = min(max(trial.gates, default=-1) for trial in living)
        if gate < 0 or gate in self.record.exchanged:
            return
        for each in scheduler.exchanges(self.sweep, self.record, gate):
            trial, donor = self.record.trials[each.trial], self.record.trials[each.donor]
            if any(clone.gate == gate for clone in trial.clones):
                continue
            about = {"donor": donor.name, "donor_step": donor.step, "tokens": donor.tokens, "gate": gate}
            self.journal.add("cloned", trial.name, parameters=each.parameters, **about)
            self.say(f"{trial.name} goes on from {donor.name} at step {donor.step}, {_shown(each.parameters)}")
        self.journal.add("exchanged", gate=gate)
        for trial in living:
            self._pinned_clone(trial)

    def _pinned_clone(self, trial: Trial) -> dict[str, Any] | None:
        """The clone that a trial has still to take; its donor's checkpoint is held until it has."""
        clone = trial.clones[-1] if trial.clones else None
        if clone is None or clone.copied:
            return None
        if trial.name not in self._pins:
            self._pins[trial.name] = contextlib.ExitStack()
            self._pins[trial.name].enter_context(being_read(self.journal.folder.trial(clone.donor), clone.donor_step))
        return {"donor": clone.donor, "step": clone.donor_step, "number": len(trial.clones)}

    def _release(self, name: str) -> None:
        """A trial that speaks has its copy."""
        trial = self.record.trials[name]
        if trial.clones and not trial.clones[-1].copied and name in self.live and self.live[name].clone is not None:
            self.journal.add("copied", name)
        if trial.clones and trial.clones[-1].copied and (pin := self._pins.pop(name, None)) is not None:
            pin.close()

    # -- what stays -------------------------------------------------------------------------------------------------

    def _tidy(self) -> None:
        """Of trials that are over only the best keep checkpoints and exports; one that somebody reads stays."""
        over = [trial for trial in self.record.ranking(self.sweep.objective.mode) if trial.over]
        for trial in over[self.sweep.keep :]:
            run = self.journal.folder.trial(trial.name)
            if trial.name in self.live or reading(run):
                continue
            for part in (CHECKPOINTS, EXPORT):
                if run.storage.entries(part):
                    run.storage.remove_tree(part)

    def close(self) -> None:
        """Let go of donors' checkpoints and write the rest of the journal."""
        for pin in self._pins.values():
            pin.close()
        self._pins.clear()
        self.journal.close()


def _watched(sweep: Sweep, job: Job, steps: int) -> dict[str, Any]:
    """The job with the checkpoints and evaluations that a sweep needs, where it asks for none itself."""
    extra: dict[str, Any] = {}
    if "every" not in job.checkpoint.model_fields_set and steps <= 2000:
        extra["checkpoint.every"] = max(steps // 20, 1)
    if "every" not in job.evaluate.model_fields_set and sweep.scheduler.kind == "none":
        held_out = job.data.evaluate is not None or quantity.share(job.data.held_out) > 0
        extra |= {"evaluate.every": max(steps // 5, 1)} if held_out else {}
    return with_parameters(job.written(), extra)


def _alike(reason: str) -> str:
    """A reason without what differs by chance: numbers, addresses, the trial's name."""
    return re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?(e[-+]?\d+)?", "#", reason)


def _shown(parameters: Mapping[str, Any]) -> str:
    return ", ".join(f"{path} {value}" for path, value in parameters.items())
