"""Who asks, and what he may do: bearer tokens, denials set by a test, and RBAC as the stored roles say it."""

import fnmatch
import secrets
from dataclasses import dataclass
from typing import Any

from double.kinds import Kind
from double.store import Body, Store

RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True)
class User:
    name: str
    groups: tuple[str, ...] = ("system:authenticated",)


ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


@dataclass(frozen=True)
class Ask:
    """What somebody wants to do. `resource` has the subresource behind a slash: `pods/log`."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""
    path: str = ""
    """Of a request that is for no resource; the rest is empty then."""

    def refusal(self, user: User) -> str:
        """Why the API server says no."""
        if self.path:
            return f'User "{user.name}" cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return f'User "{user.name}" cannot {self.verb} resource "{self.resource}" in API group "{self.group}" {where}'


@dataclass(frozen=True)
class Denial:
    """A rule of a test's: shell patterns of what is refused."""

    user: str = "*"
    verb: str = "*"
    group: str = "*"
    resource: str = "*"
    namespace: str = "*"
    name: str = "*"

    def covers(self, user: User, ask: Ask) -> bool:
        pairs = (
            (user.name, self.user),
            (ask.verb, self.verb),
            (ask.group, self.group),
            (ask.resource, self.resource),
            (ask.namespace, self.namespace),
            (ask.name, self.name),
        )
        return not ask.path and all(fnmatch.fnmatchcase(given, pattern) for given, pattern in pairs)


class Access:
    """Tokens and rights. By default every known user may do everything."""

    def __init__(self, store: Store):
        self.store = store
        self.tokens: dict[str, User] = {}
        self.denials: list[Denial] = []
        self.by_roles: set[str] = set()
        """Users who may do only what the stored Roles and ClusterRoles bound to them allow."""

    def token(self, name: str, *groups: str) -> str:
        """A new token of a user."""
        token = f"token-{secrets.token_hex(16)}"
        self.tokens[token] = User(name, (*groups, "system:authenticated"))
        return token

    def revoke(self, user: str) -> None:
        """The user's tokens are worth nothing from now on: 401."""
        self.tokens = {token: known for token, known in self.tokens.items() if known.name != user}

    def deny(self, **patterns: str) -> Denial:
        """Refuse what matches (fields of `Denial`), until `allow`."""
        denial = Denial(**patterns)
        self.denials.append(denial)
        return denial

    def allow(self, denial: Denial | None = None) -> None:
        """Take a denial back, or all."""
        self.denials = [] if denial is None else [one for one in self.denials if one != denial]

    def obey_roles(self, user: str) -> None:
        """The user may from now on do only what the stored roles allow; a service account is
        `system:serviceaccount:NAMESPACE:NAME`."""
        self.by_roles.add(user)

    def allows(self, user: User, ask: Ask) -> bool:
        if any(denial.covers(user, ask) for denial in self.denials):
            return False
        if user is ANONYMOUS:
            return ask.path in ("/version", "/healthz", "/livez", "/readyz")
        if user.name not in self.by_roles or ask.group in ("authorization.k8s.io", "authentication.k8s.io"):
            return True
        return any(_rule_allows(rule, ask) for rule in self._rules(user, ask.namespace)) or bool(ask.path)

    def rules(self, user: User, namespace: str) -> list[Body]:
        """The rules that apply to a user in a namespace, for SelfSubjectRulesReview."""
        if user.name in self.by_roles:
            return self._rules(user, namespace)
        return [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]

    def _rules(self, user: User, namespace: str) -> list[Body]:
        roles, cluster = self._kind("roles"), self._kind("clusterroles")
        bindings = [(cluster, body) for body in self.store.of(self._kind("clusterrolebindings"))]
        if namespace:
            bindings += [(roles, body) for body in self.store.of(self._kind("rolebindings"), namespace)]
        found: list[Body] = []
        for kind, body in bindings:
            if any(_is_subject(user, subject) for subject in body.get("subjects") or ()):
                ref = body["roleRef"]
                of = cluster if ref["kind"] == "ClusterRole" else kind
                role = self.store.get(of, namespace if of.namespaced else "", ref["name"])
                found += (role or {}).get("rules") or []
        return found

    def _kind(self, plural: str) -> Kind:
        kind = self.store.kinds.find(RBAC, "v1", plural)
        assert kind is not None
        return kind


def _is_subject(user: User, subject: Body) -> bool:
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace')}:{name}"
    return user.name == name if kind == "User" else name in user.groups


def _rule_allows(rule: Body, ask: Ask) -> bool:
    def has(key: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(key) or ()))

    if ask.path:
        return has("verbs", ask.verb) and any(fnmatch.fnmatch(ask.path, one) for one in rule.get("nonResourceURLs", ()))
    names: list[Any] = rule.get("resourceNames") or []
    of = has("resources", ask.resource) or (
        "/" in ask.resource and f"*/{ask.resource.partition('/')[2]}" in rule["resources"]
    )
    return has("verbs", ask.verb) and has("apiGroups", ask.group) and of and (not names or ask.name in names)
