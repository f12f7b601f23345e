"""How many trials run at the same time, and why. Pure: it is given what a cluster has, and calculates.

A trial's worker processes are reserved together, whole or not at all, so two trials can never hold half of what each
needs. What drives a trial or the sweep takes no CPU of Ray's, so workers are all that counts.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.cluster_queue import Kueue
from raytrain_eks.spec.problem import Problem, SpecError, counted

Resources = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Trials:
    """What one trial needs."""

    workers: int
    each: Resources
    """Of one worker process: `{"CPU": 1}`, `{"CPU": 1, "GPU": 1}`."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What there is for trials."""

    nodes: Sequence[Resources]
    """Of each node that trials may use."""
    kept: int = 0
    """CPUs that are not for workers."""
    kept_for: str = ""
    growing: int | None = None
    """Nodes of the first one's kind that the cluster may have in all; None: it has what it has."""
    quota: Resources | None = None
    """Of the queue; None: none."""
    planned: int = 0
    """Workers that the cluster was made for, also while their nodes are still on their way."""


@dataclass(frozen=True, kw_only=True)
class Concurrency:
    """How many at a time, and the sentence about it."""

    number: int
    text: str


def concurrency(needs: Trials, room: Room, *, trials: int, asked: int | None) -> Concurrency:
    """Trials at the same time. Raises SpecError for a trial that is larger than the cluster."""
    kind = next((name for name in ("GPU", "neuron_cores") if needs.each.get(name)), "CPU")
    slots, there = max(_slots(needs, room), room.planned), max(_there(room, kind), room.planned)
    fitting = slots // needs.workers
    word = {"CPU": "CPU", "GPU": "GPU", "neuron_cores": "NeuronCore"}[kind]
    has = f"{counted(int(there), word)}" + (
        f" on {counted(len(_nodes(room)), 'node')}" if len(_nodes(room)) > 1 else ""
    )
    kept = f", {room.kept} of them kept for {room.kept_for}" if room.kept and kind == "CPU" else ""
    if fitting < 1:
        least = _each(needs.each)
        rule = f"a trial of {counted(needs.workers, 'worker')} needs {least} for each, and there is room for {slots}"
        fix = f"write at most {slots} in the job" if slots else "give the cluster nodes that have this"
        problem = Problem(path="job.workers.count", rule=f"{rule}: the cluster has {has}{kept}", fix=fix)
        raise SpecError([problem])
    number, why = fitting, f"{slots} workers have room" if slots != 1 else "1 worker has room"
    if slots % needs.workers:
        why += ", and a trial runs with all of its workers or not at all"
    if room.quota is not None and (by_quota := _by_quota(needs, room.quota)) < number:
        number, why = by_quota, "the queue's quota has room for no more"
        if number < 1:
            rule = f"a trial of {counted(needs.workers, 'worker')} is larger than its queue's quota"
            raise SpecError(
                [Problem(path="job.workers.count", rule=rule, fix="take fewer workers, or raise the quota")]
            )
    if asked is not None and asked < number:
        number, why = asked, f"concurrency is {asked}"
    if trials < number:
        number, why = trials, "there are no more"
    plan = f"{trials} trials x {counted(needs.workers, 'worker')} on {has}{kept}"
    return Concurrency(number=number, text=f"{plan}: {number} at a time, because {why}")


def _nodes(room: Room) -> list[Resources]:
    grown = max((room.growing or 0) - len(room.nodes), 0)
    return [*room.nodes, *([room.nodes[0]] * grown if room.nodes else [])]


def _there(room: Room, kind: str) -> float:
    return sum(node.get(kind, 0.0) for node in _nodes(room))


def _slots(needs: Trials, room: Room) -> int:
    """Worker processes that fit on the nodes; what is kept is taken from where it costs the fewest of them."""
    each = [_fitting(needs.each, node) for node in _nodes(room)]
    if not room.kept:
        return sum(each)
    less = [_fitting(needs.each, {**node, "CPU": node.get("CPU", 0.0) - room.kept}) for node in _nodes(room)]
    return sum(each) - min((before - after for before, after in zip(each, less, strict=True)), default=0)


def _fitting(each: Resources, node: Resources) -> int:
    # Ray counts in ten-thousandths; a little more than nothing must not cost a worker.
    return max(min(math.floor(node.get(name, 0.0) / amount + 1e-6) for name, amount in each.items() if amount), 0)


def _by_quota(needs: Trials, quota: Resources) -> int:
    limits = [quota[name] / (amount * needs.workers) for name, amount in needs.each.items() if amount and name in quota]
    return math.floor(min(limits, default=math.inf) + 1e-6) if limits else 10**9


def _each(each: Resources) -> str:
    return " and ".join(f"{amount:g} {name}" for name, amount in each.items() if amount)


def grown(room: Room, plan: ClusterPlan, group: str | None) -> Room:
    """The room of a cluster that its file describes: what it may grow to, and what its queue lets it have.

    Pods are what Ray calls nodes. A queue's quota is what the file's groups have at their most, and what may be
    borrowed; with Kueue, or `autoscaling: off`, the cluster does not grow and has what it has. A group that has no pod
    yet is counted by what one will have.
    """
    found = next((each for each in plan.groups if group in (None, each.name)), None)
    if found is None:
        return room
    pod = {"CPU": float(found.num_cpus), "GPU": float(found.devices.gpus), "neuron_cores": found.devices.neuron_cores}
    pod = {name: float(amount) for name, amount in pod.items() if amount}
    growing = found.max_pods if plan.autoscales else None
    nodes = room.nodes or ([pod] if growing else [])
    quota = None
    if (queue := plan.cluster.queue) is not None:
        borrowed = queue.borrow_nodes * found.devices.pods_per_node if isinstance(queue, Kueue) else 0
        quota = {name: amount * (found.max_pods + borrowed) for name, amount in pod.items() if name != "CPU"}
    return replace(room, nodes=nodes, growing=growing, quota=quota)
