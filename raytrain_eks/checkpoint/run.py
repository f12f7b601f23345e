"""A run folder: `<storage>/<run name>/`, the identity of the run, its attempts and what they wrote.

A run is its name in its storage. Every start of it is an attempt with a number taken by an exclusive create; the
highest number owns the run, and lower ones are fenced: what they commit after the newer one took its inventory does
not exist for any reader. All stored paths are relative, so a run folder may be moved or copied. Imports neither
torch nor ray.
"""

import contextlib
import errno
import hashlib
import json
import os
import platform
import re
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import Any

from raytrain_eks.checkpoint.storage import Storage
from raytrain_eks.spec.identity import differences
from raytrain_eks.spec.problem import Problem, SpecError

JOB = "job.yaml"
RUN = "run.json"
METRICS = "metrics.jsonl"
EVENTS = "events.jsonl"
SUMMARY = "summary.json"
SWEEP = "sweep.json"
"""What came of a sweep, in the folder of one."""
LOSS_CURVE = "loss.png"
EXPORT = "export"
CHECKPOINTS = "checkpoints"
ATTEMPTS = "attempts"
DATA = ".data"
"""Prepared data lies beside the runs of a storage, under its content hash."""

TAIL = 64 * 1024
"""Bytes of a file of lines that are read for its last line."""
_ATTEMPT = re.compile(r"(\d{4,})\.json")


class DamagedFile(OSError):
    """A file of a run that storage gives whole, and that is not what it must be."""


class Fenced(RuntimeError):
    """A newer attempt owns the run: this process has to stop, what it would still write does not count."""


@dataclass(frozen=True)
class Attempt:
    """One start of a run."""

    number: int
    """From 1; the highest owns the run."""
    run_id: str
    """Tells runs of the same name apart, also in a copy."""
    is_first: bool
    """Whether the run began with it."""


def spec_hash(identity: dict[str, Any]) -> str:
    """16 hex digits of the SHA-256 of an identity."""
    return hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:16]


