"""What the API server answers when it refuses: a `Status` object, with the texts of the real one."""

from typing import Any

from double.kinds import Kind

Body = dict[str, Any]


class Refusal(Exception):
    """A request that is refused. `status` is the body of the answer."""

    def __init__(self, code: int, reason: str, message: str, *, details: Body | None = None, retry_after: int = 0):
        super().__init__(message)
        self.code = code
        self.retry_after = retry_after
        details = dict(details or {})
        if retry_after:
            details["retryAfterSeconds"] = retry_after
        self.status: Body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        self.status |= {"message": message} | ({"reason": reason} if reason else {})
        self.status |= ({"details": details} if details else {}) | {"code": code}


def _details(kind: Kind, name: str) -> Body:
    found = {"name": name, "group": kind.group, "kind": kind.plural}
    return {key: value for key, value in found.items() if value}


def not_found(kind: Kind, name: str) -> Refusal:
    return Refusal(404, "NotFound", f'{kind.resource} "{name}" not found', details=_details(kind, name))


def no_path() -> Refusal:
    return Refusal(404, "NotFound", "the server could not find the requested resource", details={})


def exists(kind: Kind, name: str) -> Refusal:
    return Refusal(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', details=_details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> Refusal:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Refusal(409, "Conflict", message, details=_details(kind, name))


def modified(kind: Kind, name: str) -> Refusal:
    """The resourceVersion that was sent is not the newest."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def forbidden(kind: Kind, name: str, why: str) -> Refusal:
    of = f'{kind.resource} "{name}"' if name else kind.resource
    return Refusal(403, "Forbidden", f"{of} is forbidden: {why}", details=_details(kind, name))


def bad_request(message: str) -> Refusal:
    return Refusal(400, "BadRequest", message)


def expired(message: str) -> Refusal:
    return Refusal(410, "Expired", message)


def invalid(kind: Kind, name: str, causes: list[tuple[str, str, str]]) -> Refusal:
    """422, with causes as (reason, field, message)."""
    texts = [f"{field}: {message}" if field else message for _, field, message in causes]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {"name": name, "group": kind.group, "kind": kind.name}
    details["causes"] = [{"reason": reason, "message": message, "field": field} for reason, field, message in causes]
    return Refusal(422, "Invalid", f'{kind.qualified} "{name}" is invalid: {text}', details=details)
