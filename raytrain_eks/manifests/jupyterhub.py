"""A JupyterHub's objects beside a cluster: its users' account and rights, and their view of the shared folders.

Rules that are easy to get wrong:
- A claim is mounted in its own namespace only. A notebook of another namespace needs a volume and a claim of its own
  for the same file system, which is possible once that exists and its id is written in the file.
- An EFS access point makes one user the owner of every file in it; seen without it, its folder can be read, not
  written.
- A RayJob's pods may mount any Secret of their namespace and run as any of its accounts: whoever may create RayJobs
  there has what that namespace has. Notebooks get no rights in any other one, and none of the whole cluster.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from raytrain_eks.manifests import names
from raytrain_eks.manifests.metadata import metadata, wide
from raytrain_eks.manifests.object import Body, Object
from raytrain_eks.manifests.pod import claim_name
from raytrain_eks.manifests.storage import EFS_FOLDER, MANY, RETAIN, fsx_source
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.cluster_jupyter import JupyterHub
from raytrain_eks.spec.cluster_storage import AnyVolume, Claim, Efs, FsxLustre, StorageClass

SYSTEM = "jupyterhub"
NOTEBOOK = {"component": "singleuser-server"}
"""KubeSpawner's label of every notebook's pod."""
RAY_PORTS = (8265, 10001)
"""Dashboard with the Jobs API, Ray Client."""
RBAC = "rbac.authorization.k8s.io"
SUBMIT: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("ray.io", "rayjobs", ("create", "get", "list", "watch", "patch", "delete"), "to submit, follow and end a job"),
    ("ray.io", "rayclusters", ("get", "list", "watch"), "to see what a job's cluster waits for"),
    ("", "configmaps", ("create", "get", "patch", "delete"), "the working directory of a job travels in one"),
    ("", "pods", ("get", "list", "watch"), "to say why a job does not start"),
    ("", "pods/log", ("get",), "the log of a job"),
    ("", "events", ("get", "list", "watch"), "the operator tells what it refuses in events only"),
    ("", "services", ("get",), "where the head of a job answers"),
)
"""API group, resource, verbs, reason: what it takes to submit a RayJob and to follow it, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class Folder:
    """A folder of the cluster as notebooks see it."""

    name: str
    """Of the volume in the file: `shared`, `models`, ..."""
    mount: str
    claim: str
    """The claim's name in the notebooks' namespace."""
    read_only: bool


def account(plan: ClusterPlan) -> str:
    """The service account of notebooks."""
    return names.resource(plan.cluster.name, "notebook")


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """Everything notebooks need, in the order of applying; nothing without a hub."""
    hub = plan.cluster.jupyterhub
    if hub is None:
        return
    if _apart(plan, hub):
        body: Body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": hub.namespace}}
        yield Object(SYSTEM, body, {"": "the chart is installed in it, and users' pods run in it"})
    yield _account(plan, hub)
    yield from _rights(plan, hub)
    if _apart(plan, hub):
        for name, volume in plan.cluster.storage.volumes():
            if (source := _source(plan, name, volume)) is not None:
                yield _volume(plan, hub, name, volume, source)
                yield _claim(plan, hub, name, volume)
    if (
        hub.connect
        and _apart(plan, hub)
        and plan.cluster.ground.network_policy
        and not plan.cluster.network.host_network
    ):
        yield _way_in(plan, hub)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """How the hub itself is made, and which folders its notebooks do not see."""
    hub = plan.cluster.jupyterhub
    if hub is None:
        return
    yield (
        f"JupyterHub: raytrain-eks render FILE --values > hub.yaml; helm upgrade --install jupyterhub "
        f"jupyterhub/jupyterhub --version 4 --namespace {hub.namespace} --values hub.yaml; choose an authenticator "
        "(hub.config.JupyterHub.authenticator_class) before anybody else reaches it: the chart's own lets all in"
    )
    seen = {folder.name for folder in folders(plan)}
    for name, volume in plan.cluster.storage.volumes():
        if name in seen:
            continue
        if isinstance(volume, StorageClass) and volume.access == "ReadWriteOnce":
            yield f"storage.{name}: notebooks do not see it, since only one node can mount it"
        elif isinstance(volume, FsxLustre):
            yield (
                f"storage.{name}: notebooks in another namespace see it once it exists: write its id and mount name as "
                f"`filesystem` and `mount_name`, or let the hub use `namespace: {plan.cluster.namespace}`"
            )
        else:
            yield (
                f"storage.{name}: a claim is seen in its own namespace only; notebooks see it with "
                f"`jupyterhub: {{namespace: {plan.cluster.namespace}}}`"
            )


def folders(plan: ClusterPlan) -> list[Folder]:
    """The cluster's folders that notebooks see; none without a hub."""
    hub = plan.cluster.jupyterhub
    found: list[Folder] = []
    for name, volume in plan.cluster.storage.volumes() if hub is not None else []:
        assert hub is not None
        if not _apart(plan, hub):
            alone = isinstance(volume, StorageClass) and volume.access == "ReadWriteOnce"
            read_only = isinstance(volume, Claim) and volume.read_only
            claim = None if alone else claim_name(plan, name, volume)
        else:
            read_only = isinstance(volume, Efs) and volume.dynamic
            claim = names.resource(plan.cluster.name, name) if _source(plan, name, volume) is not None else None
        if claim is not None:
            found.append(Folder(name=name, mount=volume.mount, claim=claim, read_only=read_only))
    return found


