"""A RayCluster of Kubernetes as a place for the check of workers: the job server of its head, by way of the API server.

The check goes to a cluster that runs, since it looks at the pods that there are; none is made for it.
"""

from typing import TYPE_CHECKING, Any

from raytrain_eks.submit.cluster import RayCluster
from raytrain_eks.submit.eks_errors import told
from raytrain_eks.submit.eks_head import head_server
from raytrain_eks.submit.errors import NotFound, Unreachable

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Body, Client

API = "ray.io/v1"


def target(client: "Client", name: str | None, *, token_file: str | None, any_version: bool = False) -> RayCluster:
    """The running cluster of that name, or the only one of the namespace. Raises TargetError."""
    with told():
        cluster = _chosen(client, name)
        server = head_server(client, cluster, token_file=token_file)
    if server is None:
        raise Unreachable(
            f"RayCluster {_named(cluster)} has no head service yet\n  raytrain-eks doctor --on eks tells what it lacks"
        )
    return RayCluster(server, any_version=any_version)


def _chosen(client: "Client", name: str | None) -> "Body":
    where = client.namespace
    if name is not None:
        return client.get(API, "RayCluster", name, where)
    found: list[Any] = list(client.list(API, "RayCluster", where))
    if len(found) == 1:
        return dict(found[0])
    names = ", ".join(sorted(each["metadata"]["name"] for each in found))
    if found:
        raise NotFound(f"namespace {where} has several RayClusters: {names}\n  say which: --cluster NAME")
    raise NotFound(
        f"namespace {where} has no RayCluster, and workers are checked where they run\n"
        "  apply a cluster file, or submit a job; `doctor --on eks CLUSTER.yaml` looks before any money is spent"
    )


def _named(cluster: "Body") -> str:
    return f"{cluster['metadata']['namespace']}/{cluster['metadata']['name']}"