@cache
def _versions() -> tuple[tuple[str, str], ...]:
    found = {"python": platform.python_version()}
    for package in ("raytrain-eks", "torch", "ray", "deepspeed", "transformers"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return tuple(found.items())


def versions() -> dict[str, str]:
    """What a checkpoint should say about its makers; read from package metadata once, nothing is imported."""
    return dict(_versions())


class RunFolder:
    """The folder of one run. Making one touches nothing."""

    written_as = JOB
    """Where the file as submitted lies."""

    def __init__(self, storage: Storage | str | os.PathLike[str], name: str):
        self.parent = Storage.of(storage)
        self.name = name
        self.storage = self.parent.child(name)

    @property
    def url(self) -> str:
        """The run folder, as a person would write it."""
        return self.storage.url

    # -- identity -----------------------------------------------------------------------------------------------

    def identity(self) -> dict[str, Any] | None:
        """`run.json`; None when there is no such run. Raises OSError when storage does not answer."""
        return self._json(RUN)

    def differences(self, job: Any) -> list[Problem]:
        """One problem for each field in which `job` would change the result of the run that is here."""
        known = self.identity()
        if known is None:
            return []
        found = []
        for each in differences(known["identity"], job):
            old, new = _text(each.old), _text(each.new)
            rule = f"differs from the run's, which is {old}; {self.url} already holds `{self.name}`"
            fix = f"write {old} to go on, give this one a new `name`, or say --resume to go on with the change"
            found.append(Problem(path=each.path, value=new, rule=rule, fix=fix))
        return found

    def open(self, job: Any, *, accept_changes: bool = False, text: str | None = None) -> str:
        """Make the run, or check that `job` is the run that is here; the run's id.

        `job` has `identity()` and `written()` (a spec Model); `text` is the file as submitted. With
        `accept_changes` a differing identity becomes the run's. Raises SpecError naming every field that differs.
        """
        if problems := [] if accept_changes else self.differences(job):
            raise SpecError(problems)
        identity = job.identity()
        known = self.identity()
        body = {"name": self.name, "run_id": uuid.uuid4().hex, "spec": spec_hash(identity), "identity": identity}
        body |= {"versions": versions(), "created": _now()}
        if known is None:
            if not self.storage.create(RUN, _dump(body)):
                # Another process was faster; it decides what the run is.
                return self.open(job, accept_changes=accept_changes, text=text)
        elif known["spec"] != body["spec"]:
            body |= {"run_id": known["run_id"], "created": known["created"]}
            body["changed"] = [*known.get("changed", []), {"at": _now(), "from": known["spec"]}]
            self.storage.write(RUN, _dump(body))
        self.storage.write(self.written_as, (text if text is not None else _yaml(job.written())).encode())
        return str((known or body)["run_id"])

    def claim(self, job: Any, *, accept_changes: bool = False, text: str | None = None) -> Attempt:
        """`open` and `begin`: make or resume the run as a new attempt that fences all earlier ones."""
        self.open(job, accept_changes=accept_changes, text=text)
        return self.begin()

    # -- attempts -----------------------------------------------------------------------------------------------

    def attempts(self) -> list[int]:
        """Numbers of all attempts so far, ascending."""
        matches = (_ATTEMPT.fullmatch(entry.name) for entry in self.storage.entries(ATTEMPTS))
        return sorted(int(match.group(1)) for match in matches if match)

    def begin(self) -> Attempt:
        """Take the next attempt number and the inventory of checkpoints that count for it.

        Every start of a worker group should be an attempt of its own, taken by one rank and told to the others: a
        process of an earlier group that still runs somewhere is then fenced. Raises FileNotFoundError for no run.
        """
        known = self.identity()
        if known is None:
            raise FileNotFoundError(2, "no run here (no run.json)", self.url)
        number = max(self.attempts(), default=0) + 1
        about = {"run_id": known["run_id"], "started": _now(), "host": socket.gethostname(), "process": os.getpid()}
        about["token"] = uuid.uuid4().hex
        while not self.storage.create(self._attempt(number), _dump({"attempt": number} | about)):
            number += 1
        from raytrain_eks.checkpoint.manifest import committed

        found = [list(each.key) for each in committed(self)]
        self.storage.write(self._attempt(number), _dump({"attempt": number} | about | {"found": found}))
        return Attempt(number, known["run_id"], is_first=number == 1)

    def owned_by(self, attempt: Attempt | int) -> bool:
        """Whether no newer attempt has begun."""
        return max(self.attempts(), default=0) <= (attempt if isinstance(attempt, int) else attempt.number)

    def inventories(self) -> dict[int, set[tuple[int, int, str]]]:
        """Attempt -> (step, attempt, token) of the checkpoints that it found when it began. An attempt that died
        before it looked is left out: it neither restored nor committed anything."""
        found = {}
        for number in self.attempts():
            about = self._json(self._attempt(number)) or {}
            if "found" in about:
                found[number] = {(step, attempt, token) for step, attempt, token in about["found"]}
        return found

    def admit(self, key: tuple[int, int, str]) -> None:
        """Let a checkpoint of an earlier attempt count that came after the newest attempt began: brought back from a
        mirror, where it counted. Only who brings it back may say so."""
        newest = max(self.attempts(), default=0)
        if newest <= key[1]:
            return
        about = self._json(self._attempt(newest)) or {}
        about["found"] = [*about.get("found", []), list(key)]
        self.storage.write(self._attempt(newest), _dump(about))

    @staticmethod
    def _attempt(number: int) -> str:
        return f"{ATTEMPTS}/{number:04d}.json"

    # -- what a run wrote ---------------------------------------------------------------------------------------

    def summary(self) -> dict[str, Any] | None:
        """`summary.json`, written at the end of a run; None while there is none."""
        return self._json(SUMMARY)

    def write_summary(self, summary: dict[str, Any]) -> None:
        """Replace `summary.json`."""
        self.storage.write(SUMMARY, _dump(summary))

    def last_line(self, path: str) -> dict[str, Any] | None:
        """The last whole JSON line of `metrics.jsonl` or `events.jsonl`; None when there is none."""
        try:
            tail = self.storage.read(path, start=-TAIL)
        except FileNotFoundError:
            return None
        for line in reversed(tail.split(b"\n")[:-1]):
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                return found if isinstance(found, dict) else None
        return None

    def lines(self, path: str) -> Iterator[dict[str, Any]]:
        """Every whole JSON line of a file of lines; what a crash cut in half is left out."""
        try:
            content = self.storage.read(path)
        except FileNotFoundError:
            return
        for line in content.split(b"\n"):
            with contextlib.suppress(ValueError):
                if isinstance(found := json.loads(line), dict):
                    yield found

    def metrics(self) -> list[dict[str, Any]]:
        """One entry per step, in order: where attempts overlap, the newest that reached the step counts."""
        newest: dict[int, dict[str, Any]] = {}
        for line in self.lines(METRICS):
            step = line.get("step")
            if isinstance(step, int) and line.get("attempt", 0) >= newest.get(step, {}).get("attempt", 0):
                newest[step] = line
        return [newest[step] for step in sorted(newest)]

    def _json(self, path: str) -> dict[str, Any] | None:
        try:
            found = json.loads(self.storage.read(path))
        except FileNotFoundError:
            return None
        except ValueError:
            raise DamagedFile(errno.EIO, "is not JSON (damaged?)", f"{self.url}/{path}") from None
        return found if isinstance(found, dict) else None


@dataclass(frozen=True)
class RunInfo:
    """One line of `raytrain-eks ls`."""

    name: str
    created: str = ""
    attempts: int = 0
    step: int | None = None
    """The last step in the metrics; of a sweep the steps of all trials."""
    loss: float | None = None
    """Training loss of that step, in nats per token; of a sweep the best trial's objective."""
    checkpoint: int | None = None
    """Step of the newest complete checkpoint."""
    summary: dict[str, Any] | None = None
    """`summary.json` of a finished run."""
    damaged: str | None = None
    """Why nothing else is known of it."""

    @property
    def ended(self) -> str | None:
        """How it ended, or `damaged`; None while it has not."""
        return "damaged" if self.damaged else (self.summary or {}).get("status")


def list_runs(storage: Storage | str | os.PathLike[str]) -> list[RunInfo]:
    """Every run of a storage, by name. A folder without `run.json` is none; of one whose files cannot be read `damaged`
    says why. Raises OSError when the storage does not answer."""
    parent = Storage.of(storage)
    found = []
    for entry in parent.entries():
        if not entry.is_folder or entry.name.startswith("."):
            continue
        run = RunFolder(parent, entry.name)
        try:
            info = _info(run)
        except UNREADABLE as error:
            info = RunInfo(run.name, damaged=unreadable(run.url, error))
        if info is not None:
            found.append(info)
    return found


UNREADABLE = (DamagedFile, PermissionError, IsADirectoryError, KeyError, TypeError, AttributeError, ValueError)
"""What comes of one folder with damaged or foreign files, between others that are to be listed all the same. Storage
that does not answer is another matter: it would be asked in vain for each of them."""


def unreadable(url: str, error: Exception) -> str:
    """Why a folder could not be read, as a sentence: what storage says, or that its JSON is of another shape."""
    if isinstance(error, OSError):
        return f"{error.filename or url}: {error.strerror or error}"
    return f"{url}: its JSON files are not those of a run ({type(error).__name__}: {error})"


def _info(run: RunFolder) -> RunInfo | None:
    known = run.identity()
    if known is None:
        return None
    found = _of_sweep(run) if known["identity"].get("kind") == "Sweep" else _of_run(run)
    return RunInfo(run.name, created=str(known.get("created", "")), attempts=len(run.attempts()), **found)


def _of_run(run: RunFolder) -> dict[str, Any]:
    from raytrain_eks.checkpoint.manifest import committed

    last, checkpoints = run.last_line(METRICS) or {}, committed(run)
    newest = checkpoints[-1].step if checkpoints else None
    return {"step": last.get("step"), "loss": last.get("loss"), "checkpoint": newest, "summary": run.summary()}


def _of_sweep(run: RunFolder) -> dict[str, Any]:
    """Steps of all its trials, and the best one's objective."""
    body = run._json(SWEEP) or {}
    best = next((trial for trial in body.get("trials", []) if trial["trial"] == body.get("best")), {})
    state = body.get("state", "running")
    summary = None if state == "running" else {"status": state}
    return {"step": body.get("trained_steps"), "loss": best.get("value"), "summary": summary}


def _text(value: Any) -> str:
    return "(left out)" if value is None else json.dumps(value, sort_keys=True, default=str)


def _dump(value: Any) -> bytes:
    return (json.dumps(value, indent=1, default=str) + "\n").encode()


def _now() -> str:
    # For people only: nothing is ever ordered or aged by this clock.
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _yaml(tree: Any) -> str:
    """Plain data as YAML that this package's reader takes back unchanged: a string that would read as something else
    is quoted."""
    from io import StringIO

    from ruamel.yaml import YAML
    from ruamel.yaml.scalarstring import DoubleQuotedScalarString

    from raytrain_eks.spec.source import scalar

    def quoted(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: quoted(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [quoted(item) for item in value]
        plain = not isinstance(value, str) or isinstance(scalar(value), str)
        return value if plain else DoubleQuotedScalarString(value)

    out = StringIO()
    writer = YAML()
    writer.default_flow_style = False
    writer.width = 1000
    writer.dump(quoted(tree), out)
    return out.getvalue()
