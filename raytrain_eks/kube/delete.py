"""Taking objects out of a cluster, in the reverse order of applying, each rank gone before the next.

A RayCluster goes with its pods before the nodes under them do. Whatever was interrupted goes on by doing it again.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import order
from raytrain_eks.kube.errors import Conflict, Forbidden, Invalid
from raytrain_eks.kube.reasons import explain
from raytrain_eks.kube.removal import Step, resident

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 5.0


@dataclass(frozen=True)
class Removed:
    """What became of one object."""

    step: Step
    outcome: str
    """`deleted`, `kept`, `absent`; `stuck` or `failed` with a reason; `skipped` behind one that is stuck."""
    reason: str = ""
    code: int = 0
    """The exit code that a failure stands for."""

    def as_data(self) -> dict[str, Any]:
        """Plain data for YAML and JSON."""
        body = self.step.body
        metadata = body["metadata"]
        return {
            "apiVersion": body["apiVersion"],
            "kind": body["kind"],
            "namespace": metadata.get("namespace"),
            "name": metadata["name"],
            "outcome": self.outcome,
            "reason": self.reason or None,
        }


def delete(
    client: "Client", steps: Sequence[Step], *, seconds: float, wait: bool = True, say: Callable[[str], None]
) -> Iterator[Removed]:
    """Carry a plan out; one result for each step, as it comes about. `say` hears of what is waited for.

    Nothing that others stand on is deleted before those are gone; without `wait` all are asked to go at once.
    Raises KubeError for what concerns all: no answer, no one known.
    """
    end = time.monotonic() + seconds
    held, taken = "", list[Step]()
    for _, ranks in groupby(steps, key=lambda step: order.rank(str(step.body["kind"]))):
        going = []
        for step in ranks:
            waits = held and step.verb == "delete"
            first = Removed(step, "skipped", f"waits for {held}") if waits else _ask(client, step, taken)
            if step.verb == "delete" and first.outcome == "deleted":
                going.append(step)
            else:
                yield first
        taken += going
        for result in (
            _gone(client, going, end, say) if wait else (Removed(each, "deleted", each.reason) for each in going)
        ):
            held = result.step.key if result.outcome == "stuck" else held
            yield result


def _ask(client: "Client", step: Step, taken: Sequence[Step]) -> Removed:
    """Ask for an object's end, where the plan says so."""
    if step.verb != "delete":
        return Removed(step, {"keep": "kept"}.get(step.verb, step.verb), step.reason)
    metadata = step.body["metadata"]
    if step.body["kind"] == "Namespace":
        # Once more: what did not go, or came since the plan was made, would go with it.
        found = resident(client, metadata["name"], [each.body for each in taken])
        if found is not None:
            return Removed(step, "kept", f"{found} lives in it")
    workload = step.body["kind"] in order.WORKLOADS
    try:
        client.delete(
            str(step.body["apiVersion"]),
            str(step.body["kind"]),
            metadata["name"],
            metadata.get("namespace"),
            propagation="Foreground" if workload else "Background",
            uid=metadata.get("uid"),
        )
    except Conflict:
        # Another object of that name took its place since the plan was made.
        return Removed(step, "failed", "it was made anew meanwhile; repeat the command", 1)
    except (Forbidden, Invalid) as error:
        return Removed(step, "failed", str(error), error.code)
    return Removed(step, "deleted")


def _gone(client: "Client", steps: Sequence[Step], end: float, say: Callable[[str], None]) -> Iterator[Removed]:
    """Each step as soon as its object is gone; what is left at the end is stuck."""
    open_, told, pause = list(steps), "", FIRST_PAUSE_S
    while open_:
        left: list[tuple[Step, dict[str, Any]]] = []
        for step in open_:
            live = _same(client, step)
            if live is None:
                yield Removed(step, "deleted", step.reason)
            else:
                left.append((step, live))
        open_ = [step for step, _ in left]
        if not open_:
            return
        if time.monotonic() + pause > end:
            yield from (Removed(step, "stuck", held_by(live), 5) for step, live in left)
            return
        if (waiting := ", ".join(step.key for step in open_)) != told and pause > FIRST_PAUSE_S:
            told = waiting
            say(f"waiting until {waiting} is gone: {held_by(left[0][1]).splitlines()[0]}")
        time.sleep(pause)
        pause = min(pause * 1.5, LONGEST_PAUSE_S)


def _same(client: "Client", step: Step) -> dict[str, Any] | None:
    """The object as it is now; None when it is gone, or another one has its name."""
    metadata = step.body["metadata"]
    kind = (str(step.body["apiVersion"]), str(step.body["kind"]))
    live = client.find(*kind, metadata["name"], metadata.get("namespace"))
    return live if live is not None and live["metadata"].get("uid") == metadata.get("uid") else None


def held_by(live: dict[str, Any]) -> str:
    """What keeps an object that was deleted: its finalizers, as sentences."""
    if live["kind"] == "Namespace":
        conditions = (live.get("status") or {}).get("conditions") or []
        held = [str(each.get("message")) for each in conditions if each.get("status") == "True" and each.get("message")]
        return "\n".join(held) or "what is in it is still being deleted"
    lines = []
    for finalizer in live["metadata"].get("finalizers") or []:
        said = explain(finalizer, "", str(live["kind"]))
        text = said.text if said.known else "whoever set it must take it away"
        lines.append(f"{finalizer}: {text}" + (f"\n  {said.fix}" if said.fix else ""))
    return "\n".join(lines) or "the API has not let it go yet"
