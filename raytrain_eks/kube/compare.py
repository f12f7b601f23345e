"""What applying objects would change in a cluster, by meaning.

The API itself says what an object would be (a dry run of server-side apply), so that what it fills in, what webhooks
add and what other managers own is in both pictures and no difference.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import order, scaled
from raytrain_eks.kube.apply import meaning, part_of
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
    metadata = body["metadata"]
    try:
        live = client.find(body["apiVersion"], body["kind"], metadata["name"], metadata.get("namespace"))
    except MissingKind as error:
        say(str(error))
        live = None
    if live is None:
        yield Change(subject(body), "", new=body, verb="added")
        return
    owner, own = part_of(live), part_of(body)
    if owner and own and owner != own:
        say(f"{subject(body)} belongs to the cluster file of {owner}: apply takes it with --force-conflicts only")
    try:
        after = _after(client, scaled.carried(body, live), say)
    except NotFound:
        yield Change(subject(body), "", new=body, verb="added")
        return
    yield from trees(meaning(live), meaning(after), subject(body))


def _after(client: "Client", body: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    try:
        return client.apply(body, dry_run=True)[0]
    except Conflict as error:
        for each in error.owned:
            if not (each.field == scaled.FIELD and scaled.writes(each.owner)):
                say(f"{subject(body)} {each.field} is {each.owner}'s: apply takes it with --force-conflicts only")
        return client.apply(body, force=True, dry_run=True)[0]


def subject(body: Mapping[str, Any]) -> str:
    """`Kind/namespace/name`."""
    metadata = body["metadata"]
    return "/".join(filter(None, [str(body["kind"]), metadata.get("namespace"), str(metadata["name"])]))
