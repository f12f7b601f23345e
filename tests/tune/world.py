"""A sweep without Ray: trials are curves, time is a counter, and a driver can die between any two events.

The conductor is the real one, and so are its journal and folders.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.sweep import Sweep
from raytrain_eks.tune.conductor import Conductor, Leg, Ready
from raytrain_eks.tune.folder import Journal, SweepFolder

STEPS = 90
JOB: dict[str, Any] = {
    "name": "base",
    "model": {"config": {"model_type": "llama", "hidden_size": 64}},
    "tokenizer": {"train": {"vocab_size": 512}},
    "data": {"train": "./texts", "sequence_length": 32},
    "batch": {"sequences": 4},
    "optimizer": {"learning_rate": 1.0e-3},
    "checkpoint": {"every": 5},
    "stop": {"steps": STEPS},
}
SPACE = {"optimizer.learning_rate": {"kind": "loguniform", "low": 1e-4, "high": 1e-1}}


class Killed(Exception):
    """The driver dies here."""


def sweep(**fields: Any) -> Sweep:
    """A small sweep with these fields."""
    return Sweep.parse({"kind": "Sweep", "name": "lr", "job": JOB, "space": SPACE, "trials": 6} | fields)


def curve(parameters: dict[str, Any], step: int) -> float:
    """Best at a learning rate of 1e-2; falls with the steps."""
    distance = abs(math.log10(parameters["optimizer.learning_rate"]) + 2)
    return 2.0 + distance + 3.0 * math.exp(-step / 30)


class World:
    """Runs a sweep with `most` legs at a time, one event of each in turn."""

    def __init__(
        self,
        folder: Path,
        spec: Sweep,
        *,
        most: int = 2,
        loss: Callable[[dict[str, Any], int], float] = curve,
        outcome: Callable[[str, int], dict[str, Any] | None] = lambda name, step: None,
    ):
        """`outcome` may end a trial at a step by other means than its last step."""
        self.spec, self.most, self.loss, self.outcome = spec, most, loss, outcome
        self.folder = SweepFolder(str(folder), spec.name)
        self.checkpoints: dict[str, int] = {}
        """Trial -> the newest step that outlives a kill."""
        self.trained = 0
        self.now = 0.0
        self.said: list[str] = []
        self.asked: str | None = None
        self.clones: list[tuple[str, str, int]] = []
        self.conductor: Conductor | None = None

    def ready(self, job: Job) -> Ready:
        return Ready(prepared="nowhere", steps=STEPS)

    def tick(self) -> float:
        self.now += 1.0
        return self.now

    def run(self, *, kill_after: int | None = None) -> Conductor:
        """One attempt; the driver dies after so many events."""
        self.folder.open(self.spec)
        journal = Journal(self.folder, self.folder.begin(), clock=self.tick)
        conductor = self.conductor = Conductor(
            self.spec,
            journal,
            steps=STEPS,
            ready=self.ready,
            say=self.said.append,
            workers=1,
            stop=lambda: self.asked,
        )
        events, legs = 0, {}
        while not conductor.done:
            while len(conductor.live) < self.most and (leg := conductor.next()) is not None:
                legs[leg.trial] = self.leg(leg)
            for name in list(legs):
                events += 1
                if kill_after is not None and events > kill_after:
                    raise Killed
                try:
                    next(legs[name])
                except StopIteration:
                    del legs[name]
        conductor.write()
        conductor.close()
        return conductor

    def leg(self, leg: Leg) -> Any:
        """What a worker group does, a step at a time."""
        assert self.conductor is not None
        name, conductor = leg.trial, self.conductor
        if leg.clone is not None:
            self.clones.append((name, leg.clone["donor"], leg.clone["step"]))
            assert self.checkpoints[leg.clone["donor"]] >= leg.clone["step"]
            self.checkpoints[name] = leg.clone["step"]
        step, told = self.checkpoints.get(name, 0), False
        while step < leg.steps:
            step += 1
            self.trained += 1
            gate = leg.gates.get(step)
            if step % 5 == 0 or gate is not None:
                self.checkpoints[name] = step
            early = self.outcome(name, step)
            if early is not None:
                conductor.finished(name, {"step": step, "tokens": step * 128, "trained": self.trained} | early)
                return
            if gate is not None or step % 30 == 0:
                news = {"step": step, "tokens": step * 128, "trained": step, "value": self.loss(leg.parameters, step)}
                told = not conductor.heard(name, news | ({"gate": step} if gate is not None else {}))
            if told:
                conductor.finished(name, {"state": "ended", "step": step, "tokens": step * 128, "trained": step})
                return
            yield
        value = self.loss(leg.parameters, step)
        conductor.finished(
            name, {"state": "completed", "step": step, "tokens": step * 128, "trained": step, "value": value}
        )
