"""A Ray cluster with a job server: `--on http://HEAD:8265`."""

import os
import sys
from collections.abc import Generator, Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem
from raytrain_eks.submit import package
from raytrain_eks.submit.entrypoint import shell_line
from raytrain_eks.submit.errors import Incompatible, Misused
from raytrain_eks.submit.jobserver import TOKEN_FILE_VARIABLE, TOKEN_VARIABLE, JobServer
from raytrain_eks.submit.target import (
    STOP_GRACE_S,
    Details,
    JobState,
    RankPlace,
    Say,
    Stream,
    Submission,
    Versions,
)

if TYPE_CHECKING:
    from raytrain_eks.submit.assemble import JobFile

SUPPORTED_RAY = ("2.60",)
"""Minor versions of Ray that the driver was tried with (pyproject.toml, extra `train`)."""
LONGEST_TOKEN = 2**16
"""Characters; what is longer does not go into a request's header anyway."""


class RayCluster:
    """Any Ray cluster whose job server is reached over HTTP. Follows the protocol `Target`."""

    shares_files = False
    python = "python"
    """The interpreter as the cluster's shell finds it."""

    def __init__(self, server: JobServer, *, any_version: bool = False):
        self.name = server.url
        self.server = server
        self.any_version = any_version

    def check(self, job: Job) -> Iterator[Problem]:
        """A remote cluster's workers cannot read paths of this machine; everything else is its own to say."""
        yield from ()

    def place(self, file: "JobFile", folder: Path) -> None:
        """A cluster that runs already is as it is, whatever the job says."""

    def access(self) -> dict[str, str]:
        """Its address is its name."""
        return {}

    def prepare(self, say: Say) -> None:
        """Raises Unreachable, NotAllowed, or Incompatible with both versions named."""
        found = self.server.versions()
        # Reading jobs is the first thing that needs the token.
        self.server.jobs()
        if not self.any_version and (reasons := differences(found, here())):
            raise Incompatible("\n".join([f"{self.name} does not fit this machine:", *(f"  {why}" for why in reasons)]))

    def submit(self, submission: Submission, say: Say) -> str:
        """Upload what is not there yet and start the driver."""
        runtime_env: dict[str, object] = {"working_dir": self.server.upload(submission.package)}
        if not self.shares_files:
            runtime_env["py_modules"] = [self.server.upload(package.of_library())]
        # The supervisor of a job reads the time between SIGTERM and SIGKILL from its own environment.
        runtime_env["env_vars"] = submission.environment | {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_GRACE_S)}
        return self.server.submit(
            id=submission.id,
            entrypoint=shell_line(
                self.python,
                submission.job_file,
                submission.options,
                script=submission.script,
                folder=submission.folder if self.shares_files else None,
            ),
            runtime_env=runtime_env,
            metadata=submission.metadata,
        )

    def job(self, id: str) -> JobState | None:
        """The job; None when the server does not know it."""
        return self.server.job(id)

    def jobs(self) -> list[JobState]:
        """All submitted jobs, oldest first."""
        return self.server.jobs()

    def stop(self, id: str) -> bool:
        """Ask the driver to save and end."""
        return self.server.stop(id)

    def end(self, id: str) -> bool:
        """A job server knows one way to end a job, and it is not abrupt."""
        return self.stop(id)

    def kept(self, run: str, storage: str | None) -> None:
        """A job server keeps no job file by itself."""

    def log(self, state: JobState, *, skip: int = 0, follow: bool = False, last: int | None = None) -> Stream:
        """The driver's log; nothing while the driver has no node yet."""
        if state.node is None:
            return _nothing()
        return self.server.log(state.id, state.node, skip=skip, follow=follow, last=last)

    def rank_log(
        self, state: JobState, rank: RankPlace, *, skip: int = 0, follow: bool = False, last: int | None = None
    ) -> Stream:
        """The output of a worker process, from the agent of its node."""
        return self.server.worker_log(rank.node, rank.pid, skip=skip, follow=follow, last=last)

    def details(self, id: str) -> Details:
        """Nothing that the job's state does not say."""
        return Details()

    def past(self, id: str) -> JobState | None:
        """A cluster keeps the log of a job as long as the job."""
        return None

    def lost(self) -> str | None:
        """A cluster that does not answer may be back; nobody here can tell."""
        return None

    def address(self, id: str) -> str | None:
        """The dashboard's page of the job."""
        return f"{self.server.url}/#/jobs/{id}"


def _nothing() -> Generator[bytes, None, None]:
    yield from ()


def here() -> Versions:
    """What this machine has; without Ray the version that the driver was tried with."""
    try:
        ray = metadata.version("ray")
    except metadata.PackageNotFoundError:
        ray = SUPPORTED_RAY[-1]
    return Versions(ray=ray, python=".".join(map(str, sys.version_info[:3])))


def differences(cluster: Versions, mine: Versions) -> list[str]:
    """Why a cluster does not fit, one sentence each with both versions; patch releases may differ."""
    found = []
    if _minor(cluster.ray) != _minor(mine.ray):
        found.append(
            f"Ray is {cluster.ray} there and {mine.ray} here: install ray=={cluster.ray} here, "
            f"or use an image with Ray {_minor(mine.ray)}"
        )
    if cluster.python is not None and _minor(cluster.python) != _minor(mine.python or ""):
        found.append(
            f"Python is {cluster.python} there and {mine.python} here: use Python {_minor(cluster.python)} here, "
            f"or an image with {_minor(mine.python or '')}"
        )
    return found


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def connect(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    token_file: str | None = None,
    ca: str | None = None,
    any_version: bool = False,
) -> RayCluster:
    """The cluster behind a URL, with the token of the environment or a file. Raises Misused for a bad URL."""
    try:
        server = JobServer(url, headers=headers, token=token(token_file), ca=ca)
    except (ValueError, OSError) as error:
        raise Misused(f"--on {url}: {error}") from None
    return RayCluster(server, any_version=any_version)


def token(file: str | None = None) -> str | None:
    """The token for a cluster: of `file`, of RAY_AUTH_TOKEN, or of the file that RAY_AUTH_TOKEN_PATH names.

    `~/.ray/auth_token` is not read by itself: it belongs to clusters of this machine, and would be shown to any URL.
    Raises OSError when a named file cannot be read, ValueError when it is no text.
    """
    if file is None and (value := os.environ.get(TOKEN_VARIABLE)):
        return value.strip()
    named = file or os.environ.get(TOKEN_FILE_VARIABLE)
    if not named:
        return None
    with open(os.path.expanduser(named), encoding="utf-8") as file:
        try:
            return file.read(LONGEST_TOKEN).strip()
        except UnicodeDecodeError:
            raise ValueError(f"{named}: not a token: not UTF-8 text") from None
