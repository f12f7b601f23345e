"""The queue of the file: whether it is there and open, and whether its quota could ever admit a group."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, condition, place
from raytrain_eks.manifests.queues import KUEUE
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_queue import Kueue, Volcano
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

VOLCANO = "scheduling.volcano.sh/v1beta1"
PENDING = 1
"""Workloads that wait in a ClusterQueue before it is said."""


def examine(look: Look) -> Iterator[Diagnosis]:
    """Nothing without a queue in the file."""
    queue = look.plan.cluster.queue if look.plan is not None else None
    if isinstance(queue, Volcano) and look.client.serves(VOLCANO, "Queue"):
        yield from volcano(look, queue)
    elif isinstance(queue, Kueue) and look.client.serves(KUEUE, "LocalQueue"):
        yield from kueue(look, queue)


def wanted(plan: ClusterPlan) -> dict[str, int]:
    """Accelerator resource -> how many all groups have at their most."""
    found: dict[str, int] = {}
    for group in plan.groups:
        for name, count in group.devices.resources:
            found[name] = found.get(name, 0) + count * group.max_pods
    return found


def volcano(look: Look, queue: Volcano) -> Iterator[Diagnosis]:
    """Volcano's Queue."""
    found = look.client.find(VOLCANO, "Queue", queue.name)
    id, where = "queues.volcano", f"Queue {queue.name}"
    if found is None:
        yield _absent(id, where, look.brings("Queue", queue.name))
        return
    state = (found.get("status") or {}).get("state") or "Open"
    if state != "Open":
        yield red(id, where, f"the queue is {state}: nothing starts in it", "vcctl queue operate --action open")
        return
    capability = (found.get("spec") or {}).get("capability")
    yield _quota(look, id, where, {name: _amount(value) for name, value in (capability or {}).items()})


def kueue(look: Look, queue: Kueue) -> Iterator[Diagnosis]:
    """LocalQueue, the ClusterQueue behind it, and its flavors."""
    local = look.client.find(KUEUE, "LocalQueue", queue.name, look.namespace)
    id, where = "queues.kueue", f"LocalQueue {look.namespace}/{queue.name}"
    if local is None:
        yield _absent(id, where, look.brings("LocalQueue", queue.name))
        return
    name = str((local.get("spec") or {}).get("clusterQueue") or "")
    behind = look.client.find(KUEUE, "ClusterQueue", name)
    if behind is None:
        yield red(id, where, f"its ClusterQueue {name} does not exist", "apply it, or name another one")
        return
    for each in (behind, local):
        status, why = condition(each, "Active")
        if status == "False":
            fix = "its flavors, checks and cohort must exist; kubectl describe it"
            yield red(id, place(each), f"it is not active: {why}", fix)
            return
    yield _quota(look, id, place(behind), quotas(behind))
    waiting = int((behind.get("status") or {}).get("pendingWorkloads") or 0)
    if waiting >= PENDING:
        yield yellow(id, place(behind), f"{waiting} workloads wait in it already", "a job comes after them")


def quotas(cluster_queue: Body) -> dict[str, Decimal]:
    """Resource -> what all flavors of a ClusterQueue have together, borrowing included where a limit is written."""
    found: dict[str, Decimal] = {}
    for group in (cluster_queue.get("spec") or {}).get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for resource in flavor.get("resources") or []:
                amount = _amount(resource.get("nominalQuota")) + _amount(resource.get("borrowingLimit"))
                found[resource["name"]] = found.get(resource["name"], Decimal(0)) + amount
    return found


def _quota(look: Look, id: str, where: str, have: dict[str, Decimal]) -> Diagnosis:
    """Accelerators of the file against a queue's; a Volcano queue limits only what it names, Kueue covers all."""
    assert look.plan is not None
    covers = id == "queues.kueue"
    short = [
        f"{have.get(name, 0)} of {count} {name}"
        for name, count in wanted(look.plan).items()
        if (name in have or covers) and have.get(name, Decimal(0)) < count
    ]
    if any(part.startswith("0 ") for part in short):
        return red(id, where, f"the queue has {', '.join(short)}: the job is never admitted", "raise its quota")
    if short:
        return yellow(id, where, f"the queue has {', '.join(short)} that the groups have at most", "raise its quota")
    return green(id, where, "is open, and has room for all accelerators of the file")


def _absent(id: str, where: str, brought: bool) -> Diagnosis:
    if brought:
        return green(id, where, "is not there yet; `apply` makes it")
    return red(id, where, "does not exist, and the file does not make it", "create it, or write `create: true`")


def _amount(value: Any) -> Decimal:
    return quantity.parse(str(value)) if value not in (None, "") else Decimal(0)
