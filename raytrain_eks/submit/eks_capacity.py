"""Whether a job fits into what its namespace, its queue and its node pools may use, as far as the API tells.

What can never fit is refused before anything starts; what does not fit now is said. What may not be read is left out.
"""

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import KubeError
from raytrain_eks.manifests.kuberay_job import SUBMITTER
from raytrain_eks.plan.placement import CLUSTER_LABEL, GROUP_LABEL
from raytrain_eks.spec import quantity
from raytrain_eks.submit.eks_place import Place
from raytrain_eks.submit.eks_pods import kueue

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

_SUBMITTER = {name: quantity.parse(value) for name, value in SUBMITTER["requests"].items()}
Amounts = Mapping[str, Decimal]


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """Something that there is not enough of."""

    text: str
    """A sentence."""
    never: bool
    """Whether waiting is in vain."""


def demand(place: Place) -> dict[str, Decimal]:
    """What all pods of a job ask for together: resource -> amount, and `pods`."""
    total: Counter[str] = Counter()
    for asked, count in [*_pods(place), (_SUBMITTER, 1)]:
        for name, amount in asked.items():
            total[name] += amount * count  # type: ignore[assignment]
        total["pods"] += count
    return {name: Decimal(amount) for name, amount in total.items()}


def _pods(place: Place) -> Iterator[tuple[Amounts, int]]:
    if place.plan is None:
        return
    yield _amounts(place.plan.head.resources), 1
    for name, nodes in place.nodes.items():
        group = place.plan.group(name)
        yield _amounts(group.resources), nodes * group.devices.pods_per_node


def _amounts(resources: Mapping[str, Any]) -> dict[str, Decimal]:
    return {name: quantity.parse(str(value)) for name, value in resources.items()}


def shortages(client: "Client", place: Place) -> list[Shortage]:
    """Everything that the job would lack."""
    found: list[Shortage] = []
    for look in (_quotas, _kueue, _pools):
        with contextlib.suppress(KubeError):
            found += look(client, place)
    return found


def _quotas(client: "Client", place: Place) -> Iterator[Shortage]:
    asked = demand(place)
    for body in client.list("v1", "ResourceQuota", place.namespace):
        spec, status = body["spec"], body.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue
        hard, used = _amounts(spec.get("hard") or {}), _amounts(status.get("used") or {})
        for key, limit in hard.items():
            name = key.removeprefix("requests.").removeprefix("limits.")
            wanted = Decimal(1) if key == "count/rayjobs.ray.io" else asked.get(name, Decimal(0))
            of = f"the ResourceQuota {body['metadata']['name']} of namespace {place.namespace}"
            yield from _short(of, name, wanted, limit, used.get(key, Decimal(0)))


def _short(of: str, name: str, wanted: Decimal, limit: Decimal, used: Decimal) -> Iterator[Shortage]:
    if wanted > limit:
        text = f"the job needs {_written(name, wanted)}, and {of} allows {_written(name, limit)}"
        yield Shortage(text=text, never=True)
    elif wanted > limit - used:
        left = _written(name, max(limit - used, Decimal(0)))
        yield Shortage(text=f"the job needs {_written(name, wanted)}, and {of} has {left} left", never=False)


def _written(name: str, amount: Decimal) -> str:
    if name in ("memory", "storage", "ephemeral-storage"):
        return f"{quantity.gibibytes(amount)} of {name}"
    number = f"{amount.normalize():f}"
    return f"{number} {'CPU' if name == 'cpu' else name}"


def _kueue(client: "Client", place: Place) -> Iterator[Shortage]:
    """A workload that asks for more than a queue's whole quota is never admitted."""
    queue = place.plan.cluster.queue if place.plan is not None else None
    if queue is None or queue.kind != "kueue":
        return
    version = kueue(client)
    local = client.find(version, "LocalQueue", queue.name, place.namespace)
    if local is None:
        text = (
            f"there is no LocalQueue {queue.name} in namespace {place.namespace}: raytrain-eks apply the cluster file"
        )
        yield Shortage(text=text, never=True)
        return
    name = str(local["spec"]["clusterQueue"])
    body = client.find(version, "ClusterQueue", name)
    if body is None or body["spec"].get("cohortName") or body["spec"].get("cohort"):
        # Within a cohort others lend what they do not use, how much nobody can say beforehand.
        return
    quota: dict[str, Decimal] = {}
    for group in body["spec"].get("resourceGroups") or []:
        for flavor in group.get("flavors") or []:
            for each in flavor.get("resources") or []:
                amount = quantity.parse(str(each["nominalQuota"]))
                quota[each["name"]] = quota.get(each["name"], Decimal(0)) + amount
    for resource, wanted in demand(place).items():
        if resource in quota:
            yield from _short(f"the ClusterQueue {name}", resource, wanted, quota[resource], Decimal(0))


def _pools(client: "Client", place: Place) -> Iterator[Shortage]:
    """Karpenter makes no node beyond a pool's limits, and none at all without a pool."""
    if place.plan is None or place.plan.cluster.provisioner.kind != "karpenter":
        return
    pools = list(client.list("karpenter.sh/v1", "NodePool", labels=None))
    for name, nodes in place.nodes.items():
        group = place.plan.group(name)
        fitting = [pool for pool in pools if _makes(pool, place.plan.cluster.name, name)]
        if not fitting:
            text = f"no NodePool makes nodes for the group {name}: raytrain-eks apply the cluster file"
            yield Shortage(text=text, never=True)
        for pool in fitting:
            limits = _amounts(pool["spec"].get("limits") or {})
            pods = nodes * group.devices.pods_per_node
            for resource, each in _amounts(group.resources).items():
                if resource in limits:
                    of = f"the NodePool {pool['metadata']['name']}"
                    yield from _short(of, resource, each * pods, limits[resource], Decimal(0))


def _makes(pool: Mapping[str, Any], cluster: str, group: str) -> bool:
    labels = ((pool["spec"].get("template") or {}).get("metadata") or {}).get("labels") or {}
    return labels.get(CLUSTER_LABEL) == cluster and labels.get(GROUP_LABEL) == group
