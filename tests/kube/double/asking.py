"""Requests to the double with nothing between: what a test of the protocol itself sends."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

from double.api import ADMIN, ApiDouble
from double.store import Body


def _request(
    api: ApiDouble, method: str, path: str, body: Any, content: str, token: str | None, headers: dict[str, str] | None
) -> urllib.request.Request:
    given = {"Content-Type": content, "Accept": "application/json", **(headers or {})}
    token = api.token(ADMIN) if token is None else token
    if token:
        given["Authorization"] = f"Bearer {token}"
    data = json.dumps(body).encode() if body is not None else None
    return urllib.request.Request(api.url + path, data, given, method=method)


def ask(
    api: ApiDouble,
    method: str,
    path: str,
    body: Any = None,
    *,
    content: str = "application/json",
    token: str | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, Any, Any]:
    """Status, body and headers of an answer. `token`: the administrator's unless given, empty for none."""
    request = _request(api, method, path, body, content, token, headers)
    context = ssl.create_default_context(cadata=api.authority.decode())
    try:
        with urllib.request.urlopen(request, timeout=300, context=context) as answer:
            text, status, given = answer.read(), answer.status, answer.headers
    except urllib.error.HTTPError as error:
        text, status, given = error.read(), error.code, error.headers
    is_json = given.get("Content-Type", "").startswith("application/json")
    return status, json.loads(text) if is_json else text.decode(), given


def stream(api: ApiDouble, path: str) -> Iterator[bytes]:
    """The lines of an answer as they come; ends with the answer, also when it is cut."""
    request = _request(api, "GET", path, None, "application/json", None, None)
    context = ssl.create_default_context(cadata=api.authority.decode())
    with urllib.request.urlopen(request, timeout=300, context=context) as answer:
        try:
            yield from answer
        except OSError:
            return


def events(api: ApiDouble, path: str) -> Iterator[Body]:
    """The events of a watch."""
    for line in stream(api, path):
        yield json.loads(line)
