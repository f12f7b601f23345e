"""A trial as Ray Tune runs it: a class trainable that drives the legs of runs, and whose worker processes it keeps.

It needs no CPU and never imports torch. Each `step` returns when there is news; between two steps the sweep gives the
word. However a leg ends, it is told as the last result: nothing that happens to a run is an error for Tune.
"""

import contextlib
import json
import time
from typing import Any

from ray import tune

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.tune.conductor import Leg
from raytrain_eks.tune.ranks import Group, Needs, Stretch, fitting

NEWS = 1.0
"""Seconds that a question for news may take."""
QUIET = 30.0
"""Seconds after which a step returns without news, so that Tune sees it alive."""


class TrialDriver(tune.Trainable):
    """Drives one leg after another."""

    def setup(self, config: dict[str, Any]) -> None:
        """Tune's: a new process."""
        self.group: Group | None = None
        self._take(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Tune's: this process goes on with another leg. The last one has ended: its last result said so."""
        self._take(new_config)
        return True

    def cleanup(self) -> None:
        """Tune's: the process ends."""
        self._close()

    def _take(self, config: dict[str, Any]) -> None:
        body = json.loads(config["leg"])
        body["gates"] = {int(step): rung for step, rung in body["gates"].items()}
        self.leg = Leg(**body)
        self.needs = Needs(**json.loads(config["needs"]))
        self.job = Job.parse(self.leg.job)
        self.outcomes: list[Any] = []
        self.question: Any = None
        self.begun = self.waiting = self.told = False
        self.at: dict[str, Any] = {"step": 0, "tokens": 0, "trained": 0}
        self.failures = 0
        self.failed_at = -1

    def word(self, goes_on: bool) -> None:
        """The sweep's word on the last news; without one the trial goes on."""
        if goes_on or self.told:
            return
        from raytrain_eks.train.control import request_stop

        self.told = True
        if self.waiting:
            self.waiting = False
            self._rank0.word.remote(False)
        else:
            request_stop(self._run)

    def step(self) -> dict[str, Any]:
        """Tune's: what is new. The last result has `done`."""
        try:
            return self._step()
        except SpecError as error:
            problem = error.problems[0]
            return self._over({"state": "failed", "reason": f"{problem.path}: {problem.rule}"})
        except Exception as error:
            return self._failed(error)

    def _step(self) -> dict[str, Any]:
        import ray

        if not self.begun:
            self._begin()
        if self.waiting:
            self.waiting = False
            self._rank0.word.remote(True)
        end = time.monotonic() + QUIET
        while time.monotonic() < end:
            self.question = self.question or self._rank0.news.remote(NEWS)
            ready, _ = ray.wait([self.question, *self.outcomes], num_returns=1)
            if self.question in ready:
                news, self.question = ray.get(self.question), None
                if news:
                    return self._news(news)
            elif ready:
                # A rank that has ended, well or not; one that has not would raise here.
                ray.get(ready)
                if len(ray.wait(self.outcomes, num_returns=len(self.outcomes), timeout=0)[1]) == 0:
                    return self._ended()
                time.sleep(0.05)
        return self._result([])

    @property
    def _rank0(self) -> Any:
        assert self.group is not None
        return self.group.ranks[0]

    @property
    def _run(self) -> Any:
        from raytrain_eks.checkpoint.run import RunFolder

        return RunFolder(self.leg.trials, self.leg.trial)

    def _begin(self) -> None:
        """Make or reopen the run, take over another's checkpoint where that is meant, and start the ranks."""
        from raytrain_eks.train.control import clear
        from raytrain_eks.tune.clone import take_over

        run = self._run
        foreign = [each for each in run.differences(self.job) if not _own(each.path, self.leg.parameters)]
        if foreign:
            raise SpecError(foreign)
        run.open(self.job, accept_changes=True)
        if (clone := self.leg.clone) is not None:
            from raytrain_eks.checkpoint.run import RunFolder

            take_over(run, RunFolder(self.leg.trials, clone["donor"]), clone["step"], clone["number"])
        clear(run)
        self._start()
        self.begun = True

    def _start(self) -> None:
        from ray.exceptions import RayActorError

        from raytrain_eks.train.neuron_environment import cache_of

        task = {
            "job": self.leg.job,
            "storage": self.leg.trials,
            "prepared": self.leg.prepared,
            "steps": self.leg.steps,
            "started": time.time(),
        }
        cache = cache_of(self.leg.trials)
        stretch = Stretch(task=task, gates=tuple(self.leg.gates), metric=self.leg.metric, cache=cache)
        if self.group is not None and self.group.fitting != fitting(self.job, self.needs):
            self._close()
        for again in (True, False):
            self.group = self.group or Group(self.needs, self.job)
            try:
                self.outcomes, self.question = self.group.start(stretch, self.job), None
                return
            except RayActorError:
                # A process that was kept from an earlier leg has died meanwhile.
                self._close()
                if not again:
                    raise

    def _news(self, news: list[dict[str, Any]]) -> dict[str, Any]:
        for each in news:
            self.at |= {key: each[key] for key in ("step", "tokens", "trained")}
        self.waiting = news[-1].get("gate") is not None
        return self._result(news)

    def _ended(self) -> dict[str, Any]:
        """All ranks have ended: what was still on the line, and how it went."""
        import ray

        outcome = ray.get(self.outcomes[0])
        left = ray.get(self._rank0.news.remote(0.01)) if self.question is None else ray.get(self.question)
        self.question = None
        return self._result(left, self.at | outcome)

    def _failed(self, error: BaseException) -> dict[str, Any]:
        """A rank raised or died, or the leg could not begin: start again from the last checkpoint while that helps."""
        self._close()
        state, reason, final = why(error)
        self.failures += 1
        helps = self.at["step"] > self.failed_at and self.failures <= self.job.failures.restarts
        self.failed_at = self.at["step"]
        if final or self.told or not helps:
            return self._over({"state": state, "reason": reason})
        self.begun = self.waiting = False
        print(f"{self.leg.trial}: {reason}; again from the last checkpoint", flush=True)
        return self._result([])

    def _over(self, outcome: dict[str, Any]) -> dict[str, Any]:
        return self._result([], self.at | outcome)

    def _result(self, news: list[dict[str, Any]], outcome: dict[str, Any] | None = None) -> dict[str, Any]:
        told = {"trial": self.leg.trial, "news": news, "outcome": outcome}
        return {"told": json.dumps(told), "step": self.at["step"], "done": outcome is not None}

    def _close(self) -> None:
        if self.group is not None:
            with contextlib.suppress(Exception):
                self.group.close()
        self.group, self.outcomes, self.question = None, [], None


def _own(path: str, parameters: dict[str, Any]) -> bool:
    """Whether a field of the job is one that the space searches, or lies in or around it."""
    return any(path == each or path.startswith(f"{each}.") or each.startswith(f"{path}.") for each in parameters)


def why(error: BaseException) -> tuple[str, str, bool]:
    """What an error makes of a trial: its state, the reason in a sentence, and whether to try again is in vain."""
    from ray import exceptions

    cause = getattr(error, "cause", None) or error
    name, text = type(cause).__name__, (str(cause).strip().splitlines() or [""])[0]
    if isinstance(error, exceptions.OutOfMemoryError) or name in ("OutOfMemoryError", "MemoryError"):
        return "failed", f"out of memory: {text}"[:500], True
    if name == "Spoilt":
        return "diverged", text, True
    if isinstance(error, exceptions.RayActorError):
        return "failed", f"a worker process died: {_died(error)}", False
    return "failed", f"{name}: {text}"[:500], False


def _died(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "exit" in line.lower() or "killed" in line.lower()), lines[-1])[:300]
