"""What is looked at in a cluster before a RayJob is made: rights, kinds, what the cluster file should have made,
versions, capacity. Each finding says what to do."""

import contextlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube.errors import KubeError, MissingKind
from raytrain_eks.plan.cluster import HEAD_IMAGE
from raytrain_eks.submit.cluster import differences, here
from raytrain_eks.submit.eks_capacity import shortages
from raytrain_eks.submit.eks_head import HeadServer
from raytrain_eks.submit.eks_place import Place
from raytrain_eks.submit.eks_state import API, KIND
from raytrain_eks.submit.errors import Incompatible, NotAllowed, TargetError
from raytrain_eks.submit.target import Say, Versions

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client
    from raytrain_eks.submit.eks import Options

_PYTHON = re.compile(r"-py(\d)(\d+)\b")
"""Ray's tags: 2.60.0-py311-gpu."""


class NoRoom(TargetError):
    """More than the namespace, the queue or the node pools can ever give."""

    code = 3


class NotThere(TargetError):
    """The cluster lacks what the job's pods refer to."""

    code = 4


def examine(client: "Client", place: Place, head: HeadServer | None, options: "Options", say: Say) -> None:
    """Raises KubeError, TargetError; `say` gets what is no reason to stop."""
    try:
        client.kind(API, KIND)
    except MissingKind as error:
        raise NotThere(f"{error}\n  install the KubeRay operator: raytrain-eks doctor tells how") from None
    _rights(client, place)
    if not options.any_version:
        _versions(place, head, say)
    if missing := list(absent(client, place)):
        file = place.plan.document.file if place.plan is not None and place.plan.document is not None else "FILE"
        raise NotThere(
            "\n".join([*missing, f"  the pods of the job need it; make it first: raytrain-eks apply {file}"])
        )
    found = shortages(client, place)
    if never := [each.text for each in found if each.never]:
        raise NoRoom("\n".join([*never, "nothing was submitted: waiting would be in vain"]))
    for each in found:
        say(f"{each.text}; the job waits until there is more")
    if place.image.startswith(f"{HEAD_IMAGE}:"):
        say(f"{place.image} is Ray's public image, which has no PyTorch; see cluster_specs/images")


def _rights(client: "Client", place: Place) -> None:
    for version, kind in ((API, KIND), ("v1", "ConfigMap")):
        allowed, reason = client.allowed("create", version, kind, place.namespace)
        if not allowed:
            asked = client.kind(version, kind).asked("create", place.namespace)
            raise NotAllowed(
                f"not allowed: {asked}"
                + (f"\n  {reason}" if reason else "")
                + f"\n  a Role needs the rule {asked.rule}"
            )


def _versions(place: Place, head: HeadServer | None, say: Say) -> None:
    there = Versions(ray=place.ray, python=_python_of(place.image))
    where = f"the cluster (rayVersion and image {place.image})"
    if head is not None:
        try:
            there, where = head.versions(), f"the head of {place.cluster}"
        except TargetError as error:
            said = str(error).splitlines()[0]
            say(f"the head could not be asked for its versions ({said}); the RayCluster's spec is believed")
    if there.ray and (reasons := differences(there, here())):
        raise Incompatible("\n".join([f"{where} does not fit this machine:", *(f"  {why}" for why in reasons)]))


def _python_of(image: str) -> str | None:
    """Python's version as far as the tag of an image tells it."""
    match = _PYTHON.search(image.rpartition(":")[2])
    return f"{match[1]}.{match[2]}" if match else None


def absent(client: "Client", place: Place) -> Iterator[str]:
    """Claims and accounts that the job's pods refer to and that are not there; what may not be read counts as there."""
    if place.plan is None:
        return
    from raytrain_eks.manifests.kuberay_cluster import cluster_spec

    with contextlib.suppress(KubeError):
        if client.find("v1", "Namespace", place.namespace) is None:
            yield f"there is no namespace {place.namespace}"
            return
    spec, _ = cluster_spec(place.plan, dict(place.nodes))
    templates = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    wanted = dict.fromkeys(each for group in templates for each in _references(group["template"]["spec"]))
    for kind, name in wanted:
        with contextlib.suppress(KubeError):
            if client.find("v1", kind, name, place.namespace) is None:
                yield f"there is no {kind} {name} in namespace {place.namespace}"


def _references(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if pod.get("serviceAccountName"):
        yield "ServiceAccount", str(pod["serviceAccountName"])
    for volume in pod.get("volumes") or []:
        if claim := volume.get("persistentVolumeClaim"):
            yield "PersistentVolumeClaim", str(claim["claimName"])
    for secret in pod.get("imagePullSecrets") or []:
        yield "Secret", str(secret["name"])
