"""What a cluster file names and does not make: it must exist when the bundle is applied.

The names travel with the objects that refer to them, in the annotation `raytrain-eks/external`, so that lint of the
rendered text knows as much as lint of the file.
"""

from collections.abc import Iterator
from dataclasses import replace

from raytrain_eks.manifests.names import resource
from raytrain_eks.manifests.object import Object
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.cluster_queue import Kueue, Volcano
from raytrain_eks.spec.cluster_ray import EmbeddedTolerance, RedisTolerance
from raytrain_eks.spec.cluster_storage import Claim, StorageClass

ANNOTATION = "raytrain-eks/external"


def declared(cluster: Cluster) -> list[str]:
    """`kind/name` of everything that the file names and the bundle does not hold, sorted, each once."""
    return sorted({*_secrets(cluster), *_storage(cluster), *_others(cluster)})


def _secrets(cluster: Cluster) -> Iterator[str]:
    names = [key.name for key in cluster.secrets.values()]
    names += cluster.ray.pull_secrets
    names += [cluster.auth.secret] if cluster.auth.secret else []
    tolerance = cluster.head.fault_tolerance
    if isinstance(tolerance, RedisTolerance):
        names += [key.name for key in (tolerance.username, tolerance.password) if key is not None]
    if cluster.slurm is not None:
        names.append(cluster.slurm.keys or resource(cluster.name, "slurm-keys"))
        names += [cluster.slurm.login.sssd.name] if cluster.slurm.login is not None else []
    yield from (f"secret/{name}" for name in names)


def _storage(cluster: Cluster) -> Iterator[str]:
    for _, volume in cluster.storage.volumes():
        if isinstance(volume, Claim):
            yield f"persistentvolumeclaim/{volume.claim}"
        elif isinstance(volume, StorageClass):
            yield f"storageclass/{volume.name}"
    tolerance = cluster.head.fault_tolerance
    if isinstance(tolerance, EmbeddedTolerance):
        if tolerance.claim:
            yield f"persistentvolumeclaim/{tolerance.claim}"
        if tolerance.storage_class:
            yield f"storageclass/{tolerance.storage_class}"


def _others(cluster: Cluster) -> Iterator[str]:
    queue = cluster.queue
    if not cluster.service_account.create:
        yield f"serviceaccount/{cluster.service_account.name or cluster.name}"
    if isinstance(queue, Volcano):
        if queue.priority:
            yield f"priorityclass/{queue.priority}"
        if not queue.create:
            yield f"queue/{queue.name}"
    if isinstance(queue, Kueue):
        if queue.priority:
            yield f"workloadpriorityclass/{queue.priority}"
        if not queue.create:
            yield f"localqueue/{queue.name}"


def marked(each: Object, names: list[str]) -> Object:
    """The object with those of `names` that its kind can refer to; itself when there are none."""
    of_claims = ("storageclass/", "persistentvolume/")
    if each.kind in ("RayCluster", "MPIJob", "NodeSet"):
        kept = [name for name in names if not name.startswith(of_claims)]
    elif each.kind == "PersistentVolumeClaim":
        spec = each.body["spec"]
        own = (f"storageclass/{spec.get('storageClassName')}", f"persistentvolume/{spec.get('volumeName')}")
        kept = [name for name in names if name in own]
    else:
        kept = []
    if not kept:
        return each
    metadata = dict(each.body["metadata"])
    metadata["annotations"] = dict(metadata.get("annotations") or {}) | {ANNOTATION: ", ".join(kept)}
    why = "the file names them and does not make them: they must exist"
    whys = dict(each.whys) | {f"metadata.annotations.{ANNOTATION}": why}
    return replace(each, body={**each.body, "metadata": metadata}, whys=whys)
