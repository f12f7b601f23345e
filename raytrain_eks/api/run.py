"""`Run` in Python: where a run is, what it logs and measures, its end, and how to end it or go on."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from raytrain_eks.api import html
from raytrain_eks.api.result import Lines, Result, Table
from raytrain_eks.checkpoint.run import EVENTS, RunFolder, list_runs
from raytrain_eks.submit import registry
from raytrain_eks.submit.errors import NotFound, TargetError
from raytrain_eks.submit.follow import Follower, exit_code
from raytrain_eks.submit.ranks import RankView
from raytrain_eks.submit.run_status import RunStatus, facts, status
from raytrain_eks.submit.start import STOP_S, Wish, again, newest, place_of, place_of_run, start, stopped
from raytrain_eks.submit.target import JobState, Say, Target
from raytrain_eks.submit.targets import known_access, named, open_target
from raytrain_eks.train.progress import duration

if TYPE_CHECKING:
    from pandas import DataFrame

    from raytrain_eks.api.connection import Connection
    from raytrain_eks.api.watching import View

    Where: TypeAlias = str | Target | Connection | None

Place = Callable[[], Target]
"""Gives the target. That of `local` is opened anew each time: the Ray behind it may be another one by now."""
OVER = {"complete": 0, "stopped": 1, "failed": 1, "interrupted": 1}
"""State of a run that is over -> exit code where no job tells one."""


def quiet(text: str) -> None:
    """Where talk goes that nobody asked for."""


def opener(on: Any, access: Mapping[str, Any], record: registry.Record | None = None) -> Place:
    """How to open the target that `on` names, or is. Raises TargetError for what is none."""
    if on is not None and not isinstance(on, str):
        target: Target = getattr(on, "target", on)
        return lambda: target
    name = named(on, record)
    given = known_access(access, name, record)
    opened = open_target(name, **given)
    return (lambda: open_target(name, **given)) if name == "local" else (lambda: opened)


class Run:
    """One run: its name in its storage, on the target that it was submitted to. Making one touches nothing."""

    def __init__(self, name: str, place: Place, *, storage: str | None, id: str | None = None):
        self.name = name
        self.storage = storage
        """Folder or URL of run folders; None when nobody could tell."""
        self.id = id
        """The job of its last submission from here."""
        self._place = place

    @classmethod
    def get(
        cls, name: str, *, on: "Where" = None, storage: str | os.PathLike[str] | None = None, **access: Any
    ) -> "Run":
        """A run by its name, wherever it was last submitted to from this machine, or as `on` and `storage` say.

        Raises NotFound when neither its folder nor a job of it is known, TargetError when its target refuses.
        """
        record = registry.recall(name)
        place = opener(on, access, record)
        where = place_of_run(name, None if storage is None else os.fspath(storage), record, place())
        found = cls(name, place, storage=where, id=record.id if record is not None else None)
        found.status()
        return found

    @classmethod
    def list(cls, storage: str | os.PathLike[str] | None = None, *, on: "Where" = None, **access: Any) -> "Table[Run]":
        """The runs of a storage folder (None: this machine's), by name. Raises OSError when it cannot be read."""
        place, where = opener(on, access), place_of(None if storage is None else os.fspath(storage), None)
        runs, cells = [], []
        for info in list_runs(where):
            record = registry.recall(info.name)
            same = record is not None and record.storage == where
            known = opener(on, access, record) if on is None and same else place
            runs.append(cls(info.name, known, storage=where, id=record.id if record is not None and same else None))
            cells.append({"run": info.name, "ended": info.ended, "step": info.step, "loss": info.loss})
            cells[-1] |= {"checkpoint": info.checkpoint, "attempts": info.attempts, "created": info.created}
        return Table(runs, cells)

    # -- where it is --------------------------------------------------------------------------------------------

    @property
    def target(self) -> Target:
        """Where its jobs run."""
        return self._place()

    @property
    def folder(self) -> str | None:
        """The run folder; None when nobody could tell where it is."""
        return RunFolder(self.storage, self.name).url if self.storage is not None else None

    def status(self) -> RunStatus:
        """Phase, step, loss, speed, last checkpoint. Raises NotFound when nothing is known of the run."""
        return status(self.name, storage=self.storage, target=self.target, job_id=self.id)

    @property
    def result(self) -> Result | None:
        """How it ended; None while it has not."""
        now = self.status()
        if now.state not in OVER:
            return None
        job = self._job() if now.state == "failed" else None
        code = exit_code(job) if job is not None else OVER[now.state]
        return Result(run=self.name, state=now.state, code=code, phase=now.phase)

    def wait(self, timeout: float | None = None, *, check: bool = False, say: Say | None = None) -> Result:
        """How it ended, once it has. Raises TimeoutError after `timeout` seconds, which leaves it running; RunFailed
        with `check` when it is not complete; Lost or Unreachable when its cluster is gone or stays away."""
        job = self._job()
        running = job is not None and not job.phase.over
        if job is not None and running and Follower(self.target, job.id, say=say or quiet).end(timeout=timeout) is None:
            raise TimeoutError(f"{self.name} is not over after {duration(timeout or 0)}; it goes on")
        found = self.result
        if found is None:
            raise TargetError(f"{self.name}: {self.status().phase}\n  nothing of it can be waited for from here")
        return found.check() if check else found

    # -- what it tells ------------------------------------------------------------------------------------------

    @overload
    def logs(self, *, follow: Literal[True], rank: int | None = None, say: Say | None = None) -> Iterator[str]: ...

    @overload
    def logs(self, *, follow: Literal[False] = False, last: int | None = None, rank: int | None = None) -> Lines: ...

    def logs(
        self, *, follow: bool = False, last: int | None = None, rank: int | None = None, say: Say | None = None
    ) -> Lines | Iterator[str]:
        """The log of its newest job: all lines, or the `last` ones; with `follow` an iterator over every line once,
        that ends with the job. With `rank` what that worker process itself wrote, while its node is up.
        Raises NotFound when its target has no job of it."""
        target, job = self.target, self._job()
        if job is None:
            place = f"\n  its folder: {self.folder}" if self.folder else ""
            raise NotFound(f"{target.name} has no job of `{self.name}`{place}")
        source: Target | RankView = target
        if rank is not None:
            source = RankView(target, self.name, rank, storage=self.storage)
        if follow and not job.phase.over:
            return Follower(source, job.id, say=say or quiet).lines()
        lines = _lines(source.log(job, last=last))
        return lines if follow else Lines(lines)

    def metrics(self) -> "DataFrame":
        """One row for each step, indexed by it: loss, learning rate, tokens, seconds and more. Where attempts overlap,
        the newest that reached the step counts. Raises TargetError when its folder cannot be read from here."""
        return _frame(self._read().metrics(), index="step")

    def events(self) -> "DataFrame":
        """One row for each start, checkpoint, evaluation and the like. Raises as `metrics`."""
        return _frame(list(self._read().lines(EVENTS)))

    def summary(self) -> dict[str, Any] | None:
        """What was written at its end; None while there is none. Raises as `metrics`."""
        return self._read().summary()

    def checkpoints(self) -> "Table[dict[str, Any]]":
        """Its complete checkpoints, oldest first: step, held-out loss, bytes, workers, attempt. Raises as `metrics`."""
        from raytrain_eks.checkpoint.manifest import committed

        folder = self._read()
        rows: list[dict[str, Any]] = [
            {"step": each.step, "loss": each.loss, "bytes": each.size, "workers": each.world}
            | {"attempt": each.attempt, "created": each.created, "folder": f"{folder.url}/{each.folder}"}
            for each in committed(folder)
        ]
        return Table(rows, rows)

    # -- what can be done with it -------------------------------------------------------------------------------

    def cancel(self, *, wait: bool = True, timeout: float = STOP_S, now: bool = False) -> RunStatus | None:
        """Ask it to save a last checkpoint and stop; `resume` goes on from there. One that is over stays as it is. With
        `now` nothing is asked: its newest checkpoint stays. None: it had not begun, and nothing is left of it.

        Raises NotFound when its target has no job of it, TimeoutError when it has not stopped after `timeout` seconds.
        """
        target, job = self.target, self._job()
        if job is None:
            raise NotFound(f"{target.name} has no job of `{self.name}`, so there is nothing to cancel")
        if now and not job.phase.over:
            target.end(job.id)
        elif not job.phase.over:
            target.stop(job.id)
            if wait and not stopped(target, job.id, timeout=timeout):
                raise TimeoutError(f"{self.name} has not stopped after {duration(timeout)}")
        try:
            return self.status()
        except NotFound:
            return None

    def resume(
        self,
        on: "Where" = None,
        *,
        working_dir: str | os.PathLike[str] | None = None,
        max_upload: str = "100Mi",
        say: Say | None = None,
        **access: Any,
    ) -> "Run":
        """Go on from the last complete checkpoint with the job file of its folder, where it ran or `on` another target.

        Raises NotFound when the folder cannot be read from here, and as `Job.submit`.
        """
        from raytrain_eks.spec.quantity import parse

        place = self._place if on is None and not access else opener(on, access)
        target, record = place(), registry.recall(self.name)
        file, folder, before = again(self.name, target, self.storage, record)
        root = Path(working_dir) if working_dir is not None else before
        wish = Wish(folder=folder, working_dir=root, storage=self.storage, limit=int(parse(max_upload)))
        started = start(file, target, wish, say or quiet)
        return Run(started.run, place, storage=started.storage, id=started.id)

    def watch(self, *, every: float = 2.0) -> "View":
        """A view that follows the run: live where ipywidgets is installed, else as it is now. Never prints."""
        from raytrain_eks.api.watching import view

        return view(self, every=every)

    # -- how it looks -------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"Run({self.name!r}, storage={self.storage!r})"

    def _repr_html_(self) -> str:
        try:
            now = self.status()
        except TargetError as error:
            return html.facts(self.name, {"phase": error})
        return html.facts(self.name, facts(now)) + html.curve(self._losses())

    def _losses(self) -> Sequence[tuple[int, float]]:
        try:
            found = RunFolder(self.storage, self.name).metrics() if self.storage is not None else []
        except OSError:
            return []
        return [(line["step"], line["loss"]) for line in found if isinstance(line.get("loss"), int | float)]

    # -- inside -------------------------------------------------------------------------------------------------

    def _job(self) -> JobState | None:
        return newest(self.name, self.target, storage=self.storage, id=self.id)

    def _read(self) -> RunFolder:
        if self.storage is None:
            raise NotFound(
                f"nobody here knows where the folder of `{self.name}` is\n  say it: Run.get(..., storage=...)"
            )
        folder = RunFolder(self.storage, self.name)
        try:
            known = folder.identity()
        except OSError as error:
            raise TargetError(f"{folder.url} cannot be read from here: {error}") from None
        if known is None:
            raise NotFound(
                f"no run `{self.name}` in {self.storage}, as far as this machine sees\n"
                "  a run that has just begun has no folder yet; storage that only the cluster has must be mounted here"
            )
        return folder


def _lines(stream: Any) -> Iterator[str]:
    rest = b""
    for chunk in stream:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from (line.decode("utf-8", "replace") for line in whole)
    if rest:
        yield rest.decode("utf-8", "replace")


def _frame(rows: "list[dict[str, Any]]", index: str | None = None) -> "DataFrame":
    try:
        import pandas
    except ImportError:
        raise TargetError("a table of metrics needs pandas\n  pip install 'raytrain-eks[notebook]'") from None
    found = pandas.DataFrame(rows)
    return found.set_index(index) if index is not None and index in found else found
