"""Requests to the API: signed, over verified TLS, repeated where that is safe, errors as sentences.

Repeated with growing, random pauses are 429 (after its Retry-After), 500, 502, 503, 504 and broken connections; a
request that would do something twice only when it was surely not carried out (429, no connection).
Imported only when a connection is opened: it imports lightkube.
"""

import json
import random
import ssl
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
import msgspec
from lightkube.config import client_adapter, kubeconfig, models
from lightkube.core.exceptions import ConfigError

from raytrain_eks.kube.credentials import auth_of
from raytrain_eks.kube.errors import Asked, BadConfig, KubeError, Unreachable, is_refusal, of_answer
from raytrain_eks.kube.kubeconfig import Access

CONNECT_S, ANSWER_S = 10.0, 60.0
"""The API itself ends a request after 60 s (kube-apiserver `--request-timeout`)."""
PAUSE_S, LONGEST_PAUSE_S, LONGEST_WAIT_S = 0.2, 5.0, 30.0
CONNECTS = 4
"""How often a connection is tried."""
AGAIN = frozenset([429, 500, 502, 503, 504])
_BROKEN = (httpx2.NetworkError, httpx2.TimeoutException, httpx2.RemoteProtocolError)


class Transport:
    """One connection pool to one API, for any number of threads."""

    def __init__(self, access: Access, *, tries: int = 6):
        self.access = access
        self.tries = tries
        user = {key: access.user[key] for key in access.user if key.startswith("client-")}
        try:
            config = kubeconfig.SingleConfig(
                access.context,
                models.Context(cluster=access.context, namespace=access.namespace),
                msgspec.convert(_cluster(access), models.Cluster),
                msgspec.convert(user, models.User),
            )
            parameters = client_adapter.ConnectionParams(
                timeout=httpx2.Timeout(ANSWER_S, connect=CONNECT_S), proxy=access.cluster.get("proxy-url")
            )
            self._http = client_adapter.Client(config, parameters)
        except (OSError, ValueError, ImportError, httpx2.InvalidURL, msgspec.ValidationError, ConfigError) as error:
            # ssl.SSLError is an OSError; none of them quotes a key. A SOCKS proxy asks for a package that is not there.
            what = "certificates, address or proxy cannot be used"
            raise BadConfig(f"context {access.context}: {what}: {error}") from None
        # Where certificates tell who asks, an Auth that adds nothing: none at all would look into ~/.netrc.
        self._http.auth = auth_of(access) or httpx2.Auth()
        theirs = [each for each in self._http.headers.multi_items() if each[0].lower() != "user-agent"]
        self._http.headers = httpx2.Headers([*theirs, *_headers(access)])
        name = access.cluster.get("tls-server-name")
        self._extensions = {"sni_hostname": str(name)} if name else {}

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def send(
        self,
        method: str,
        path: str,
        asked: Asked,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        safe: bool = True,
    ) -> tuple[int, dict[str, Any]]:
        """HTTP status and body of an answer that is no error. `safe`: doing it twice is doing it once.

        Raises KubeError.
        """
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode()
        headers = {"Accept": "application/json"} | ({"Content-Type": content_type} if content is not None else {})
        for attempt in range(1, self.tries + 1):
            request = self._request(method, path, params, headers, content)
            last = attempt == self.tries
            try:
                response = self._http.send(request)
            except ConfigError as error:
                raise BadConfig(f"context {self.access.context}: {error}") from None
            except (httpx2.LocalProtocolError, UnicodeEncodeError):
                # Its own text would quote the header, which is a secret.
                why = "the token holds characters that no request can carry"
                raise BadConfig(f"context {self.access.context}: {why}") from None
            except httpx2.HTTPError as error:
                # Who does not even listen is not there; who answers with trouble may be better in a while.
                if last or (attempt >= CONNECTS and _never_sent(error)) or not _repeatable(error, safe):
                    raise self._unreachable(error, asked) from None
                time.sleep(_pause(attempt))
                continue
            answer = _decoded(response)
            again = response.status_code in AGAIN and not is_refusal(response.status_code, answer)
            if again and not last and (safe or response.status_code == 429):
                time.sleep(_pause(attempt, response.headers.get("Retry-After")))
                continue
            if response.status_code >= 300:
                raise of_answer(response.status_code, answer, asked, self.access.server)
            return response.status_code, answer
        raise AssertionError("the last try returns or raises")

    def lines(
        self, path: str, asked: Asked, *, params: Mapping[str, Any] | None = None, silence_s: float = ANSWER_S
    ) -> Iterator[str]:
        """The lines of an answer as they come, with no repetition. A broken connection raises ConnectionError.

        `silence_s`: seconds without a byte after which it counts as broken. Raises KubeError for an answer that is an
        error.
        """
        request = self._request("GET", path, params, {"Accept": "application/json, */*"}, None)
        request.extensions["timeout"] = httpx2.Timeout(silence_s, connect=CONNECT_S).as_dict()
        try:
            response = self._http.send(request, stream=True)
            try:
                if response.status_code >= 300:
                    response.read()
                    raise of_answer(response.status_code, _decoded(response), asked, self.access.server)
                yield from _split(response.iter_bytes())
            finally:
                response.close()
        except ConfigError as error:
            raise BadConfig(f"context {self.access.context}: {error}") from None
        except httpx2.HTTPError as error:
            if isinstance(error, _BROKEN) and not _untrusted(error):
                raise ConnectionError(str(error) or type(error).__name__) from None
            raise self._unreachable(error, asked) from None

    @contextmanager
    def passing(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str],
        content: bytes | Iterable[bytes] | None = None,
        silence_s: float = ANSWER_S,
    ) -> Iterator[httpx2.Response]:
        """What something behind the API answers, body unread, whatever its status: `services/proxy` and the like. Sent
        once. A broken connection raises ConnectionError, also while the body is read."""
        request = self._http.build_request(
            method, path, headers=dict(headers), content=content, extensions=dict(self._extensions)
        )
        request.extensions["timeout"] = httpx2.Timeout(silence_s, connect=CONNECT_S).as_dict()
        try:
            response = self._http.send(request, stream=True)
            try:
                yield response
            finally:
                response.close()
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise ConnectionError(str(error) or type(error).__name__) from None

    def _request(
        self,
        method: str,
        path: str,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        content: bytes | None,
    ) -> httpx2.Request:
        given = {key: value for key, value in (params or {}).items() if value is not None}
        return self._http.build_request(
            method, path, params=given, headers=dict(headers), content=content, extensions=dict(self._extensions)
        )

    def _unreachable(self, error: httpx2.HTTPError, asked: Asked) -> KubeError:
        server, what = self.access.server, str(error) or type(error).__name__
        if _untrusted(error):
            return Unreachable(
                f"{server} is not trusted: {what}\n  the kubeconfig's `certificate-authority-data` must be this API's; "
                "on EKS `aws eks update-kubeconfig` writes it"
            )
        if isinstance(error, httpx2.ReadTimeout):
            return Unreachable(f"{asked}: {server} gave no answer in {ANSWER_S:.0f} s")
        return Unreachable(
            f"{server} cannot be reached: {what}\n  context {self.access.context}; a private EKS endpoint needs its "
            "VPC or VPN, and a stopped cluster a start"
        )


