"""Ray's job server over its REST API, with the standard library alone.

Importing `ray.job_submission` takes 0.8 s and brings grpc; this module takes 0.1 s and needs no Ray at all on the
submitting machine. Endpoints: ray/dashboard/modules/job/job_head.py and state/state_head.py of Ray 2.60. Jobs of all
versions since 2.0 are spoken to in the same way.
"""

import contextlib
import http.client
import json
import os
import re
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from raytrain_eks.spec.problem import shown
from raytrain_eks.submit.errors import NotAllowed, NotFound, TargetError, Unreachable
from raytrain_eks.submit.package import Package
from raytrain_eks.submit.target import JobState, Versions, state_of

CONNECT_S = 5.0
"""A server that does not take a connection in this time is unreachable."""
ANSWER_S = 30.0
"""A request that is not answered in this time has failed. Ray waits up to 10 s for a node's agent."""
LOG_S = 600
"""How long a whole log may take to arrive."""
CHUNK = 64 * 1024
_NAME, _VALUE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"), re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
"""What a header's name and value may hold (RFC 9110, section 5)."""
TOKEN_VARIABLE, TOKEN_FILE_VARIABLE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


class _Plain(http.client.HTTPConnection):
    """A connection that another thread can cut. The response takes the socket over, so it is remembered here."""

    taken: socket.socket | None = None

    def connect(self) -> None:
        super().connect()
        self.taken = self.sock

    def cut(self) -> None:
        if self.taken is not None:
            with contextlib.suppress(OSError):
                self.taken.shutdown(socket.SHUT_RDWR)


class _Secure(http.client.HTTPSConnection, _Plain):
    """The same over TLS."""


_Connection = _Plain


