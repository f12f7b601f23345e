"""Bringing objects into a cluster: server-side apply, one after the other, so that it can be repeated at any time.

Each object is one request that is carried out or not; whatever was interrupted goes on by doing all of it again, since
an object that is there already as it should be is not written. Objects that cost money come last, and only when all
before them went well.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import order, scaled
from raytrain_eks.kube.errors import Conflict, Forbidden, Invalid, KubeError, MissingKind, NotFound

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

MANAGED_BY, PART_OF = "app.kubernetes.io/managed-by", "app.kubernetes.io/part-of"
OURS = "raytrain-eks"
ROUNDS = 5
"""How often an object that changes under our hands is read anew."""
ESTABLISHED_S = 30
"""Seconds within which the API serves a kind that was just defined."""
_SERVERS_OWN = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")


@dataclass(frozen=True)
class Result:
    """What became of one object."""

    api_version: str
    kind: str
    namespace: str | None
    name: str
    outcome: str
    """`created`, `configured`, `unchanged`; `failed` or `skipped` with a reason."""
    reason: str = ""
    code: int = 0
    """The exit code that a failure stands for."""
    body: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The object as the API has it now."""

    @property
    def key(self) -> str:
        """`Kind/name`."""
        return f"{self.kind}/{self.name}"

    def as_data(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        names = ("api_version", "kind", "namespace", "name", "outcome")
        return {"apiVersion" if name == "api_version" else name: getattr(self, name) for name in names} | {
            "reason": self.reason or None
        }


def apply(
    client: "Client", bodies: Sequence[Mapping[str, Any]], *, force: bool = False, dry_run: bool = False
) -> Iterator[Result]:
    """One result for each object, as it comes about, in the order of applying.

    `force` takes fields and objects that others own. `dry_run` lets the API do all of it but keep nothing.
    Raises KubeError for what concerns all objects: no answer, no right to anything; what was applied stays.
    """
    failed: list[Result] = []
    lost: set[str] = set()
    made: set[str] = set()
    for body in map(client.placed, order.in_order(bodies)):
        if reason := _waits(body, failed, lost):
            yield result(body, "skipped", reason)
            continue
        try:
            found = _one(client, body, force=force, dry_run=dry_run)
        except (Conflict, Forbidden, Invalid, NotFound, MissingKind) as error:
            found = result(body, "failed", str(error), code=error.code)
            if dry_run and isinstance(error, NotFound | MissingKind) and _needs(body) & made:
                found = result(body, "created", f"not checked by the API: {_first(body, made)} is not there yet")
        if found.outcome == "failed":
            failed.append(found)
            lost |= _gives(body)
        elif found.outcome == "created":
            made |= _gives(body)
        if found.kind == "CustomResourceDefinition" and not dry_run and found.outcome != "unchanged":
            _established(client, found)
        yield found


def _waits(body: Mapping[str, Any], failed: Sequence[Result], lost: set[str]) -> str:
    """Why an object cannot be applied yet; empty when it can."""
    if without := _needs(body) & lost:
        return f"waits for {' and '.join(sorted(without))}"
    if failed and body["kind"] in order.WORKLOADS:
        return f"waits for {', '.join(each.key for each in failed)}"
    return ""


def _needs(body: Mapping[str, Any]) -> set[str]:
    """What of a bundle an object cannot be without."""
    namespace = body["metadata"].get("namespace")
    group = str(body["apiVersion"]).rpartition("/")[0]
    return {f"kind {body['kind']} of {group}"} | ({f"namespace {namespace}"} if namespace else set())


def _first(body: Mapping[str, Any], among: set[str]) -> str:
    return min(_needs(body) & among)


def _gives(body: Mapping[str, Any]) -> set[str]:
    """What other objects have with this one."""
    if body["kind"] == "Namespace":
        return {f"namespace {body['metadata']['name']}"}
    if body["kind"] == "CustomResourceDefinition":
        return {f"kind {body['spec']['names']['kind']} of {body['spec']['group']}"}
    return set()


def _established(client: "Client", made: Result) -> None:
    """Wait until the API serves what was just defined; what comes next fails by itself when it never does."""
    end = time.monotonic() + ESTABLISHED_S
    while time.monotonic() < end:
        status = client.get(made.api_version, made.kind, made.name).get("status") or {}
        if any(
            each.get("type") == "Established" and each["status"] == "True" for each in status.get("conditions") or []
        ):
            break
        time.sleep(0.2)
    client.kinds.forget()


def _one(client: "Client", body: dict[str, Any], *, force: bool, dry_run: bool) -> Result:
    try:
        sent = send(client, body, force=force, dry_run=dry_run)
    except Conflict as error:
        raise Conflict(_taken(error), owned=error.owned, reason=error.reason) from None
    # Who owns its fields may have changed nevertheless.
    same = sent.live is not None and not sent.created and meaning(sent.live) == meaning(sent.after)
    return result(body, "created" if sent.created else "unchanged" if same else "configured", body_after=sent.after)


@dataclass(frozen=True)
class Sent:
    """An object before and after its apply."""

    live: Mapping[str, Any] | None
    after: Mapping[str, Any]
    created: bool


def send(client: "Client", body: dict[str, Any], *, force: bool, dry_run: bool) -> Sent:
    """One object, server-side, with what the autoscaler wrote; read anew as often as it changes under our hands.

    Fields that others own are no conflict as long as the object stays what it is. Raises Conflict, KubeError.
    """
    metadata = body["metadata"]
    for attempt in range(1, ROUNDS + 1):
        live = client.find(body["apiVersion"], body["kind"], metadata["name"], metadata.get("namespace"))
        if not force:
            _refuse_foreign(body, live)
        try:
            return _send(client, scaled.carried(body, live), live, force=force, dry_run=dry_run)
        except Conflict as error:
            if error.owned or attempt == ROUNDS:
                raise
    raise AssertionError("the last round returns or raises")


def _send(
    client: "Client", body: dict[str, Any], live: Mapping[str, Any] | None, *, force: bool, dry_run: bool
) -> Sent:
    try:
        return Sent(live, *client.apply(body, force=force, dry_run=dry_run))
    except Conflict as error:
        found = _harmless(client, body, live, error, dry_run) if error.owned else None
        if found is None:
            raise
        return found


def _harmless(
    client: "Client", body: dict[str, Any], live: Mapping[str, Any] | None, error: Conflict, dry_run: bool
) -> Sent | None:
    """The result where others own fields and nothing of theirs would be lost; None where something would."""
    if live is None:
        return None
    forced, _ = client.apply(body, force=True, dry_run=True)
    if meaning(forced) == meaning(live):
        return Sent(live, live, False)
    if "resourceVersion" in body["metadata"] and all(scaled.yields(each) for each in error.owned):
        return Sent(live, *client.apply(body, force=True, dry_run=dry_run))
    return None


def _refuse_foreign(body: Mapping[str, Any], live: Mapping[str, Any] | None) -> None:
    """Two cluster files that render the same object would undo each other for ever. Raises Conflict."""
    owner, own = part_of(live or {}), part_of(body)
    if live is not None and owner and own and owner != own:
        raise Conflict(
            f"it belongs to the cluster file of {owner}\nleave it out of this file, or take it over: --force-conflicts"
        )


def part_of(body: Mapping[str, Any]) -> str | None:
    """The cluster file that an object of ours came from; None for others."""
    labels = (body.get("metadata") or {}).get("labels") or {}
    return str(labels[PART_OF]) if labels.get(MANAGED_BY) == OURS and labels.get(PART_OF) else None


def _taken(error: Conflict) -> str:
    if not error.owned:
        return str(error)
    lines = [f"{each.field} is {each.owner}'s" for each in error.owned]
    head = "others own what this would change:"
    return "\n".join([head, *lines, "let them keep it and leave it out here, or take it: --force-conflicts"])


def meaning(body: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what only the server writes."""
    metadata = {key: value for key, value in (body.get("metadata") or {}).items() if key not in _SERVERS_OWN}
    return {key: value for key, value in body.items() if key not in ("metadata", "status")} | {"metadata": metadata}


def result(
    body: Mapping[str, Any],
    outcome: str,
    reason: str = "",
    *,
    code: int = 0,
    body_after: Mapping[str, Any] | None = None,
) -> Result:
    """The result of an object."""
    metadata = body["metadata"]
    place = (str(body["apiVersion"]), str(body["kind"]), metadata.get("namespace"), str(metadata["name"]))
    return Result(*place, outcome, reason, code, body_after or {})


def raise_for(results: Sequence[Result]) -> None:
    """Raises KubeError, with the exit code of the first, when some objects failed."""
    failed = [each for each in results if each.outcome == "failed"]
    if failed:
        skipped = sum(each.outcome == "skipped" for each in results)
        waiting = f", {skipped} not applied for it" if skipped else ""
        error = KubeError(f"{len(failed)} of {len(results)} objects failed{waiting}; repeat the command to go on")
        error.code = failed[0].code or 1
        raise error
