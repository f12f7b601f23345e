"""The job server of a head inside Kubernetes, through the API server's proxy of its service: no port is forwarded, and
the right to `services/proxy` is all it takes.

The API server signs requests itself and takes `Authorization` away, so a cluster's token goes in Ray's second header
(ray/_private/authentication/http_token_authentication.py, "for proxies and KubeRay").
"""

import base64
import contextlib
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from raytrain_eks.submit.cluster import token as token_at_hand
from raytrain_eks.submit.errors import NotAllowed, Unreachable
from raytrain_eks.submit.jobserver import ANSWER_S, CHUNK, JobServer

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Body, Client

TOKEN_HEADER = "X-Ray-Authorization"
SECRET_KEY = "auth_token"
PORT = "dashboard"
"""The port's name in the head's service (KubeRay, DashboardPortName)."""


class HeadServer(JobServer):
    """Follows `JobServer`; requests go through the Kubernetes API."""

    def __init__(self, client: "Client", namespace: str, service: str, *, token: str | None):
        self.client = client
        self.url = f"the job server of service {namespace}/{service}"
        self.prefix = f"/api/v1/namespaces/{namespace}/services/{service}:{PORT}/proxy"
        self.headers = {TOKEN_HEADER: f"Bearer {token}"} if token else {}

    def _open(
        self, method: str, path: str, *, body: Any = None, timeout: float | None = ANSWER_S, size: int | None = None
    ) -> tuple[Any, Any]:
        headers = {"Accept-Encoding": "identity"} | self.headers
        if size is not None:
            headers |= {"Content-Length": str(size), "Content-Type": "application/octet-stream"}
        elif body is not None:
            body, headers["Content-Type"] = json.dumps(body).encode(), "application/json"
        passing = self.client.transport.passing(
            method, self.prefix + path, headers=headers, content=body, silence_s=timeout or QUIET_S
        )
        try:
            response = passing.__enter__()
        except ConnectionError as error:
            raise Unreachable(f"{self.url} is not reachable: {error}") from None
        answer = _Answer(response, passing)
        if response.status_code == 403 and _is_of_the_api(answer):
            raise NotAllowed(
                "not allowed (403): get services/proxy\n  a Role that grants it needs the rule "
                '{apiGroups: [""], resources: [services/proxy], verbs: [get, create]}'
            )
        return SimpleNamespace(close=answer.close, cut=answer.close), answer


QUIET_S = 600.0
"""Seconds after which a log without a byte counts as broken: a proxy in between may have forgotten the connection."""


class _Answer:
    """What `JobServer` reads of an HTTP response."""

    def __init__(self, response: Any, passing: Any):
        self.status = int(response.status_code)
        self._response, self._passing = response, passing
        self._parts: Iterator[bytes] = response.iter_bytes(CHUNK)
        self._read: bytes | None = None

    def read(self) -> bytes:
        """The whole body."""
        if self._read is None:
            self._read = b"".join(iter(lambda: self.read1(CHUNK), b""))
        return self._read

    def read1(self, most: int) -> bytes:
        """The next part; empty at the end."""
        try:
            return next(self._parts, b"")
        except Exception as error:
            # The library has its own errors for a connection that broke or was cut; all mean the same here.
            raise ConnectionError(str(error) or type(error).__name__) from None

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(Exception):
            self._response.close()


def _is_of_the_api(answer: _Answer) -> bool:
    """Whether a refusal came from the Kubernetes API and not from the job server behind it."""
    with contextlib.suppress(ValueError):
        found = json.loads(answer.read())
        return isinstance(found, dict) and found.get("kind") == "Status"
    return False


def head_server(client: "Client", cluster: "Body", *, token_file: str | None = None) -> HeadServer | None:
    """The job server of a RayCluster; None while it has no head service. Raises KubeError, OSError for `token_file`."""
    metadata = cluster["metadata"]
    service = ((cluster.get("status") or {}).get("head") or {}).get("serviceName")
    if not service:
        return None
    return HeadServer(client, metadata["namespace"], service, token=token_of(client, cluster, token_file))


def token_of(client: "Client", cluster: "Body", token_file: str | None = None) -> str | None:
    """The token of a RayCluster in token mode: as given by file or environment, else of its Secret where this user may
    read that; None without token mode, or when nobody tells."""
    from raytrain_eks.kube.errors import KubeError

    options = (cluster["spec"] or {}).get("authOptions") or {}
    if options.get("mode") != "token":
        return None
    if (given := token_at_hand(token_file)) is not None:
        return given
    metadata = cluster["metadata"]
    with contextlib.suppress(KubeError, KeyError, ValueError):
        secret = client.get("v1", "Secret", options.get("secretName") or metadata["name"], metadata["namespace"])
        return base64.b64decode(secret["data"][SECRET_KEY]).decode().strip()
    return None
