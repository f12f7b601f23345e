"""What a request's address says: which resource, where, which verb."""

from collections.abc import Mapping
from dataclasses import dataclass

from double.access import Ask

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class Address:
    """A request for a resource."""

    group: str
    version: str
    plural: str
    namespace: str
    name: str
    subresource: str
    verb: str

    @property
    def ask(self) -> Ask:
        resource = f"{self.plural}/{self.subresource}" if self.subresource else self.plural
        return Ask(self.verb, self.group, resource, self.namespace, self.name)


def parse(method: str, path: str, query: Mapping[str, str]) -> Address | None:
    """The address; None for one that is for no resource (discovery, version)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    elif rest[0] == "namespaces" and len(rest) > 1:
        namespace = rest[1]
    name = rest[1] if len(rest) > 1 else ""
    subresource = rest[2] if len(rest) > 2 else ""
    verb = _VERBS.get(method, method.lower())
    if method == "GET" and not name:
        verb = "watch" if query.get("watch") in ("true", "1") else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    return Address(group, version, rest[0], namespace, name, subresource, verb)
