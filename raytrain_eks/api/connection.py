"""From a notebook's pod into a running Ray cluster: its job server, its Ray Client port, with the cluster's token.

A head's service has a name that only pods of the same Kubernetes cluster know (KubeRay, GenerateHeadServiceName). The
operator keeps a cluster's token in a Secret of the cluster's name under `auth_token` (constant.go).
"""

import base64
import contextlib
import os
import socket
import time
import urllib.parse
from typing import TYPE_CHECKING, Any, cast

from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.submit.cluster import RayCluster
from raytrain_eks.submit.cluster import token as token_at_hand
from raytrain_eks.submit.errors import Incompatible, NotAllowed, TargetError, Unreachable
from raytrain_eks.submit.jobserver import TOKEN_VARIABLE, JobServer

if TYPE_CHECKING:
    from ray.client_builder import ClientContext
    from ray.job_submission import JobSubmissionClient

DASHBOARD_PORT, CLIENT_PORT = 8265, 10001
SECRET_KEY = "auth_token"
CLIENT_BIRTH = 60.0
"""Seconds. A head's dashboard answers before its Ray Client server, a process of its own that imports Ray first, so a
port that is refused may only be young."""
NOT_BORN = "Starting Ray client server failed"
"""What Ray says when the server that a head forks for each client has died at birth (util/client/server/proxier.py)."""


def head_host(cluster: Cluster) -> str:
    """The name of the head's service, for pods of any namespace."""
    return f"{cluster.name}-head-svc.{cluster.namespace}.svc"


class Connection:
    """A way into a cluster that answers and fits. It can be given to `Job.submit(on=...)`."""

    def __init__(self, target: RayCluster, *, client_address: str, token: str | None):
        self.target = target
        self.address = target.server.url
        """Of dashboard and job server."""
        self.client_address = client_address
        """Of the Ray Client: `ray://host:10001`."""
        self._token = token

    def jobs(self) -> "JobSubmissionClient":
        """Ray's own client of the job server, with the token. Raises TargetError without ray."""
        with _ray():
            from ray.job_submission import JobSubmissionClient
        return JobSubmissionClient(self.address, headers=dict(self.target.server.headers))

    def ray(self, **options: Any) -> "ClientContext":
        """`ray.init` over the Ray Client: tasks and actors of this process then run in the cluster; `with` ends it.

        Ray reads its token from the environment of the process, so that is where it is put. Raises Unreachable when
        the port does not answer, TargetError without ray or when this process has another Ray session.
        """
        self._listens()
        if self._token is not None:
            os.environ |= {"RAY_AUTH_MODE": "token", TOKEN_VARIABLE: self._token}
        with _ray():
            import ray
        if ray.is_initialized():
            raise TargetError("this process is connected to a Ray already\n  end that first: ray.shutdown()")
        if self._token is not None:
            from ray import _raylet

            # Ray reads the way of authentication once per process, which may have been before the token was known.
            _raylet.Config.initialize("")  # type: ignore[attr-defined]
        for last in (False, False, True):
            try:
                return cast("ClientContext", ray.init(self.client_address, **options))
            except ConnectionAbortedError as error:
                # It does now and then, while gRPC has threads at work.
                if last or NOT_BORN not in str(error):
                    raise
                ray.shutdown()
        raise AssertionError("the last try returns or raises")

    def _listens(self) -> None:
        """Returns once the Ray Client's port answers; raises Unreachable when it does not."""
        host, _, port = self.client_address.removeprefix("ray://").rpartition(":")
        until = time.monotonic() + CLIENT_BIRTH
        while True:
            try:
                return socket.create_connection((host, int(port)), timeout=5).close()
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) and time.monotonic() < until:
                    time.sleep(0.2)
                    continue
                raise Unreachable(
                    f"{self.client_address} is not reachable: {error}\n"
                    "  the Ray Client listens on port 10001 of the head; a network policy must let this pod in"
                ) from None

    def __repr__(self) -> str:
        return f"Connection({self.address!r}, client_address={self.client_address!r})"


def connect(
    cluster: Cluster,
    *,
    address: str | None,
    token: str | None,
    token_file: str | None,
    ca: str | None,
    any_version: bool,
    client_address: str | None,
) -> Connection:
    """See `Cluster.connect`."""
    url = address or f"http://{head_host(cluster)}:{DASHBOARD_PORT}"
    try:
        known = token or token_at_hand(token_file)
        server = JobServer(url, ca=ca, token=known)
    except (ValueError, OSError) as error:
        raise TargetError(f"{url}: {error}") from None
    if address is None:
        _resolves(cluster, server)
    if known is None and cluster.auth.mode == "token" and (known := _of_secret(cluster)) is not None:
        server = JobServer(url, ca=ca, token=known)
    target = RayCluster(server, any_version=any_version)
    try:
        target.prepare(lambda text: None)
    except NotAllowed as error:
        raise NotAllowed(f"{error}\n{_how_to_token(cluster)}") from None
    except Incompatible as error:
        raise Incompatible(f"{error}\n  or go on at your own risk: connect(any_version=True)") from None
    host = urllib.parse.urlsplit(server.url).hostname
    return Connection(target, client_address=client_address or f"ray://{host}:{CLIENT_PORT}", token=known)


def _resolves(cluster: Cluster, server: JobServer) -> None:
    """Raises Unreachable when the head's service has no address here."""
    try:
        socket.getaddrinfo(server.host, server.port, type=socket.SOCK_STREAM)
    except OSError:
        service = f"{cluster.name}-head-svc"
        raise Unreachable(
            f"{server.host} has no address here: either no RayCluster {cluster.name} runs in namespace "
            f"{cluster.namespace}, or this is no pod of its Kubernetes cluster\n"
            f"  from outside: kubectl -n {cluster.namespace} port-forward svc/{service} {DASHBOARD_PORT}, then "
            f"connect('http://127.0.0.1:{DASHBOARD_PORT}')"
        ) from None


def _of_secret(cluster: Cluster) -> str | None:
    """The token in the cluster's Secret; None when it cannot be read from here, whatever the reason: the job server
    then says that it wants one."""
    from raytrain_eks.kube.errors import KubeError

    with contextlib.suppress(KubeError):
        from raytrain_eks.kube.connect import connect as kubernetes

        with kubernetes(namespace=cluster.namespace, tries=1) as client:
            data = client.get("v1", "Secret", cluster.auth.secret or cluster.name).get("data") or {}
            return base64.b64decode(data[SECRET_KEY]).decode().strip() if SECRET_KEY in data else None
    return None


def _how_to_token(cluster: Cluster) -> str:
    secret = cluster.auth.secret or cluster.name
    return (
        f"  it lies in the Secret {secret} of namespace {cluster.namespace} under `{SECRET_KEY}`, which this pod's "
        "account may not read; let it with `jupyterhub: {connect: true}` in the cluster file"
    )


@contextlib.contextmanager
def _ray() -> Any:
    try:
        yield
    except ImportError as error:
        if (error.name or "").split(".")[0] != "ray":
            raise
        raise TargetError("this needs Ray, of the cluster's version\n  pip install 'raytrain-eks[train]'") from None
