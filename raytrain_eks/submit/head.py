"""The Ray head of this machine: started once, found again, replaced when it is half dead.

A real cluster on loopback with dashboard, job server and token, whose only special thing is where it listens. It is
started as `ray start --head --block`: that process watches its children and ends all of them when one dies, and a
reaper ends them when it dies itself, so that a head lives as a whole or not at all. Every process that it starts
carries a marker in its environment, by which leftovers are found. No function here touches a Ray that it did not
start.
"""

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib import metadata
from pathlib import Path

from raytrain_eks.submit import places, processes
from raytrain_eks.submit.errors import TargetError
from raytrain_eks.submit.jobserver import JobServer
from raytrain_eks.submit.target import JobState, Say

LOOPBACK = "127.0.0.1"
MARKER = "RAYTRAIN_LOCAL_HEAD"
SPARE_CPUS = 2
"""Logical CPUs on top of the machine's: data tasks and Train's controller never wait for a worker to end."""
START_S = 90.0
"""A head takes 5 to 8 s; on a busy machine more."""
LOCK_S = 2 * START_S + 30.0
GAVE_UP = "timed out during startup"
"""Ray's word when its raylet takes more than 30 s, which no setting changes (ray/_private/node.py)."""
STOP_S = 10.0
PROBE_S = 5.0
PATIENCE_S = 20.0
PARTS = ("gcs_server", "raylet", "dashboard.py")
SESSIONS_KEPT = 3
"""Session folders, and in them the logs of old jobs, that stay."""

FIXED = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray runs workers at nice 15 by default; on a laptop everything else would come first.
    "RAY_worker_niceness": "0",
    # Train's controller looks for reports and dead workers that often; by default every 2 s.
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "1",
    # Nobody takes this machine away; Ray Train has an actor that asks.
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    # Ray's log monitor lists its folder that often, by default every 0.5 s: a new process's first line comes later.
    "LOG_NAME_UPDATE_INTERVAL_S": "2",
    # What the dashboard's charts cost is taken from training here: every 20 s instead of 5 and 10.
    "REPORTER_UPDATE_INTERVAL_MS": "20000",
    "METRICS_RECORD_INTERVAL_S": "20",
    "RAY_metrics_report_interval_ms": "20000",
    # Ray's switch for "one machine only": it then binds to loopback and does not replace 127.0.0.1 by a public address
    # (ray/_private/services.py, get_node_ip_address).
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    # Any free port for two Prometheus endpoints that otherwise have fixed ones.
    "AUTOSCALER_METRIC_PORT": "0",
    "DASHBOARD_METRIC_PORT": "0",
}
DROPPED = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_JOB_HEADERS")
"""Variables of the caller that would make the head, or jobs in it, look at another cluster."""

