"""What the autoscaler writes into a RayCluster: how many workers there are now, and which are to go.

`workerGroupSpecs` is one value to server-side apply (its CRD gives the list no keys), so whoever writes a group writes
them all: a plain apply would take back what the autoscaler decided, and end the nodes of a running job. So the numbers
that stand in the cluster are carried over, on the resourceVersion that they were read with, and the list may be taken
from the autoscaler (Ray's patches it, with Python's `requests`) and from the operator, but from nobody else.
"""

from collections.abc import Mapping
from typing import Any

from raytrain_eks.kube.errors import Owned

WRITERS = frozenset(["python-requests", "python-urllib", "manager", "kuberay-operator", "ray-operator"])
"""Field managers of Ray's autoscaler and of the operator (its program is called `manager`)."""
FIELD = ".spec.workerGroupSpecs"
_CARRIED = ("replicas", "scaleStrategy")


def yields(owned: Owned) -> bool:
    """Whether a field is the worker groups' and its owner the autoscaler or the operator."""
    return owned.field == FIELD and owned.owner.partition(" ")[0] in WRITERS


def carried(body: dict[str, Any], live: Mapping[str, Any] | None) -> dict[str, Any]:
    """The object to be applied, with the autoscaler's numbers of the live one; itself when there are none."""
    if body["kind"] != "RayCluster" or live is None or not body["spec"].get("enableInTreeAutoscaling"):
        return body
    groups = {each.get("groupName"): each for each in (live.get("spec") or {}).get("workerGroupSpecs") or []}
    if not groups:
        return body
    merged = [_group(each, groups.get(each.get("groupName"))) for each in body["spec"].get("workerGroupSpecs") or []]
    metadata = body["metadata"] | {"resourceVersion": live["metadata"]["resourceVersion"]}
    return body | {"metadata": metadata, "spec": body["spec"] | {"workerGroupSpecs": merged}}


def _group(own: dict[str, Any], live: Mapping[str, Any] | None) -> dict[str, Any]:
    if live is None:
        return own
    found = own | {key: live[key] for key in _CARRIED if key in live}
    if isinstance(replicas := found.get("replicas"), int):
        # The operator clamps it in silence; said here, the object is what it does.
        found["replicas"] = min(max(replicas, int(own.get("minReplicas", 0))), int(own.get("maxReplicas", replicas)))
    return found