class JobServer:
    """A client of one job server. Every method raises Unreachable or NotAllowed."""

    def __init__(
        self, url: str, *, headers: Mapping[str, str] | None = None, token: str | None = None, ca: str | None = None
    ):
        """`url` is `http(s)://host[:port][/prefix]`; `ca` is a file or folder of certificates to trust instead of the
        system's. A certificate is always verified. Raises ValueError for anything that is not such a URL."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError(f"{url!r} is not an address such as http://127.0.0.1:8265")
        if parts.username is not None:
            raise ValueError("a name or password in the address would end up in logs; use --header or RAY_AUTH_TOKEN")
        self.secure = parts.scheme == "https"
        self.host, self.port = parts.hostname, parts.port or (443 if self.secure else 80)
        self.prefix = parts.path.rstrip("/")
        self.url = urllib.parse.urlunsplit((parts.scheme, parts.netloc, self.prefix, "", ""))
        self.headers = dict(headers or {})
        if token and not any(name.lower() == "authorization" for name in self.headers):
            self.headers["Authorization"] = f"Bearer {token}"
        for name, value in self.headers.items():
            if not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
                # The text itself is not shown: it may be a secret.
                of = "the token" if token and name == "Authorization" else f"the header {shown(name)}"
                raise ValueError(f"{of} holds characters that no request can carry")
        self.tls = self._context(ca) if self.secure else None

    @staticmethod
    def _context(ca: str | None) -> ssl.SSLContext:
        if ca is None:
            return ssl.create_default_context()
        folder = os.path.isdir(ca)
        return ssl.create_default_context(cafile=None if folder else ca, capath=ca if folder else None)

    # -- requests -----------------------------------------------------------------------------------------------

    def _open(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = ANSWER_S, size: int | None = None
    ) -> tuple[_Connection, http.client.HTTPResponse]:
        headers = {"Accept-Encoding": "identity", "Connection": "close"} | self.headers
        if size is not None:
            headers |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        elif body is not None:
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        try:
            connection = self._connect()
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable(self._cannot(error)) from None
        try:
            assert connection.sock is not None
            connection.sock.settimeout(timeout)
            connection.request(method, self.prefix + path, body=body, headers=headers)
            return connection, connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(self._cannot(error)) from None

    def _connect(self) -> _Connection:
        if self.tls is not None:
            connection: _Connection = _Secure(self.host, self.port, timeout=CONNECT_S, context=self.tls)
        else:
            connection = _Plain(self.host, self.port, timeout=CONNECT_S)
        connection.connect()
        assert connection.sock is not None
        # A peer that vanished without a word is noticed after 15 + 3 x 5 s, also while a log is quiet.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                connection.sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return connection

    def _cannot(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{self.url}: its certificate is not trusted ({error.verify_message})\n  name its issuer with --ca"
        if isinstance(error, TimeoutError):
            return f"{self.url} does not answer in time\n  is this the address of the dashboard, and is it reachable?"
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return f"{self.url} is not reachable: {reason}\n  is the cluster up, and is this the address of its dashboard?"

    def request(self, method: str, path: str, *, body: Any = None, timeout: float = ANSWER_S) -> tuple[int, bytes]:
        """Status and body of one request. A refusal of the server (401, 403) raises NotAllowed."""
        connection, response = self._open(method, path, body=body, timeout=timeout)
        with contextlib.closing(connection):
            try:
                content = response.read()
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(self._cannot(error)) from None
            self._allowed(response.status)
            return response.status, content

    def _allowed(self, status: int) -> None:
        if status == 401:
            raise NotAllowed(f"{self.url} wants a token\n  set {TOKEN_VARIABLE}, or name its file with --token-file")
        if status == 403:
            raise NotAllowed(f"{self.url} refuses: the token is not the cluster's, or it has no right to do this")
        if status in (502, 503, 504):
            raise Unreachable(f"{self.url} answers {status}: its server is not ready")

    def get(self, path: str, *, timeout: float = ANSWER_S) -> Any:
        """The JSON at `path`; None for 404."""
        status, content = self.request("GET", path, timeout=timeout)
        if status == 404:
            return None
        return self._json(status, content)

    def _json(self, status: int, content: bytes) -> Any:
        if status >= 300:
            raise TargetError(f"{self.url} answers {status}: {_last_line(content)}")
        try:
            return json.loads(content)
        except (ValueError, RecursionError):
            raise self._stranger() from None

    def _stranger(self) -> Unreachable:
        return Unreachable(f"{self.url} answers, but not as a Ray job server does\n  the address of the dashboard?")

    # -- the cluster --------------------------------------------------------------------------------------------

    def version(self, *, timeout: float = ANSWER_S) -> dict[str, Any]:
        """`ray_version`, `session_name` and more."""
        found = self.get("/api/version", timeout=timeout)
        if not isinstance(found, dict) or "ray_version" not in found:
            raise self._stranger()
        return found

    def versions(self) -> Versions:
        """Ray's and Python's version of the cluster."""
        ray = str(self.version()["ray_version"])
        with contextlib.suppress(TargetError):
            about = (self.get("/api/v0/cluster_metadata") or {}).get("data") or {}
            return Versions(ray=ray, python=about.get("pythonVersion"))
        return Versions(ray=ray, python=None)

    def healthy(self, *, timeout: float) -> bool:
        """Whether the cluster's control store (GCS) answers."""
        try:
            return self.request("GET", "/api/gcs_healthz", timeout=timeout)[0] == 200
        except Unreachable:
            return False

    # -- jobs ---------------------------------------------------------------------------------------------------

    def upload(self, package: Package) -> str:
        """The URI of the package on the cluster; sent only when it is not there yet."""
        with package.archive() as (archive, digest):
            name = f"_ray_pkg_{digest}.zip"
            if self.request("GET", f"/api/packages/gcs/{name}")[0] != 200:
                self._put(f"/api/packages/gcs/{name}", archive)
        return f"gcs://{name}"

    def _put(self, path: str, file: Path) -> None:
        size = file.stat().st_size
        with file.open("rb") as content:
            # The upload itself may take long on a slow line: at least 100 kB/s are expected.
            connection, response = self._open("PUT", path, body=content, size=size, timeout=ANSWER_S + size / 1e5)
        with contextlib.closing(connection):
            self._allowed(response.status)
            if response.status != 200:
                raise TargetError(f"{self.url} did not take the package: {_last_line(response.read())}")

    def submit(self, *, id: str, entrypoint: str, runtime_env: dict[str, Any], metadata: dict[str, str]) -> str:
        """Start a job; its submission id."""
        body = {"submission_id": id, "entrypoint": entrypoint, "runtime_env": runtime_env, "metadata": metadata}
        return str(self._json(*self.request("POST", "/api/jobs/", body=body))["submission_id"])

    def job(self, id: str) -> JobState | None:
        """The job; None when the server does not know it."""
        found = self.get(f"/api/jobs/{urllib.parse.quote(id, safe='')}")
        return None if found is None else state_of(found)

    def jobs(self) -> list[JobState]:
        """Jobs that were submitted, oldest first; drivers that connected by themselves are not among them."""
        listed = self.get("/api/jobs/") or []
        try:
            found = [state_of(each) for each in listed if each.get("type") == "SUBMISSION"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise self._stranger() from None
        return sorted(found, key=lambda state: (state.started or 0, state.id))

    def stop(self, id: str) -> bool:
        """Ask a job to stop; False when it was over already."""
        status, content = self.request("POST", f"/api/jobs/{urllib.parse.quote(id, safe='')}/stop")
        if status == 404:
            raise NotFound(f"{self.url} knows no job {id}")
        return bool(self._json(status, content).get("stopped"))

    def log(self, id: str, node: str, *, skip: int = 0, follow: bool = False, last: int | None = None) -> "Log":
        """The bytes of a driver's log after the first `skip`, or its `last` lines; with `follow` without an end.

        Raises NotFound when there is no such log, and Unreachable when the connection drops before the end. The
        server always starts at the first byte.
        """
        return self._log({"node_id": node, "filename": f"job-driver-{id}.log"}, skip=skip, follow=follow, last=last)

    def worker_log(self, node: str, pid: int, *, skip: int = 0, follow: bool = False, last: int | None = None) -> "Log":
        """The standard output of a worker process, as `log`. Raises NotFound when the process or its node is not
        known."""
        return self._log({"node_id": node, "pid": str(pid)}, skip=skip, follow=follow, last=last)

    def _log(self, which: dict[str, str], *, skip: int = 0, follow: bool = False, last: int | None = None) -> "Log":
        query = which | {"lines": str(last or -1), "timeout": str(LOG_S)}
        # The server refuses an interval for a log that is not followed.
        query |= {"interval": "0.2"} if follow else {}
        path = f"/api/v0/logs/{'stream' if follow else 'file'}?{urllib.parse.urlencode(query)}"
        # A log may be quiet for days; dead peers are the keep-alive's to find.
        connection, response = self._open("GET", path, timeout=None if follow else LOG_S)
        if response.status != 200:
            with contextlib.closing(connection):
                self._allowed(response.status)
                content = response.read()
            # Of a worker's log it says on several lines what it was asked for.
            missing = b"Could not find a log file" in content
            message = "there is no such log (any more)" if missing else _last_line(content)
            raise (NotFound if missing or "not found" in message else Unreachable)(f"{self.url}: {message}")
        return Log(connection, response, skip, self._cannot)


class Log:
    """A log on its way here. Follows the protocol `Stream`."""

    def __init__(
        self,
        connection: _Connection,
        response: http.client.HTTPResponse,
        skip: int,
        cannot: Callable[[Exception], str],
    ):
        self._connection, self._response, self._skip, self._cannot = connection, response, skip, cannot

    def __iter__(self) -> Iterator[bytes]:
        with contextlib.closing(self._connection):
            try:
                while chunk := self._response.read1(CHUNK):
                    if self._skip >= len(chunk):
                        self._skip -= len(chunk)
                        continue
                    rest, self._skip = chunk[self._skip :], 0
                    yield rest
            except (OSError, http.client.HTTPException) as error:
                raise Unreachable(self._cannot(error)) from None

    def close(self) -> None:
        """End the connection; a thread that waits for bytes gets Unreachable."""
        self._connection.cut()


def _last_line(content: bytes) -> str:
    """The last line of a server's answer: a traceback's is its message."""
    lines = content.decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:500] if lines else "(nothing)"
