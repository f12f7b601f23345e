"""All checks of a Kubernetes cluster, in the order in which a job would meet what they look for."""

import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

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
LATE_S, TOO_LATE_S = 5.0, 60.0
"""AWS refuses signatures that are five minutes off; tokens of exec plugins are such signatures."""


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
    yield from clock(client)
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


def clock(client: Client) -> Iterator[Diagnosis]:
    """This machine's clock against the API server's, by the date of an answer, which counts in whole seconds."""
    began = time.time()
    try:
        with client.transport.passing("GET", "/version", headers={}) as response:
            said = response.headers.get("Date")
    except ConnectionError:
        return
    ended = time.time()
    try:
        there = parsedate_to_datetime(said or "").timestamp()
    except ValueError:
        # Not every proxy before an API tells the time.
        return
    # The answer was written between the two moments, in the second that it names.
    ahead = max(began - (there + 1), there - ended, 0.0)
    id, where = "api.clock", client.server
    if ahead <= LATE_S:
        yield green(id, where, "this machine's clock agrees with the API's")
        return
    why = f"this machine's clock is {ahead:.0f} s off the API's"
    fix = "let a time service set it (timedatectl set-ntp true); tokens and signatures are refused otherwise"
    yield red(id, where, why, fix) if ahead > TOO_LATE_S else yellow(id, where, why, fix)
