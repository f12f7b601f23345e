"""What a RayJob's entrypoint does: what a test says, or really, on a Ray that runs beside the test."""

import contextlib
import json
import shlex
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import yaml

from double.podlogs import Log
from double.store import Body

ENDED = ("SUCCEEDED", "FAILED", "STOPPED")


@dataclass(frozen=True)
class State:
    """Of a Ray job, as the dashboard tells it."""

    status: str
    message: str = ""
    started: int = 0
    """Milliseconds since 1970; 0: not yet."""
    ended: int = 0


class Entrypoint(Protocol):
    """A Ray job that was submitted."""

    def state(self) -> State:
        """How it goes."""

    def stop(self) -> None:
        """Stop it; it may take a while."""


Start = Callable[[Body, Log], Entrypoint]
"""Starts a RayJob's entrypoint; its driver's log goes into the log, which the submitter's pod shows."""


@dataclass
class Scripted:
    """An entrypoint that ends when the test says so."""

    log: Log
    now: State = field(default_factory=lambda: State("RUNNING", "Job is currently running.", 1_767_225_600_000))

    def state(self) -> State:
        return self.now

    def say(self, *lines: str) -> None:
        """The driver writes lines."""
        for line in lines:
            self.log.write(line)

    def finish(self, status: str = "SUCCEEDED", message: str = "") -> None:
        """The driver ends."""
        texts = {"SUCCEEDED": "Job finished successfully.", "STOPPED": "Job was intentionally stopped."}
        failed = "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n"
        self.now = State(status, message or texts.get(status, failed), self.now.started, self.now.started + 60_000)

    def stop(self) -> None:
        if self.now.status not in ENDED:
            self.finish("STOPPED")


_WORDS = "import json, sys; print(json.dumps(sys.argv[1:]))"


def submitted(job: Body) -> dict[str, Any]:
    """What a RayJob submits, after the shell of the submitter's pod has read the operator's command
    (`BuildJobSubmitCommand`, common/job.go): entrypoint, runtime_env, metadata, submission_id."""
    spec = job["spec"]
    environment = yaml.safe_load(spec.get("runtimeEnvYAML") or "{}")
    words = ["--runtime-env-json", json.dumps(json.dumps(environment))]
    words += ["--metadata-json", json.dumps(json.dumps(spec.get("metadata") or {}))]
    words += ["--submission-id", job["status"]["jobId"], "--", spec["entrypoint"].strip(), ";"]
    # The kubelet makes one dollar of two in a container's arguments.
    script = " ".join(words).replace("$$", "$")
    line = f"{shlex.join([sys.executable, '-c', _WORDS])} {script}"
    done = subprocess.run(["/bin/bash", "-ec", line], capture_output=True, check=True, timeout=300)
    given = json.loads(done.stdout)
    rest = given[given.index("--") + 1 :]
    return {
        "runtime_env": json.loads(given[1]),
        "metadata": json.loads(given[3]),
        "submission_id": given[5],
        # `ray job submit` puts the words together again (dashboard/modules/job/cli.py).
        "entrypoint": shlex.join(rest),
    }


@dataclass(frozen=True)
class OnRay:
    """Starts entrypoints on a real Ray by its job server, as the submitter's `ray job submit` does.

    `place(job, runtime_env)` may change the runtime environment first: a path inside the submitter's pod becomes one on
    this machine (`volumes.Volumes`). The log is read every `every` seconds.
    """

    url: str
    token: str | None = None
    place: Callable[[Body, dict[str, Any]], dict[str, Any]] = lambda job, environment: environment
    every: float = 0.3

    def __call__(self, job: Body, log: Log) -> "Running":
        from ray.job_submission import JobSubmissionClient

        what = submitted(job)
        what["runtime_env"] = self.place(job, what["runtime_env"])
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else None
        JobSubmissionClient(self.url, headers=headers).submit_job(**what)
        return Running(self, what["submission_id"], log)

    def ask(self, method: str, path: str) -> Any:
        """An answer of the job server. Raises OSError."""
        request = urllib.request.Request(self.url + path, method=method)
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        with urllib.request.urlopen(request, timeout=300) as answer:
            return json.load(answer)


class Running:
    """A Ray job that runs for real."""

    def __init__(self, ray: OnRay, submission: str, log: Log):
        self.ray, self.submission, self.log = ray, submission, log
        self._over = threading.Event()
        self._last = State("PENDING", "Job has not started yet.")
        self._thread = threading.Thread(target=self._follow, name=f"driver of {submission}", daemon=True)
        self._thread.start()

    def state(self) -> State:
        """Told as over only after the log was read to its end."""
        return self._last

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self.ray.ask("POST", f"/api/jobs/{self.submission}/stop")

    def forget(self) -> None:
        """The cluster is lost: nothing is heard of the job any more, and it does not go on."""
        self._over.set()
        self._thread.join(timeout=300)
        self.stop()
        self._last = State("FAILED", "Job supervisor actor died unexpectedly.", self._last.started)

    def _follow(self) -> None:
        told = 0
        while not self._over.wait(self.ray.every):
            try:
                info = self.ray.ask("GET", f"/api/jobs/{self.submission}")
                lines = self.ray.ask("GET", f"/api/jobs/{self.submission}/logs")["logs"].split("\n")
            except urllib.error.HTTPError:
                continue
            except OSError as error:
                self._last = State("FAILED", f"the job server is gone: {error}", self._last.started)
                return
            over = info["status"] in ENDED
            whole = lines if over and lines[-1] else lines[:-1]
            for line in whole[told:]:
                self.log.write(line)
            told = max(told, len(whole))
            times = (info.get("start_time") or 0, info.get("end_time") or 0)
            self._last = State(info["status"], info.get("message") or "", *times)
            if over:
                return
