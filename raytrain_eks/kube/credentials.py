"""Who asks: a token, a token's file, a user and password, or a program that makes tokens (`aws eks get-token`).

lightkube has all of these but three things that EKS needs: the protocol's version `v1`, KUBERNETES_EXEC_INFO, and a new
token before the old one has expired. They are here (kubernetes.io, "client-go credential plugins").
Imported only when a connection is opened: it imports the HTTP library.
"""

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Generator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
from lightkube.config.client_adapter import BearerAuth, BearerTokenFileAuth

from raytrain_eks.kube.errors import BadConfig
from raytrain_eks.kube.kubeconfig import Access

VERSIONS = ("client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1")
EARLY = timedelta(seconds=60)
"""So long before it expires a token is renewed."""
PATIENCE_S = 60
"""Seconds that a program may take to make a token."""


def auth_of(access: Access) -> httpx2.Auth | None:
    """How requests are signed; None where certificates, or nothing, tell who asks. Raises BadConfig."""
    user = access.user
    if user.get("tokenFile"):
        return BearerTokenFileAuth(str(user["tokenFile"]))
    if user.get("token"):
        return BearerAuth(str(user["token"]))
    if user.get("exec"):
        return ExecAuth(access)
    if user.get("username") and user.get("password"):
        return httpx2.BasicAuth(str(user["username"]), str(user["password"]))
    if user.get("auth-provider"):
        raise BadConfig(
            f"context {access.context}: `auth-provider` is gone from Kubernetes since 1.26\n  use an exec plugin; for "
            "EKS `aws eks update-kubeconfig` writes one"
        )
    return None


class ExecAuth(httpx2.Auth):
    """Tokens from a program. It runs once for all requests, and again when the token expires or is refused (401)."""

    def __init__(self, access: Access):
        self._access = access
        self._plugin: Mapping[str, Any] = access.user["exec"]
        self._lock = threading.Lock()
        self._token: str | None = None
        self._expires: datetime | None = None
        if self._plugin.get("apiVersion") not in VERSIONS:
            raise BadConfig(
                f"context {access.context}: its exec plugin speaks {self._plugin.get('apiVersion')}; "
                f"{' and '.join(VERSIONS)} are known\n  `aws eks update-kubeconfig` renews the entry"
            )

    def sync_auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        """Sign the request; once more with a new token when the API does not know the old one."""
        token = self._current()
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            request.headers["Authorization"] = f"Bearer {self._current(refused=token)}"
            yield request

    def _current(self, refused: str | None = None) -> str:
        with self._lock:
            late = self._expires is not None and datetime.now(UTC) > self._expires - EARLY
            if self._token is None or late or self._token == refused:
                self._token, self._expires = self._run()
            return self._token

    def _run(self) -> tuple[str, datetime | None]:
        command, environment = self._command(), self._environment()
        name = self._plugin["command"]
        try:
            done = subprocess.run(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise BadConfig(f"context {self._access.context}: {name} made no token in {PATIENCE_S} s") from None
        except OSError as error:
            raise BadConfig(f"context {self._access.context}: {name} cannot be run: {error.strerror}") from None
        if done.returncode:
            said = done.stderr.strip() or "it says nothing"
            raise BadConfig(f"context {self._access.context}: {name} ended with {done.returncode}\n  {said}")
        return self._read(done.stdout)

    def _read(self, text: str) -> tuple[str, datetime | None]:
        name = self._plugin["command"]
        try:
            status = json.loads(text)["status"]
            token, until = status.get("token"), status.get("expirationTimestamp")
            expires = datetime.fromisoformat(until) if until else None
        except (ValueError, KeyError, TypeError, AttributeError):
            # What it wrote may hold a token, so it is not shown.
            raise BadConfig(f"context {self._access.context}: {name} wrote no ExecCredential") from None
        if not token:
            raise BadConfig(
                f"context {self._access.context}: {name} gave no token; certificates from plugins are not read"
            )
        return str(token), expires if expires is None or expires.tzinfo else expires.replace(tzinfo=UTC)

    def _command(self) -> list[str]:
        name = str(self._plugin.get("command") or "")
        if os.sep in name and self._access.folder is not None:
            program: str | None = str(self._access.folder / name)
        else:
            program = shutil.which(name)
        if program is None or not os.path.exists(program):
            hint = " ".join(str(self._plugin.get("installHint") or "install it, or put it on PATH").split())
            raise BadConfig(
                f"context {self._access.context}: there is no program `{name}`, which makes tokens\n  {hint}"
            )
        return [program, *(str(each) for each in self._plugin.get("args") or [])]

    def _environment(self) -> dict[str, str]:
        added = {str(each["name"]): str(each["value"]) for each in self._plugin.get("env") or []}
        spec: dict[str, Any] = {"interactive": False}
        if self._plugin.get("provideClusterInfo"):
            known = ("certificate-authority-data", "insecure-skip-tls-verify", "proxy-url", "tls-server-name")
            spec["cluster"] = {"server": self._access.server} | {
                key: self._access.cluster[key] for key in known if key in self._access.cluster
            }
        info = {"apiVersion": self._plugin["apiVersion"], "kind": "ExecCredential", "spec": spec}
        return dict(os.environ) | added | {"KUBERNETES_EXEC_INFO": json.dumps(info)}
