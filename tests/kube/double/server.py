"""The HTTP side of the API server: from a request to an answer."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import yaml
from aiohttp import ClientSession, ClientTimeout, web
from yarl import URL

from double import discovery, podlogs, protobuf, refusal, reviews, tables
from double.access import ANONYMOUS, Access, Ask, User
from double.address import Address, parse
from double.faults import Fault, Faults
from double.kinds import Kind
from double.reading import Lists, Watches, seen
from double.store import Body, Store
from double.writes import Write, Writer

_SUBRESOURCES = {"", "status", "log", "proxy", "finalize"}
_OF_THE_HOP = {
    "authorization",
    "connection",
    "host",
    "content-length",
    "transfer-encoding",
    "upgrade",
    "date",
    "server",
}
"""Headers that a proxy does not pass on."""


@dataclass(frozen=True)
class Seen:
    """A request that came in."""

    method: str
    path: str
    """With its query."""
    verb: str
    resource: str
    name: str
    user: str
    agent: str
    headers: dict[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Server:
    """Routes requests. All state is in its parts, which a test may read and change at any time."""

    def __init__(self, store: Store):
        self.store = store
        self.writer = Writer(store)
        self.access = Access(store)
        self.faults = Faults()
        self.logs = podlogs.Logs()
        self.lists = Lists(store)
        self.watches = Watches(store)
        self.requests: list[Seen] = []
        self.backends: dict[str, str] = {}
        """What proxies lead to: `namespace/service:port` or `namespace/pod:port` -> URL."""

    def app(self) -> web.Application:
        application = web.Application(client_max_size=64 << 20)
        application.router.add_route("*", "/{path:.*}", self.answer)
        return application

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer any request."""
        address = parse(request.method, request.path, request.query)
        ask = address.ask if address else Ask("get", "", "", path=request.path)
        body = await request.read()
        user = self._user(request)
        agent = request.headers.get("User-Agent", "")
        self.requests.append(
            Seen(
                *(request.method, request.path_qs, ask.verb, ask.resource, ask.name),
                *(user.name if user else "", agent, dict(request.headers), body),
            )
        )
        fault = self.faults.take(ask.verb, ask.resource, ask.name, request.path)
        try:
            if fault and not fault.after:
                await self._fail(request, fault)
            response = await self._authorised(request, address, ask, user, body)
            if fault and fault.after:
                await self._fail(request, fault)
            return response
        except refusal.Refusal as no:
            headers = {"Retry-After": str(no.retry_after)} if no.retry_after else None
            return web.json_response(no.status, status=no.code, headers=headers)

    def _user(self, request: web.Request) -> User | None:
        """Who asks; None: with a token that is worth nothing."""
        given = request.headers.get("Authorization")
        if given is None:
            return ANONYMOUS
        return self.access.tokens.get(given.removeprefix("Bearer ").strip())

    async def _fail(self, request: web.Request, fault: Fault) -> None:
        if fault.seconds:
            await asyncio.sleep(fault.seconds)
        if fault.drop:
            if request.transport is not None:
                request.transport.abort()
            await asyncio.sleep(3600)  # Cancelled with the connection.
        if fault.code:
            reason, text = {
                429: ("TooManyRequests", "Too many requests, please try again later."),
                500: ("InternalError", "Internal error occurred: etcdserver: request timed out"),
                503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
                504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
            }.get(fault.code, ("", f"injected {fault.code}"))
            raise refusal.Refusal(fault.code, reason, text, retry_after=fault.retry_after)

    async def _authorised(
        self, request: web.Request, address: Address | None, ask: Ask, user: User | None, body: bytes
    ) -> web.StreamResponse:
        if user is None:
            raise refusal.Refusal(401, "Unauthorized", "Unauthorized")
        if not self.access.allows(user, ask):
            if address is None:
                raise refusal.Refusal(403, "Forbidden", f"forbidden: {ask.refusal(user)}")
            kind = self._kind(address)
            raise refusal.forbidden(kind, address.name, ask.refusal(user))
        if address is None:
            return self._discover(request)
        if address.group in ("authorization.k8s.io", "authentication.k8s.io"):
            sent = protobuf.review(body) if body.startswith(protobuf.MAGIC) else json.loads(body)
            return web.json_response(reviews.answer(self.access, user, address, sent), status=201)
        return await self._resource(request, address, body)

    def _discover(self, request: web.Request) -> web.Response:
        kinds, parts = self.store.kinds, request.path.strip("/").split("/")
        at_once = "APIGroupDiscoveryList" in request.headers.get("Accept", "") and len(parts) == 1
        if at_once and parts[0] in ("api", "apis"):
            body = discovery.aggregated(kinds, core=parts[0] == "api")
            return web.Response(text=json.dumps(body), headers={"Content-Type": discovery.AGGREGATED})
        found: Body | None = None
        match parts:
            case ["version"]:
                found = discovery.version()
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["api"]:
                found = discovery.core_versions()
            case ["apis"]:
                found = discovery.groups(kinds)
            case ["api", version]:
                found = discovery.resources(kinds, "", version)
            case ["apis", group]:
                found = discovery.group(kinds, group)
            case ["apis", group, version]:
                found = discovery.resources(kinds, group, version)
            case ["openapi", "v3"]:
                found = discovery.openapi_paths(kinds)
            case ["openapi", "v3", "api", version]:
                found = discovery.openapi(kinds, "", version)
            case ["openapi", "v3", "apis", group, version]:
                found = discovery.openapi(kinds, group, version)
        if found is None:
            raise refusal.no_path()
        return web.json_response(found)

    def _kind(self, address: Address) -> Kind:
        kind = self.store.kinds.find(address.group, address.version, address.plural)
        if kind is None or address.subresource not in _SUBRESOURCES:
            raise refusal.no_path()
        return kind

    async def _resource(self, request: web.Request, address: Address, body: bytes) -> web.StreamResponse:
        kind = self._kind(address)
        if address.subresource == "status" and not kind.status:
            raise refusal.no_path()
        if address.subresource == "proxy":
            return await self._proxy(request, kind, address, body)
        if request.method != "GET":
            return self._write(request, kind, address, body)
        namespace = address.namespace if kind.namespaced else ""
        if request.query.get("watch") in ("true", "1"):
            return await self.watches.serve(request, kind, address.version, namespace, address.name)
        if not address.name:
            return self._list(request, kind, address, namespace)
        found = self.store.get(kind, namespace, address.name)
        if found is None:
            raise refusal.not_found(kind, address.name)
        if address.subresource == "log":
            return await podlogs.serve(request, self.store, kind, found, self.logs)
        shown = seen(kind, address.version, found)
        if tables.wanted(request.headers.get("Accept", "")):
            shown = tables.table(kind, address.version, [shown], found["metadata"]["resourceVersion"])
        return web.json_response(shown)

    def _list(self, request: web.Request, kind: Kind, address: Address, namespace: str) -> web.Response:
        accept = request.headers.get("Accept", "")
        body = self.lists.page(kind, address.version, namespace, request.query)
        if tables.wanted(accept):
            shown = tables.table(kind, address.version, body["items"], "")
            body = {**shown, "metadata": body["metadata"]}
        elif "as=PartialObjectMetadataList" in accept.split(",")[0]:
            partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
            items = [{**partial, "metadata": item["metadata"]} for item in body["items"]]
            body = {**body, "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "items": items}
        return web.json_response(body)

    def _write(self, request: web.Request, kind: Kind, address: Address, sent: bytes) -> web.Response:
        namespace = address.namespace if kind.namespaced else ""
        content, data = _read(request, sent)
        write = _how(request, address)
        self.writer.admission.warnings = []
        status = 200
        if request.method == "POST":
            body, status = self.writer.create(kind, namespace, data, write), 201
        elif request.method == "PUT":
            body = self.writer.replace(kind, namespace, address.name, data, write)
        elif request.method == "PATCH" and content == "application/apply-patch+yaml":
            if not request.query.get("fieldManager"):
                cause = ("FieldValueRequired", "fieldManager", "Required value: is required for apply patch")
                raise refusal.invalid(kind, address.name, [cause])
            there = self.store.get(kind, namespace, address.name)
            body = self.writer.apply(kind, namespace, address.name, data, write)
            status = 200 if there else 201
        elif request.method == "PATCH":
            body = self.writer.patch(kind, namespace, address.name, content, data, write)
        elif address.name:
            body = self._deleted(kind, namespace, address.name, _options(request, data))
        else:
            return self._delete_many(request, kind, address, namespace, _options(request, data))
        headers = [("Warning", f"299 - {json.dumps(text)}") for text in self.writer.admission.warnings]
        shown = body if body["kind"] == "Status" else seen(kind, address.version, body)
        response = web.json_response(shown, status=status)
        response.headers.extend(headers)
        return response

    def _deleted(self, kind: Kind, namespace: str, name: str, options: Body) -> Body:
        body, gone = self.writer.delete(kind, namespace, name, options)
        if not gone or kind.plural in ("pods", "namespaces"):
            return body
        details = {"name": name, "group": kind.group, "kind": kind.plural, "uid": body["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}

    def _delete_many(
        self, request: web.Request, kind: Kind, address: Address, namespace: str, options: Body
    ) -> web.Response:
        listed = self.lists.page(kind, address.version, namespace, request.query)
        for item in listed["items"]:
            if self.store.get(kind, item["metadata"].get("namespace", ""), item["metadata"]["name"]) is not None:
                self.writer.delete(kind, item["metadata"].get("namespace", ""), item["metadata"]["name"], options)
        return web.json_response(listed)

    async def _proxy(self, request: web.Request, kind: Kind, address: Address, body: bytes) -> web.StreamResponse:
        """To what a service or pod serves; the client's own credentials stay here, as with the real server."""
        target = self.backends.get(f"{address.namespace}/{address.name.removeprefix('http:')}")
        if target is None:
            text = f'no endpoints available for service "{address.name}"'
            raise refusal.Refusal(503, "ServiceUnavailable", text)
        path = request.raw_path.partition("/proxy")[2]
        url = URL(f"{target}/{path.lstrip('/')}", encoded=True)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _OF_THE_HOP}
        session = ClientSession(timeout=ClientTimeout(total=None), auto_decompress=False)
        async with (
            session,
            session.request(request.method, url, headers=headers, data=body or None) as found,
        ):
            response = web.StreamResponse(status=found.status)
            for name, value in found.headers.items():
                if name.lower() not in _OF_THE_HOP:
                    response.headers[name] = value
            await response.prepare(request)
            async for part in found.content.iter_any():
                await response.write(part)
            return response


def _how(request: web.Request, address: Address) -> Write:
    query, agent = request.query, request.headers.get("User-Agent", "")
    return Write(
        manager=query.get("fieldManager") or agent.partition("/")[0][:128] or "unknown",
        subresource=address.subresource if address.subresource == "status" else "",
        dry_run=query.get("dryRun") == "All",
        validation=query.get("fieldValidation") or "Warn",
        force=query.get("force") == "true",
        version=address.version,
    )


def _read(request: web.Request, sent: bytes) -> tuple[str, Any]:
    """The type and the content of a body."""
    content = request.headers.get("Content-Type", "application/json").partition(";")[0].strip()
    if not sent:
        return content, {}
    if "protobuf" in content or "cbor" in content:
        text = f"the body of the request was in an unknown format - accepted media types include: {content}"
        raise refusal.Refusal(415, "UnsupportedMediaType", text)
    try:
        return content, json.loads(sent)
    except ValueError:
        pass
    try:
        return content, yaml.safe_load(sent)
    except yaml.YAMLError as error:
        raise refusal.bad_request(f"error decoding patch: {error}") from None


def _options(request: web.Request, data: Any) -> Body:
    """DeleteOptions from the body, or from the query."""
    options = dict(data) if isinstance(data, dict) else {}
    if request.query.get("propagationPolicy"):
        options["propagationPolicy"] = request.query["propagationPolicy"]
    if request.query.get("dryRun"):
        options["dryRun"] = [request.query["dryRun"]]
    return options
