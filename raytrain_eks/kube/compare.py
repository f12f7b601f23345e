"""What applying objects would change in a cluster, by meaning.

The API itself says what an object would be (a dry run of server-side apply), so that what it fills in, what webhooks
add and what other managers own is in both pictures and no difference.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import order
from raytrain_eks.kube.apply import Sent, meaning, send
from raytrain_eks.kube.errors import Conflict, MissingKind, NotFound
from raytrain_eks.kube.owned import identity, owned
from raytrain_eks.manifests.compare import Change, trees

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client


def changes(
    client: "Client", bodies: Sequence[Mapping[str, Any]], cluster: str | None, say: Callable[[str], None]
) -> Iterator[Change]:
    """What `apply` would do to each object, and objects of the same cluster file that it would leave behind.

    `say` hears of fields that others own, and of what could not be looked at. Raises KubeError.
    """
    kept = set()
    for body in order.in_order(bodies):
        placed = client.placed(body)
        kept.add(identity(placed))
        yield from _one(client, placed, say)
    if cluster is not None:
        for left in owned(client, cluster, lambda error: say(str(error))):
            if identity(left) not in kept and not left["metadata"].get("deletionTimestamp"):
                yield Change(subject(left), "", old=meaning(left), verb="removed")


def _one(client: "Client", body: dict[str, Any], say: Callable[[str], None]) -> Iterator[Change]:
    try:
        sent = _sent(client, body, say)
    except (MissingKind, NotFound) as error:
        if isinstance(error, MissingKind):
            say(str(error))
        yield Change(subject(body), "", new=body, verb="added")
        return
    if sent.live is None:
        yield Change(subject(body), "", new=body, verb="added")
    else:
        yield from trees(meaning(sent.live), meaning(sent.after), subject(body))


def _sent(client: "Client", body: dict[str, Any], say: Callable[[str], None]) -> Sent:
    """What an apply would make of an object, and a word on what it would take from others."""
    try:
        return send(client, body, force=False, dry_run=True)
    except Conflict as error:
        for each in error.owned:
            say(f"{subject(body)} {each.field} is {each.owner}'s: apply takes it with --force-conflicts only")
        if not error.owned:
            say(f"{subject(body)}: {str(error).splitlines()[0]}: apply takes it with --force-conflicts only")
        return send(client, body, force=True, dry_run=True)


def subject(body: Mapping[str, Any]) -> str:
    """`Kind/namespace/name`."""
    metadata = body["metadata"]
    return "/".join(filter(None, [str(body["kind"]), metadata.get("namespace"), str(metadata["name"])]))