def _apart(plan: ClusterPlan, hub: JupyterHub) -> bool:
    return hub.namespace != plan.cluster.namespace


def _there(plan: ClusterPlan, hub: JupyterHub, name: str, annotations: dict[str, str] | None = None) -> Body:
    return wide(plan, name, annotations) | {"namespace": hub.namespace}


def _account(plan: ClusterPlan, hub: JupyterHub) -> Object:
    annotations = {"eks.amazonaws.com/role-arn": hub.irsa} if hub.irsa else None
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _there(plan, hub, account(plan), annotations)}
    whys = {"": "every notebook's pod runs as this account"}
    if hub.irsa:
        whys["metadata.annotations.eks.amazonaws.com/role-arn"] = "IRSA: EKS gives notebooks a token for this role"
    return Object(SYSTEM, body, whys)


def _rights(plan: ClusterPlan, hub: JupyterHub) -> Iterator[Object]:
    rules: list[dict[str, Any]] = []
    whys = {"": "what notebooks may do in the cluster's namespace; they may do nothing anywhere else"}
    for group, resource, verbs, why in SUBMIT:
        whys[f"rules.{len(rules)}"] = why
        rules.append({"apiGroups": [group], "resources": [resource], "verbs": list(verbs)})
    if hub.connect:
        whys[f"rules.{len(rules)}"] = "`connect`: the job servers of heads, by way of the Kubernetes API"
        rules.append({"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get", "create"]})
    if hub.connect and plan.cluster.auth.mode == "token":
        secret = plan.cluster.auth.secret or plan.cluster.name
        whys[f"rules.{len(rules)}"] = "`connect`: the token of the running cluster, this one Secret and no other"
        rules.append({"apiGroups": [""], "resources": ["secrets"], "resourceNames": [secret], "verbs": ["get"]})
    head = metadata(plan, account(plan))
    yield Object(SYSTEM, {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": head, "rules": rules}, whys)
    subject = {"kind": "ServiceAccount", "name": account(plan), "namespace": hub.namespace}
    role = {"apiGroup": RBAC, "kind": "Role", "name": account(plan)}
    body: Body = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata(plan, account(plan))}
    yield Object(SYSTEM, body | {"roleRef": role, "subjects": [subject]}, {"subjects": "the account of notebooks"})


def _way_in(plan: ClusterPlan, hub: JupyterHub) -> Object:
    """Policies add up: this one lets notebooks in beside whom the cluster's own lets in."""
    peer = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": hub.namespace}},
        "podSelector": {"matchLabels": NOTEBOOK},
    }
    spec = {
        "podSelector": {"matchLabels": {"ray.io/cluster": plan.cluster.name, "ray.io/node-type": "head"}},
        "policyTypes": ["Ingress"],
        "ingress": [{"from": [peer], "ports": [{"protocol": "TCP", "port": port} for port in RAY_PORTS]}],
    }
    body: Body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    body |= {"metadata": metadata(plan, account(plan)), "spec": spec}
    return Object(SYSTEM, body, {"spec.ingress.0": "`connect`: notebooks reach the head's dashboard and client port"})


def _source(plan: ClusterPlan, name: str, volume: AnyVolume) -> tuple[dict[str, Any], list[str]] | None:
    """What a volume of another namespace says of a file system that exists, and its mount options; None: not yet."""
    if isinstance(volume, FsxLustre) and volume.filesystem is not None:
        return fsx_source(plan, volume, volume.filesystem), ["flock"]
    if isinstance(volume, Efs):
        # A handle of its own: two volumes with the same one are the same to the kubelet.
        own = f"{EFS_FOLDER}/{plan.cluster.namespace}/{names.resource(plan.cluster.name, name)}"
        handle = f"{volume.filesystem}:{own if volume.dynamic else '/'}"
        return {"driver": "efs.csi.aws.com", "volumeHandle": handle}, ["tls"]
    return None


def _volume_name(plan: ClusterPlan, hub: JupyterHub, name: str) -> str:
    return names.resource(hub.namespace, plan.cluster.name, name)


def _volume(
    plan: ClusterPlan, hub: JupyterHub, name: str, volume: AnyVolume, source: tuple[dict[str, Any], list[str]]
) -> Object:
    csi, options = source
    spec: Body = {
        "capacity": {"storage": _size(volume)},
        "volumeMode": "Filesystem",
        "accessModes": MANY,
        "mountOptions": options,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": hub.namespace, "name": names.resource(plan.cluster.name, name)},
        "csi": csi,
    }
    whys = {"": "the cluster's file system once more, for the namespace of notebooks"}
    whys["spec.persistentVolumeReclaimPolicy"] = RETAIN
    if isinstance(volume, Efs) and volume.dynamic:
        whys["spec.csi.volumeHandle"] = "the folder of the cluster's access point; without it, files can only be read"
    body: Body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": wide(plan, _volume_name(plan, hub, name))}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def _claim(plan: ClusterPlan, hub: JupyterHub, name: str, volume: AnyVolume) -> Object:
    spec: Body = {
        "accessModes": MANY,
        "storageClassName": "",
        "resources": {"requests": {"storage": _size(volume)}},
        "volumeName": _volume_name(plan, hub, name),
    }
    head = _there(plan, hub, names.resource(plan.cluster.name, name))
    body: Body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": head, "spec": spec}
    return Object(SYSTEM, body, {"metadata.namespace": "notebooks can only mount claims of their own namespace"})


def _size(volume: AnyVolume) -> str:
    assert isinstance(volume, FsxLustre | Efs)
    return volume.size
