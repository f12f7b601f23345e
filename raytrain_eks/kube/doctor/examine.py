"""All checks of a Kubernetes cluster, in the order in which a job would meet what they look for."""

from collections.abc import Callable, Iterator

from raytrain_eks.kube.client import Client
from raytrain_eks.kube.doctor import devices, identity, images, namespace, nodes, operators, queues, rights, storage
from raytrain_eks.kube.doctor.look import Look
from raytrain_eks.kube.errors import Forbidden, MissingKind
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

Check = Callable[[Look], Iterator[Diagnosis]]

CHECKS: dict[str, Check] = {
    "rights": rights.examine,
    "namespace": namespace.examine,
    "operators": operators.examine,
    "devices": devices.examine,
    "nodes": nodes.examine,
    "storage": storage.examine,
    "queues": queues.examine,
    "identity": identity.examine,
    "images": images.examine,
}
"""What is looked at -> its check."""
OLDEST = (1, 30)
"""Kubernetes before it is not offered by EKS any more, and lacks fields that are rendered."""


def examine(client: Client, plan: ClusterPlan | None = None) -> Iterator[Diagnosis]:
    """Findings as they come. Raises Unreachable, Unauthorized and BadConfig: then there is nothing to find.

    What this user may not look at is a yellow finding of its own, and the rest goes on.
    """
    yield from reach(client, plan)
    look = Look(client, plan)
    for name, check in CHECKS.items():
        try:
            yield from check(look)
        except Forbidden as error:
            first, *rest = str(error).splitlines()
            fix = rest[-1].strip() if rest else "ask who may"
            yield yellow(f"{name}.unseen", client.server, f"could not be looked at: {first}", fix)
        except MissingKind as error:
            # A kind that went away, or an aggregated API that is down, while the checks ran.
            yield yellow(f"{name}.unseen", client.server, str(error).splitlines()[0], "run it again")


def reach(client: Client, plan: ClusterPlan | None) -> Iterator[Diagnosis]:
    """The API answers, and in which version."""
    have = client.version()
    yield green("api.reach", client.server, f"answers, context {client.context}")
    text = ".".join(map(str, have))
    id, where = "api.version", client.server
    wanted = plan.cluster.kubernetes if plan is not None else None
    if have < OLDEST:
        yield red(id, where, f"Kubernetes {text} is too old", "EKS offers upgrades one minor version at a time")
    elif wanted is not None and wanted != text:
        why = f"Kubernetes {text}; the file was checked for {wanted}"
        yield yellow(id, where, why, f'write `kubernetes: "{text}"` and look at what lint then finds')
    else:
        yield green(id, where, f"Kubernetes {text}")