def _cluster(access: Access) -> dict[str, Any]:
    """The kubeconfig's cluster, as far as lightkube reads it."""
    known = ("certificate-authority", "certificate-authority-data", "insecure-skip-tls-verify")
    return {"server": access.server} | {key: access.cluster[key] for key in known if access.cluster.get(key)}


def _headers(access: Access) -> list[tuple[str, str]]:
    from raytrain_eks import __version__

    headers = [("User-Agent", f"raytrain-eks/{__version__}")]
    if access.user.get("as"):
        headers.append(("Impersonate-User", str(access.user["as"])))
        headers += [("Impersonate-Group", str(group)) for group in access.user.get("as-groups") or []]
    return headers


def _repeatable(error: httpx2.HTTPError, safe: bool) -> bool:
    if _untrusted(error):
        return False
    return _never_sent(error) or (safe and isinstance(error, _BROKEN))


def _never_sent(error: httpx2.HTTPError) -> bool:
    return isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)


def _untrusted(error: BaseException | None) -> bool:
    """Whether TLS verification is what failed."""
    while error is not None:
        if isinstance(error, ssl.SSLError) or "CERTIFICATE_VERIFY_FAILED" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def _pause(attempt: int, retry_after: str | None = None) -> float:
    """Seconds before the next try: what the API asks for, or a random part of a time that doubles."""
    longest = min(PAUSE_S * 2**attempt, LONGEST_PAUSE_S)
    if retry_after is not None and retry_after.strip().isdigit():
        return min(float(retry_after), LONGEST_WAIT_S) + random.uniform(0, PAUSE_S)
    return random.uniform(longest / 4, longest)


def _decoded(response: httpx2.Response) -> dict[str, Any]:
    try:
        found = json.loads(response.content)
    except ValueError:
        return {"message": response.text[:500]}
    return found if isinstance(found, dict) else {"message": str(found)[:500]}


def _split(parts: Iterator[bytes]) -> Iterator[str]:
    """Lines by `\\n` alone: a log may hold other characters that Python counts as ends of lines."""
    rest = b""
    for part in parts:
        *whole, rest = (rest + part).split(b"\n") if rest else part.split(b"\n")
        for line in whole:
            yield line.decode("utf-8", errors="replace")
    if rest:
        yield rest.decode("utf-8", errors="replace")
