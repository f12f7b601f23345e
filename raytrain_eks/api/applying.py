"""A cluster file's objects and a Kubernetes cluster: apply, wait, compare. Stands on the room `kube`."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from raytrain_eks.api.result import Table
from raytrain_eks.kube import compare, presence, readiness
from raytrain_eks.kube.apply import Result, raise_for
from raytrain_eks.kube.apply import apply as applied
from raytrain_eks.kube.connect import connect
from raytrain_eks.kube.errors import KubeError
from raytrain_eks.spec.quantity import seconds

if TYPE_CHECKING:
    from raytrain_eks.manifests.compare import Change
    from raytrain_eks.submit.target import Say

Bodies = Sequence[Mapping[str, Any]]


class NotReady(KubeError):
    """Some objects are not ready in time, or never will be; the message says why."""


def apply(
    bodies: Bodies, where: dict[str, Any], *, wait: bool, timeout: str, dry_run: bool, force: bool, say: "Say"
) -> Table[Result]:
    """See `Cluster.apply`."""
    with connect(**where) as client:
        presence.require(client, bodies)
        results = list(applied(client, bodies, force=force, dry_run=dry_run))
        for each in results:
            say(f"{each.outcome} {each.key}" + (f": {each.reason}" if each.reason else ""))
        _raise_with_reasons(results)
        if wait and not dry_run and (left := readiness.wait(client, results, seconds(timeout), say)):
            why = [
                f"{each.key} is not ready: {state.text}" + (f"\n  {state.fix}" if state.fix else "")
                for each, state in left
            ]
            end = (
                "this does not get better by waiting"
                if any(state.hopeless for _, state in left)
                else f"after {timeout}"
            )
            raise NotReady("\n".join([*why, end]))
    return Table(results, [each.as_data() for each in results])


def _raise_with_reasons(results: Sequence[Result]) -> None:
    try:
        raise_for(results)
    except KubeError as error:
        why = [f"{each.key}: {each.reason}" for each in results if each.outcome == "failed"]
        found = KubeError("\n".join([*why, str(error)]))
        found.code = error.code
        raise found from None


def diff(bodies: Bodies, cluster: str, where: dict[str, Any], say: "Say") -> "Table[Change]":
    """See `Cluster.diff`."""
    with connect(**where) as client:
        found = list(compare.changes(client, bodies, cluster, say))
    rows = [
        {"object": each.subject, "path": each.path, "change": each.verb, "there": each.old, "here": each.new}
        for each in found
    ]
    return Table(found, rows)
