"""What a Kubernetes API can answer instead of what was asked, each with one sentence and the exit code of its verb.

A message never holds a token, a header or a body that was sent.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_FIXED = re.compile(r"immutable|updates to \w+ (are|is) forbidden|may not be (changed|updated)", re.IGNORECASE)
"""How the API says that a field cannot be changed."""


class KubeError(Exception):
    """The API did not do what was asked; the message says what, why, and what to do."""

    code = 1
    """The exit code of a verb that ends with it (see `cli.main`)."""

    def __init__(self, message: str, *, status: int = 0, reason: str = ""):
        super().__init__(message)
        self.status = status
        """HTTP status; 0 when no answer came."""
        self.reason = reason
        """Kubernetes' own reason code: `NotFound`, `Forbidden`, ..."""


class NoClient(KubeError):
    """The extra `kube` is not installed."""

    code = 2


class BadConfig(KubeError):
    """A kubeconfig that cannot be used, or none at all."""

    code = 4


class Unreachable(KubeError):
    """No answer: wrong address, no route, no trust, or an API that is down."""

    code = 4


class Unauthorized(KubeError):
    """401: the API does not know who asks."""

    code = 4


class Forbidden(KubeError):
    """403: known, and not allowed."""

    code = 4


class MissingKind(KubeError):
    """The API serves no such kind: its operator is not installed, or another version of it is."""

    code = 4


class NotFound(KubeError):
    """404: there is no such object."""

    code = 2


class Invalid(KubeError):
    """400 or 422: the API has a rule that the object breaks."""

    code = 3


class Gone(KubeError):
    """410: the list or watch asks for a past that the API no longer holds."""


@dataclass(frozen=True)
class Owned:
    """A field that somebody else's manager holds."""

    field: str
    """As the API writes it: `.spec.replicas`."""
    owner: str


class Conflict(KubeError):
    """409: others hold fields of the object (`owned`), or it changed or exists already."""

    def __init__(self, message: str, *, owned: tuple[Owned, ...] = (), reason: str = "Conflict"):
        super().__init__(message, status=409, reason=reason)
        self.owned = owned


@dataclass(frozen=True)
class Asked:
    """What a request was, for messages about it."""

    verb: str
    """As RBAC names it: get, list, watch, create, patch, delete."""
    group: str = ""
    resource: str = ""
    """Plural, with its subresource: `pods/log`."""
    namespace: str | None = None
    name: str | None = None

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f"{what} {self.name}" if self.name else what
        return f"{self.verb} {named}" + (f" in namespace {self.namespace}" if self.namespace else "")

    @property
    def rule(self) -> dict[str, list[str]]:
        """The rule of a Role (or ClusterRole) that grants it."""
        return {"apiGroups": [self.group], "resources": [self.resource], "verbs": [self.verb]}


def is_refusal(status: int, body: Mapping[str, Any]) -> bool:
    """Whether an answer means that the object breaks a rule. Server-side apply answers 500 to fields that the schema
    does not know, before any validation (kubernetes structured-merge-diff)."""
    said = str(body.get("message") or "")
    return status in (400, 413, 415, 422) or (status == 500 and "failed to create typed patch object" in said)


def of_answer(status: int, body: Mapping[str, Any], asked: Asked, server: str) -> KubeError:
    """The error that an HTTP status and a Status object mean."""
    said = " ".join(str(body.get("message") or "").split()) or f"HTTP {status}"
    reason = str(body.get("reason") or "")
    if status == 401:
        return Unauthorized(
            f"{server} does not know who asks (401)\n  the credentials are missing, wrong or expired; on EKS: "
            "`aws sts get-caller-identity` shows who you are, `aws eks update-kubeconfig` renews the entry, and an "
            "access entry of the cluster must name that role",
            status=status,
            reason=reason,
        )
    if status == 403:
        return _forbidden(said, reason, asked)
    if status == 404:
        return NotFound(f"{asked}: {said}", status=status, reason=reason)
    if status == 409:
        return _conflict(said, reason, body, asked)
    if status == 410:
        return Gone(f"{asked}: {said}", status=status, reason=reason)
    if is_refusal(status, body):
        text = f"{asked}: refused by the API\n" + _causes(said, body)
        if _FIXED.search(said):
            text += "\n  Kubernetes never changes this field: give the object another name, or delete it first"
        return Invalid(text, status=status, reason=reason)
    if status == 429 or status >= 500:
        return Unreachable(
            f"{asked}: {server} answers {status} again and again\n  {said}", status=status, reason=reason
        )
    return KubeError(f"{asked}: {said}", status=status, reason=reason)


def _forbidden(said: str, reason: str, asked: Asked) -> Forbidden:
    if "exceeded quota" in said or "admission webhook" in said or not said.count("cannot"):
        return Forbidden(f"{asked}: refused by the API\n  {said}", status=403, reason=reason)
    role = f"a Role in namespace {asked.namespace}" if asked.namespace else "a ClusterRole"
    rule = "{" + ", ".join(f"{key}: [{', '.join(each or chr(34) * 2 for each in v)}]" for key, v in asked.rule.items())
    return Forbidden(
        f"not allowed (403): {asked}\n  {said}\n  {role} that grants it needs the rule {rule}}}",
        status=403,
        reason=reason,
    )


def _conflict(said: str, reason: str, body: Mapping[str, Any], asked: Asked) -> Conflict:
    owned = []
    for cause in (body.get("details") or {}).get("causes") or []:
        if cause.get("reason") == "FieldManagerConflict":
            text = str(cause.get("message") or "")
            owner = text.partition('conflict with "')[2].partition('"')[0] or text
            owned.append(Owned(str(cause.get("field") or ""), owner))
    return Conflict(f"{asked}: {said}", owned=tuple(owned), reason=reason or "Conflict")


def _causes(said: str, body: Mapping[str, Any]) -> str:
    causes = (body.get("details") or {}).get("causes") or []
    lines = [f"  {each.get('field') or ''}: {each.get('message') or ''}" for each in causes]
    return "\n".join(lines) if lines else f"  {said}"