INHERITED = (
    *("AWS_", "HF_", "HUGGING_FACE_", "TRANSFORMERS_", "TOKENIZERS_", "TORCH", "OMP_", "MKL_", "DS_", "NCCL_", "GLOO_"),
    *("CUDA_", "PYTHONPATH", "LD_LIBRARY_PATH", "RAYTRAIN_", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)
"""Jobs get these from the head's environment, as it was when the head started. When one has changed since, the head is
started anew: a job then runs with what the person's shell says now, and no secret travels through the job server."""
NOT_INHERITED = (
    *("RAYTRAIN_STORAGE", "RAYTRAIN_ON", MARKER),
    *("DS_ACCELERATOR", "TORCHINDUCTOR_CACHE_DIR", "TOKENIZERS_PARALLELISM", "TRANSFORMERS_VERBOSITY"),
)
"""What every driver gets to know by other means; and what libraries write into the environment of a process that uses
them and no result depends on: a notebook that imported DeepSpeed is no reason for another Ray."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What is remembered of a head that was started."""

    id: str
    pid: int
    started: str
    """The start time of `pid` (see `processes.started`)."""
    url: str
    gcs: str
    session: str
    ray: str
    python: str
    executable: str
    cpus: int
    parts: dict[str, list[str]]
    """Program -> id and start time of each child process that the head cannot do without."""
    environment: dict[str, str]
    """Variable -> keyed hash of its value."""

    def dead(self) -> str | None:
        """What of it has died, as part of a sentence; None while all of its processes live."""
        if processes.started(self.pid) != self.started:
            return "its process is gone"
        gone = [name for name, (pid, born) in self.parts.items() if processes.started(int(pid)) != born]
        return f"its {' and '.join(gone)} {'is' if len(gone) == 1 else 'are'} gone" if gone else None

    def server(self, *, token: str) -> JobServer:
        """A client of its job server."""
        return JobServer(self.url, token=token)


class LocalHead:
    """The one head of this user and this state folder."""

    def __init__(self) -> None:
        self.folder = places.private(places.state() / "local")
        self.file = self.folder / "head.json"
        self.log = self.folder / "head.log"
        self.token_file = self.folder / "token"

    # -- what there is ------------------------------------------------------------------------------------------

    def remembered(self) -> Head | None:
        """The head of the state file, alive or not; None when there is none, or the file cannot be used."""
        found = places.read_json(self.file)
        if found is None or found.keys() != {field.name for field in fields(Head)}:
            return None
        return Head(**found)

    def token(self) -> str:
        """The token of the head; made on first use, readable by this user only."""
        try:
            found = self.token_file.read_text().strip()
        except OSError:
            found = ""
        if not found:
            found = secrets.token_hex(32)
            places.write_private(self.token_file, found)
        return found

    def broken(self, head: Head, *, patience: float = 0.0) -> str | None:
        """Why a head cannot be used, as part of a sentence; None when all of it answers.

        One whose processes live gets `patience` seconds to answer: on a busy machine it may be slow, and have jobs.
        """
        end = time.monotonic() + patience
        while True:
            if (why := head.dead()) is not None or (why := self._silent(head)) is None or time.monotonic() > end:
                return why
            time.sleep(0.2)

    def _silent(self, head: Head) -> str | None:
        """Why a head whose processes live cannot be used all the same; None when it can."""
        server = head.server(token=self.token())
        try:
            version = server.version(timeout=PROBE_S)
        except TargetError:
            return "its job server does not answer"
        if version.get("session_name") != head.session:
            return "another Ray has its address"
        return None if server.healthy(timeout=PROBE_S) else "its control store does not answer"

    def alive(self) -> Head | None:
        """The head, when there is one and all of it answers."""
        head = self.remembered()
        return head if head is not None and self.broken(head) is None else None

    def outdated(self, head: Head) -> list[str]:
        """What has changed on this machine since a living head was started, each as part of a sentence."""
        found = []
        if head.ray != (mine := metadata.version("ray")):
            found.append(f"it runs Ray {head.ray}, this environment has {mine}")
        if head.python != (mine := _python()):
            found.append(f"it runs Python {head.python}, this is {mine}")
        if head.executable != sys.executable:
            found.append(f"it runs {head.executable}, this is {sys.executable}")
        now = self._fingerprint()
        changed = sorted(name for name in head.environment.keys() | now if head.environment.get(name) != now.get(name))
        if changed:
            found.append(f"{', '.join(changed)} changed")
        return found

    def running(self, head: Head) -> list[JobState]:
        """Jobs of a living head that are not over."""
        return [state for state in head.server(token=self.token()).jobs() if not state.phase.over]

    # -- start and stop -----------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process of this machine starts or stops the head at a time. Raises TargetError after `LOCK_S`."""
        with (self.folder / "lock").open("a") as file:
            end = time.monotonic() + LOCK_S
            while True:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > end:
                        raise TargetError("another raytrain-eks starts or stops the local Ray for too long") from None
                    time.sleep(0.1)
            yield

    def ensure(self, say: Say) -> Head:
        """The living head of this environment, started when there is none. Raises TargetError when it does not start,
        or when one that no longer fits has jobs."""
        with self.locked():
            head = self.remembered()
            if head is not None and (why := self.broken(head, patience=PATIENCE_S)) is None:
                if not (changes := self.outdated(head)):
                    return head
                reason = "; ".join(changes)
                if jobs := self.running(head):
                    raise TargetError(
                        f"the local Ray cannot be used: {reason}\n"
                        f"  it still runs {', '.join(sorted(state.run or state.id for state in jobs))}: wait, cancel, "
                        "or end everything with `raytrain-eks local stop --force`"
                    )
                say(f"starting the local Ray anew: {reason}")
                self._end(head)
            elif head is not None:
                say(f"the local Ray is replaced: {why}")
                self._end(head)
            return self._start_again(say)

    def stop(self) -> bool:
        """End the head and everything that it started; False when there was none."""
        with self.locked():
            head = self.remembered()
            if head is None:
                return False
            self._end(head)
            return True

    def _end(self, head: Head) -> None:
        if processes.started(head.pid) == head.started:
            # One that lost a part waits for it in vain before it ends.
            processes.end([head.pid], grace=STOP_S if head.dead() is None else 0.5)
        processes.end(processes.marked(MARKER, head.id), grace=1.0)
        self.file.unlink(missing_ok=True)

    def _start_again(self, say: Say) -> Head:
        """Start a head; once more when Ray itself gave up, as it does on a busy machine."""
        try:
            return self._start(say)
        except TargetError as error:
            if GAVE_UP not in str(error):
                raise
            say("Ray gave up starting on this busy machine; once more")
            return self._start(say)

    def _start(self, say: Say) -> Head:
        began = time.monotonic()
        identity = secrets.token_hex(8)
        ports = _free_ports(4)
        folder = places.ray_folder()
        _tidy(folder)
        cpus = cores() + SPARE_CPUS
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
        command += [f"--node-ip-address={LOOPBACK}", f"--port={ports[0]}", f"--num-cpus={cpus}"]
        command += ["--include-dashboard=true", f"--dashboard-host={LOOPBACK}", f"--dashboard-port={ports[1]}"]
        command += [f"--dashboard-agent-listen-port={ports[2]}", f"--ray-client-server-port={ports[3]}"]
        command += [f"--temp-dir={folder}"]
        with self.log.open("wb") as log:
            process = subprocess.Popen(
                command,
                env=self._environment(identity),
                # A folder that stays; the person's own must not be held.
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        server = JobServer(f"http://{LOOPBACK}:{ports[1]}", token=self.token())
        try:
            session = self._wait(process, server, JobServer(f"http://{LOOPBACK}:{ports[2]}", token=self.token()))
        except BaseException:
            processes.end([process.pid], grace=1.0)
            processes.end(processes.marked(MARKER, identity), grace=1.0)
            raise
        head = Head(
            id=identity,
            pid=process.pid,
            started=processes.started(process.pid) or "",
            url=server.url,
            gcs=f"{LOOPBACK}:{ports[0]}",
            session=session,
            ray=metadata.version("ray"),
            python=_python(),
            executable=sys.executable,
            cpus=cpus,
            parts={
                name: [str(pid), born]
                for pid, name in processes.children(process.pid).items()
                if name in PARTS and (born := processes.started(pid)) is not None
            },
            environment=self._fingerprint(),
        )
        places.write_private(self.file, json.dumps(asdict(head), indent=2))
        say(f"Ray {head.ray} started on this machine in {time.monotonic() - began:.1f} s: {head.url}")
        return head

    def _wait(self, process: "subprocess.Popen[bytes]", server: JobServer, agent: JobServer) -> str:
        """The session's name, as soon as the head takes jobs."""
        end = time.monotonic() + START_S
        while time.monotonic() < end:
            if process.poll() is not None:
                raise TargetError(
                    f"Ray did not start on this machine:\n{self._log_tail()}\n  the whole log: {self.log}"
                )
            with contextlib.suppress(TargetError):
                session = str(server.version(timeout=PROBE_S)["session_name"])
                # The agent of the node takes jobs; it is up a little later than the dashboard.
                if agent.request("GET", "/api/local_raylet_healthz", timeout=PROBE_S)[0] == 200:
                    return session
            time.sleep(0.05)
        raise TargetError(
            f"Ray did not answer within {START_S:.0f} s:\n{self._log_tail()}\n  the whole log: {self.log}"
        )

    def _log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()[-10:]
        return "\n".join([*(f"  | {line}" for line in lines), f"  the whole log: {self.log}"])

    def _environment(self, identity: str) -> dict[str, str]:
        mine = {name: value for name, value in os.environ.items() if name not in DROPPED}
        # Drivers are started by the name `python`, which is then this interpreter.
        mine["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), mine.get("PATH", os.defpath)])
        return mine | FIXED | {MARKER: identity, "RAY_AUTH_TOKEN_PATH": str(self.token_file)}

    def _fingerprint(self) -> dict[str, str]:
        key = self.token().encode()
        wanted = {
            name: value
            for name, value in os.environ.items()
            if name.upper().startswith(INHERITED) and name not in NOT_INHERITED
        }
        return {
            name: hmac.new(key, os.fsencode(value), hashlib.sha256).hexdigest()[:16] for name, value in wanted.items()
        }


def cores() -> int:
    """CPUs that this process may use: its affinity, and the container's quota (cgroup v2) rounded down, at least 1."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with contextlib.suppress(OSError, ValueError):
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        count = min(count, max(int(quota) // int(period), 1))
    return count


def _python() -> str:
    return ".".join(map(str, sys.version_info[:3]))


def _free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has; all held at once, so that they differ."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [each.getsockname()[1] for each in sockets]


def _tidy(folder: Path) -> None:
    """Remove the oldest session folders of heads that are gone."""
    sessions = sorted((path for path in folder.glob("session_2*") if path.is_dir()), key=lambda path: path.name)
    for path in sessions[: max(len(sessions) - SESSIONS_KEPT, 0)]:
        shutil.rmtree(path, ignore_errors=True)
