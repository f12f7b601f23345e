"""What an API serves: kinds by group and version, asked for once (discovery, `GET /apis/GROUP/VERSION`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from raytrain_eks.kube.errors import Asked, MissingKind, NotFound

if TYPE_CHECKING:
    from raytrain_eks.kube.transport import Transport


@dataclass(frozen=True)
class Kind:
    """A kind as the API serves it."""

    api_version: str
    kind: str
    plural: str
    namespaced: bool
    verbs: frozenset[str] = frozenset()

    @property
    def group(self) -> str:
        """Empty for the core group."""
        return self.api_version.rpartition("/")[0]

    def path(self, namespace: str | None, name: str | None = None, subresource: str | None = None) -> str:
        """Where the API serves it. A name is one step of the path, whatever it holds."""
        steps = ["apis" if self.group else "api", self.api_version]
        steps += ["namespaces", quote(namespace, safe="")] if namespace and self.namespaced else []
        steps += [self.plural, *(quote(step, safe="") for step in (name, subresource) if step is not None)]
        return "/" + "/".join(steps)

    def asked(self, verb: str, namespace: str | None, name: str | None = None, subresource: str = "") -> Asked:
        """The request, for messages about it."""
        plural = f"{self.plural}/{subresource}" if subresource else self.plural
        return Asked(verb, self.group, plural, namespace if self.namespaced else None, name)


class Kinds:
    """The kinds of one API, each group and version asked for when it is first needed, then remembered."""

    def __init__(self, transport: "Transport"):
        self._transport = transport
        self._known: dict[str, dict[str, Kind] | None] = {}

    def find(self, api_version: str, kind: str) -> Kind:
        """The kind. Raises MissingKind, with the versions that there are."""
        served = self.served(api_version)
        found = (served or {}).get(kind)
        if found is None:
            raise MissingKind(self._missing(api_version, kind, served is not None))
        return found

    def served(self, api_version: str) -> dict[str, Kind] | None:
        """The kinds of a group and version by name; None when the API has no such version."""
        if api_version not in self._known:
            path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
            try:
                resources = self._get(path).get("resources") or []
            except NotFound:
                self._known[api_version] = None
            else:
                kinds = [_kind(api_version, each) for each in resources if "/" not in each["name"]]
                self._known[api_version] = {each.kind: each for each in kinds}
        return self._known[api_version]

    def versions(self, group: str) -> Sequence[str]:
        """The versions of a group, the preferred one first; none when there is no such group."""
        try:
            answer = self._get(f"/apis/{quote(group, safe='')}")
        except NotFound:
            return []
        preferred = (answer.get("preferredVersion") or {}).get("version")
        return sorted((each["version"] for each in answer.get("versions") or []), key=lambda name: name != preferred)

    def forget(self) -> None:
        """Ask anew, after CustomResourceDefinitions were applied."""
        self._known.clear()

    def _missing(self, api_version: str, kind: str, version_is_there: bool) -> str:
        server = self._transport.access.server
        group, _, version = api_version.rpartition("/")
        others = [each for each in (self.versions(group) if group else []) if each != version]
        if version_is_there:
            return f"{server} serves {api_version}, but no {kind} in it"
        if others:
            return f"{server} has no {kind} of {api_version}; of {group} it serves {', '.join(others)}"
        return f"{server} has no {kind} of {api_version}: what defines it is not installed"

    def _get(self, path: str) -> dict[str, Any]:
        return self._transport.send("GET", path, Asked("get", resource=path))[1]


def _kind(api_version: str, served: dict[str, Any]) -> Kind:
    verbs = frozenset(served.get("verbs") or ())
    return Kind(api_version, served["kind"], served["name"], bool(served.get("namespaced")), verbs)
