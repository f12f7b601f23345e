"""The API double itself: a server in a thread, and the handles of a test."""

import asyncio
import ssl
import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from double import certificates
from double.kinds import Kind, Kinds, of_definition, recorded
from double.kubelet import Kubelet
from double.objects import Objects
from double.server import Server
from double.store import Body, Store

ADMIN = "admin"


class ApiDouble:
    """A Kubernetes API server on loopback, while the block lasts.

    `crds` is a folder of definitions (`../shared/crds`), served and listed as installed; without it only Kubernetes'
    own types are there. `namespaces` exist from the start. `tls`: https with a certificate of an
    authority made for it; client libraries of Kubernetes send no token without.
    """

    def __init__(self, crds: Path | None = None, *, namespaces: Iterable[str] = ("training",), tls: bool = True):
        self.kinds = Kinds()
        self.store = Store(self.kinds)
        self.server = Server(self.store)
        self.objects = Objects(self.server.writer)
        """Read, put, change and remove objects from the test, past authentication, faults and the network."""
        self.rbac = self.server.access
        self.faults = self.server.faults
        self.logs = self.server.logs
        self.backends = self.server.backends
        self.requests = self.server.requests
        self.kubelet = Kubelet(self)
        """Moves pods that no operator moves."""
        self._authority = certificates.Authority() if tls else None
        self._tokens = {ADMIN: self.rbac.token(ADMIN, "system:masters")}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="kube-double", daemon=True)
        for body, kind in recorded(crds) if crds is not None else ():
            self.install(body, kind)
        for name in ("default", "kube-system", *namespaces):
            self.objects.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def __enter__(self) -> "ApiDouble":
        self._thread.start()
        self._runner = self._run(self._start())
        port = self._runner.addresses[0][1]
        self.url = f"{'https' if self._authority else 'http'}://127.0.0.1:{port}"
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout=300)

    async def _start(self) -> web.AppRunner:
        runner = web.AppRunner(self.server.app(), shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        context: ssl.SSLContext | None = self._authority.server() if self._authority else None
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
        return runner

    @property
    def authority(self) -> bytes:
        """The certificate of the authority that signed the server's, as PEM; empty over http."""
        return self._authority.pem if self._authority else b""

    def install(self, definition: Body, kind: Kind | None = None) -> None:
        """Install a CustomResourceDefinition."""
        self.kinds.add(kind or of_definition(definition))
        definitions = self.kinds.named("customresourcedefinitions")
        conditions = [{"type": name, "status": "True"} for name in ("NamesAccepted", "Established")]
        self.server.writer.restore(definitions, {**definition, "status": {"conditions": conditions}})

    def token(self, user: str = ADMIN) -> str:
        """A bearer token of a user, always the same."""
        if user not in self._tokens:
            self._tokens[user] = self.rbac.token(user)
        return self._tokens[user]

    def kubeconfig(self, folder: Path, *, user: str = ADMIN, namespace: str = "training", plugin: bool = False) -> Path:
        """Write a kubeconfig for a user, with one context of the name `double`; its path. `plugin`: the token comes
        from a program, as on EKS."""
        cluster: Body = {"server": self.url}
        if self._authority:
            cluster["certificate-authority-data"] = self._authority.encoded
        credentials: Body = {"token": self.token(user)}
        if plugin:
            credentials = {"exec": self._plugin(folder, user)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "double", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "double", "context": {"cluster": "double", "user": user, "namespace": namespace}}],
            "current-context": "double",
        }
        file = folder / f"kubeconfig-{user.replace(':', '-')}.yaml"
        file.touch(mode=0o600)
        file.write_text(yaml.safe_dump(config))
        return file

    def _plugin(self, folder: Path, user: str) -> Body:
        program = folder / "get-token"
        status = f'{{"token": "{self.token(user)}"}}'
        credential = (
            f'{{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1", "status": {status}}}'
        )
        program.touch(mode=0o700)
        program.write_text(f"#!/bin/sh\necho '{credential}'\n")
        return {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(program),
            "args": [],
            "interactiveMode": "Never",
            "provideClusterInfo": False,
        }

    def event(
        self, about: Body, reason: str, message: str, *, type: str = "Warning", source: str = "", count: int = 1
    ) -> Body:
        """Record an Event about an object, as its controllers do."""
        meta = about["metadata"]
        time = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        involved = {"kind": about["kind"], "apiVersion": about["apiVersion"], "name": meta["name"]}
        involved |= {key: meta[key] for key in ("namespace", "uid", "resourceVersion") if key in meta}
        return self.objects.put(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"generateName": f"{meta['name']}.", "namespace": meta.get("namespace", "default")},
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "type": type,
                "count": count,
                "firstTimestamp": time,
                "lastTimestamp": time,
                "source": {"component": source or "default-scheduler"},
                "reportingComponent": source or "default-scheduler",
                "reportingInstance": "",
            }
        )

    def compact(self) -> None:
        """Forget all history: watches and pages from before get 410 Gone."""
        self.store.compact()

    def watches(self, what: str) -> int:
        """Do something to every open watch: `drop`, `close`, `expire` or `bookmark`; how many there were."""
        there = list(self.server.watches.open)
        for watch in there:
            watch.command(what)
        return len(there)

    def clear(self) -> None:
        """As it was at first: no objects but the namespaces and definitions, no watches, faults, denials, logs or
        requests."""
        self.watches("drop")
        end = time.monotonic() + 10
        while self.server.watches.open and time.monotonic() < end:
            time.sleep(0.002)
        self.faults.clear()
        self.rbac.allow()
        self.rbac.by_roles.clear()
        self.logs.clear()
        self.requests.clear()
        self.backends.clear()
        with self.store.lock:
            for kind, body in self.store.everything():
                if kind.plural not in ("namespaces", "customresourcedefinitions"):
                    self.store.remove(kind, body)
