"""The same checks on every node of a Ray cluster, by one actor on each, which takes no CPU and no accelerator."""

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from raytrain_eks.checkpoint.default import default_storage
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.spec.problem import counted
from raytrain_eks.train.doctor import host, libraries, shared_storage, worker
from raytrain_eks.train.doctor.devices import Counted

ANSWER_S = 180.0
"""Seconds that a node may take for all of its checks; imports of torch from a cold disk are most of it."""
CLOCKS = 5
"""Questions about the time; the one that was answered fastest is the most exact."""


class Node:
    """On one node. Ray makes an actor of it."""

    def now(self) -> float:
        """Seconds since the epoch, by this node's clock."""
        return time.time()

    def about(self, storage: str | None) -> tuple[str, dict[str, str], str]:
        """Its name, its software, and where it keeps runs when `storage` does not say."""
        return worker.name(), libraries.software(), storage or default_storage()

    def examine(self, counted: dict[str, int], several: bool, storage: str, mark: str) -> list[dict[str, Any]]:
        """All checks of the node, as plain data."""
        found = worker.examine(counted=Counted(**counted), several_nodes=several, storage=storage, mark=mark)
        return [each.as_data() for each in found]

    def leave_mark(self, storage: str, run: str, name: str) -> None:
        """See `shared_storage.leave_mark`."""
        shared_storage.leave_mark(storage, run, name)

    def find_marks(self, storage: str, run: str, names: list[str]) -> dict[str, Any]:
        """See `shared_storage.find_marks`."""
        return shared_storage.find_marks(worker.name(), storage, run, names).as_data()

    def leave(self, storage: str, run: str) -> None:
        """Take all marks away that are seen from here."""
        with contextlib.suppress(OSError):
            shared_storage.clear(storage, run)


@dataclass(frozen=True)
class Member:
    """A node with its actor."""

    id: str
    name: str
    actor: Any
    counted: dict[str, int]
    software: dict[str, str]
    storage: str


def examine(storage: str | None, run: str, say: Callable[[str], None]) -> Iterator[Diagnosis]:
    """Every check of every node, then what only several together show. Ray is connected."""
    import ray

    alive = [node for node in ray.nodes() if node["Alive"]]
    members = []
    for node in alive:
        member, problem = _join(node, storage)
        if problem is not None:
            yield problem
        if member is not None:
            members.append(member)
    say(f"{counted(len(members), 'node')}: {', '.join(member.name for member in members)}")
    asked = {
        member.id: member.actor.examine.remote(
            member.counted, len(members) > 1, member.storage, f"{run}-{member.id[:8]}"
        )
        for member in members
    }
    for member in members:
        yield _clock(member)
    for member in members:
        yield from _answers(member, asked[member.id])
    yield from libraries.differences({member.name: member.software for member in members})
    yield from _shared(members, run)


def _join(node: dict[str, Any], storage: str | None) -> tuple[Member | None, Diagnosis | None]:
    """An actor on a node, or why there is none."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    resources, address = node["Resources"], node["NodeManagerAddress"]
    counted = {
        name: int(resources[kind])
        for name, kind in (("gpus", "GPU"), ("neuron_cores", "neuron_cores"))
        if kind in resources
    }
    strategy = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    try:
        actor = ray.remote(num_cpus=0)(Node).options(scheduling_strategy=strategy).remote()
        name, software, place = ray.get(actor.about.remote(storage), timeout=ANSWER_S)
    except (ray.exceptions.RayError, TimeoutError) as error:
        why = f"no process starts on this node: {_first(error)}"
        return None, red("worker.start", address, why, "does its image have raytrain-eks' packages? see its pod's log")
    return Member(node["NodeID"], name, actor, counted, software, place), None


def _answers(member: Member, asked: Any) -> Iterator[Diagnosis]:
    import ray

    try:
        yield from (Diagnosis.of_data(each) for each in ray.get(asked, timeout=ANSWER_S))
    except (ray.exceptions.RayError, TimeoutError) as error:
        yield red("worker.checks", member.name, f"the checks did not end: {_first(error)}", "see the log of the job")


def _clock(member: Member) -> Diagnosis:
    """The node's clock against that of the node where this runs, in a job the head's."""
    import ray

    best: tuple[float, float] | None = None
    for _ in range(CLOCKS):
        began = time.time()
        try:
            there = ray.get(member.actor.now.remote(), timeout=ANSWER_S)
        except (ray.exceptions.RayError, TimeoutError) as error:
            return yellow("worker.clock", member.name, f"was not compared: {_first(error)}", "see the log of the job")
        ended = time.time()
        measured = ((ended - began) / 2, there - (began + ended) / 2)
        best = min(best, measured) if best is not None else measured
    assert best is not None
    return host.clock(member.name, best[1], best[0], f"the clock of {worker.name()}")


def _shared(members: list[Member], run: str) -> Iterator[Diagnosis]:
    """Whether all nodes see one storage."""
    import ray

    places = {member.storage for member in members}
    if len(places) > 1:
        why = f"the nodes would keep runs in different places: {', '.join(sorted(places))}"
        yield red(
            "worker.storage.shared", counted(len(members), "node"), why, "set RAYTRAIN_STORAGE in head and groups alike"
        )
        return
    if len(members) < 2:
        if members:
            yield green("worker.storage.shared", members[0].storage, "one node, so there is nobody to share with")
        return
    place, names = members[0].storage, [member.name for member in members]
    try:
        ray.get([member.actor.leave_mark.remote(place, run, member.name) for member in members], timeout=ANSWER_S)
        found = ray.get([member.actor.find_marks.remote(place, run, names) for member in members], timeout=ANSWER_S)
        yield from map(Diagnosis.of_data, found)
    except (ray.exceptions.RayError, TimeoutError) as error:
        yield red("worker.storage.shared", place, f"not every node can write there: {_first(error)}", "see above")
    finally:
        ray.wait([member.actor.leave.remote(place, run) for member in members], num_returns=len(members), timeout=30)


def _first(error: Exception) -> str:
    """The last line of an error of Ray: its cause, without the trace above it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
