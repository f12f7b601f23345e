"""What a delete would take away and what it would leave, decided before anything is touched.

Left are: storage, unless told; what is not, or no longer, this cluster file's; and a namespace in which something lives
that the file did not make, such as a Secret, or storage that stays.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from raytrain_eks.kube import order
from raytrain_eks.kube.apply import part_of
from raytrain_eks.kube.errors import KubeError, MissingKind
from raytrain_eks.kube.owned import identity, owned

if TYPE_CHECKING:
    from raytrain_eks.kube.client import Client

Body = Mapping[str, Any]
RESIDENTS: tuple[tuple[str, str], ...] = (
    ("v1", "Pod"),
    ("v1", "PersistentVolumeClaim"),
    ("v1", "Secret"),
    ("v1", "ConfigMap"),
    ("v1", "Service"),
    ("v1", "ServiceAccount"),
    ("v1", "ResourceQuota"),
    ("v1", "LimitRange"),
    ("rbac.authorization.k8s.io/v1", "Role"),
    ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    ("networking.k8s.io/v1", "NetworkPolicy"),
    ("apps/v1", "Deployment"),
    ("apps/v1", "StatefulSet"),
    ("batch/v1", "Job"),
    ("batch/v1", "CronJob"),
    ("ray.io/v1", "RayCluster"),
    ("ray.io/v1", "RayJob"),
    ("ray.io/v1", "RayCronJob"),
    ("ray.io/v1", "RayService"),
)
"""What somebody would miss if its namespace went."""
_EVERYWHERE = frozenset([("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")])
"""What Kubernetes itself puts into each namespace."""
_OVER = ("Complete", "Failed", "ValidationFailed")


@dataclass(frozen=True)
class Step:
    """One object, and whether it goes."""

    body: Body = field(repr=False)
    """As it is in the cluster; as the file says where it is not there."""
    verb: str
    """`delete`, `keep` with a reason, or `absent`."""
    reason: str = ""

    @property
    def key(self) -> str:
        """`Kind/name`."""
        return f"{self.body['kind']}/{self.body['metadata']['name']}"


def plan(
    client: "Client", bodies: Sequence[Body], cluster: str | None, *, storage: bool, say: Callable[[str], None]
) -> list[Step]:
    """Every object of a file, and every other one that carries the cluster's name, in the order of deleting.

    `say` hears of what could not be looked at. Raises KubeError.
    """
    wanted = {identity(placed): placed for placed in map(client.placed, bodies)}
    if cluster is not None:
        wanted |= {identity(each): each for each in owned(client, cluster, lambda error: say(str(error)))}
    backwards = order.in_order(wanted.values())[::-1]
    steps = [_step(client, body, cluster, storage) for body in backwards if body["kind"] != "Namespace"]
    for body in backwards:
        if body["kind"] == "Namespace":
            steps.append(_namespace(client, body, steps))
    return steps


def _step(client: "Client", body: Body, cluster: str | None, storage: bool) -> Step:
    live = _live(client, body)
    if live is None:
        return Step(body, "absent")
    own, owner = cluster or part_of(body), part_of(live)
    if own and owner != own:
        whose = f"it belongs to the cluster file of {owner}" if owner else "it was not made by raytrain-eks"
        return Step(live, "keep", whose)
    if body["kind"] in order.STORAGE and not storage:
        return Step(live, "keep", "storage stays unless --storage")
    return Step(live, "delete", _afterwards(client, live))


def _live(client: "Client", body: Body) -> Body | None:
    metadata = body["metadata"]
    try:
        return client.find(str(body["apiVersion"]), str(body["kind"]), metadata["name"], metadata.get("namespace"))
    except MissingKind:
        return None


def _afterwards(client: "Client", live: Body) -> str:
    """What of storage is still there when its object is gone."""
    annotations = live["metadata"].get("annotations") or {}
    if annotations.get("services.k8s.aws/deletion-policy") == "retain":
        return "the file system itself stays in AWS (deletion-policy: retain)"
    spec = live.get("spec") or {}
    if live["kind"] == "PersistentVolume" and spec.get("persistentVolumeReclaimPolicy") == "Retain":
        return "the data itself stays (reclaim policy Retain)"
    if live["kind"] == "PersistentVolumeClaim" and spec.get("volumeName"):
        volume = client.find("v1", "PersistentVolume", spec["volumeName"]) or {"spec": {}}
        kept = volume["spec"].get("persistentVolumeReclaimPolicy") == "Retain"
        return f"its volume {spec['volumeName']} stays (Retain)" if kept else "its data is deleted with it"
    return ""


def _namespace(client: "Client", body: Body, steps: Sequence[Step]) -> Step:
    live = _live(client, body)
    if live is None:
        return Step(body, "absent")
    found = resident(client, str(body["metadata"]["name"]), [step.body for step in steps if step.verb == "delete"])
    return Step(live, "keep", f"{found} lives in it") if found else Step(live, "delete")


def resident(client: "Client", namespace: str, going: Sequence[Body]) -> str | None:
    """`Kind/name` of something in a namespace that is not among `going`, nor made for them; None when all is."""
    return next(_residents(client, namespace, going), None)


def _residents(client: "Client", namespace: str, going: Sequence[Body]) -> Iterator[str]:
    ours = {identity(each) for each in going}
    owners = {each["metadata"].get("uid") for each in going}
    clusters = {each["metadata"]["name"] for each in going if each["kind"] == "RayCluster"}
    for api_version, kind in RESIDENTS:
        if not client.serves(api_version, kind):
            continue
        try:
            for each in client.list(api_version, kind, namespace):
                metadata = each["metadata"]
                of_ours = any(owner.get("uid") in owners for owner in metadata.get("ownerReferences") or [])
                of_ours |= (metadata.get("labels") or {}).get("ray.io/cluster") in clusters
                if not (of_ours or identity(each) in ours or (kind, metadata["name"]) in _EVERYWHERE):
                    yield f"{kind}/{metadata['name']}"
        except KubeError as error:
            # Who cannot see what lives there must not take it away.
            yield f"something ({str(error).splitlines()[0]})"


def running_jobs(client: "Client", steps: Sequence[Step]) -> list[str]:
    """`namespace/name` of RayJobs that are not over and run on what would go: the cluster itself or its nodes."""
    clusters = {
        (step.body["metadata"].get("namespace"), step.body["metadata"]["name"])
        for step in steps
        if step.body["kind"] == "RayCluster" and step.verb == "delete"
    }
    names = {name for _, name in clusters} | {part_of(step.body) for step in steps if step.verb == "delete"}
    if not client.serves("ray.io/v1", "RayJob"):
        return []
    spaces = {step.body["metadata"].get("namespace") for step in steps} - {None, "kube-system"}
    found = [job for space in sorted(map(str, spaces)) for job in client.list("ray.io/v1", "RayJob", space)]
    return [
        f"{job['metadata']['namespace']}/{job['metadata']['name']}"
        for job in found
        if (job.get("status") or {}).get("jobDeploymentStatus") not in _OVER and _stands_on(job, names - {None})
    ]


def _stands_on(job: Body, names: set[Any]) -> bool:
    spec = job.get("spec") or {}
    if (job.get("status") or {}).get("rayClusterName") in names or part_of(job) in names:
        return True
    if (spec.get("clusterSelector") or {}).get("ray.io/cluster") in names:
        return True
    cluster = spec.get("rayClusterSpec") or {}
    groups = [cluster.get("headGroupSpec") or {}, *(cluster.get("workerGroupSpecs") or [])]
    selectors = [((group.get("template") or {}).get("spec") or {}).get("nodeSelector") or {} for group in groups]
    return any(selector.get("raytrain-eks/cluster") in names for selector in selectors)
