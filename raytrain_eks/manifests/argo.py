"""Delivery by Argo CD: the files of a repository, as kustomize reads them, and the Application that follows them.

Rules that are easy to get wrong:
- Argo CD waits for each sync wave to be healthy, and a claim is healthy once it is bound: storage that waits for its
  first consumer would stop the sync for ever. This bundle's classes bind at once.
- Ray's autoscaler and Kueue write into objects that Git owns: their fields are left out of the comparison, and
  `RespectIgnoreDifferences` keeps a sync from setting them back under a running training.
- Data outlives its objects: claims, volumes, file systems and the namespace are neither pruned nor deleted.
- Server-side apply: the client-side annotation has no room for a large RayCluster.
"""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from raytrain_eks.manifests import names, text
from raytrain_eks.manifests.bundle import WAVES, Bundle
from raytrain_eks.manifests.object import Body, Object
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec.cluster_operations import GitOps

SYSTEM = "argo"
SERVER = "https://kubernetes.default.svc"
"""The Kubernetes cluster that Argo CD runs in."""
WAVE = "argocd.argoproj.io/sync-wave"
OPTIONS = "argocd.argoproj.io/sync-options"
KEPT = ("Namespace", "PersistentVolumeClaim", "PersistentVolume", "StorageClass", "FileSystem")


def files(plan: ClusterPlan, bundle: Bundle, gitops: GitOps) -> dict[str, str]:
    """Path below the repository's top -> text of the file, in a fixed order."""
    here = folder(plan, gitops)
    found: dict[str, str] = {}
    systems = dict.fromkeys(each.system for each in bundle.objects)
    for number, system in enumerate(systems, start=1):
        bodies = [delivered(each) for each in bundle.objects if each.system == system]
        found[f"{number * 10:02d}-{system}.yaml"] = text.yaml(bodies)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": list(found),
    }
    inside = {"kustomization.yaml": text.yaml([kustomization])} | found
    placed = {f"{here}/{name}": content for name, content in inside.items()}
    return {f"{here}.application.yaml": text.yaml([application(plan, bundle, gitops).body])} | placed


def folder(plan: ClusterPlan, gitops: GitOps) -> str:
    """The cluster's folder in the repository."""
    parts = [part for part in gitops.path.split("/") if part not in ("", ".")]
    return "/".join([*parts, plan.cluster.name])


def delivered(each: Object) -> Body:
    """A copy of the object's body with its turn, and with its data kept."""
    body = deepcopy(each.body)
    annotations: Mapping[str, str] = body["metadata"].get("annotations") or {}
    added = {WAVE: str(WAVES[each.system])}
    if each.kind in KEPT:
        added[OPTIONS] = "Prune=false,Delete=false"
    body["metadata"]["annotations"] = dict(annotations) | added
    return body


def application(plan: ClusterPlan, bundle: Bundle, gitops: GitOps) -> Object:
    """The Application, which somebody applies once in Argo CD's namespace."""
    policy: dict[str, Any] = {
        "syncOptions": ["ServerSideApply=true", "RespectIgnoreDifferences=true"],
        "retry": {"limit": 5, "backoff": {"duration": "30s", "factor": 2, "maxDuration": "10m"}},
    }
    if gitops.automated:
        policy = {"automated": {"prune": gitops.prune, "selfHeal": True}} | policy
    spec = {
        "project": gitops.project,
        "source": {
            "repoURL": gitops.repository,
            "targetRevision": gitops.revision,
            "path": folder(plan, gitops),
        },
        "destination": {"server": SERVER, "namespace": plan.cluster.namespace},
        "syncPolicy": policy,
        "ignoreDifferences": _ignored(bundle),
    }
    head = {"name": names.resource(plan.cluster.namespace, plan.cluster.name), "namespace": gitops.namespace}
    body = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": head, "spec": spec}
    whys = {
        "spec.ignoreDifferences": "fields that belong to the autoscaler, to the queue or to the volume controller",
        "spec.syncPolicy.syncOptions": "server-side, since a RayCluster outgrows the annotation of client-side apply",
    }
    if gitops.automated:
        whys["spec.syncPolicy.automated"] = "`prune` off by default: it would end a training whose file was moved"
    return Object(SYSTEM, body, whys)


def _ignored(bundle: Bundle) -> list[dict[str, Any]]:
    """Fields that others than Git write, for the kinds that the bundle holds."""
    groups = [".spec.workerGroupSpecs[]?.replicas", ".spec.workerGroupSpecs[]?.scaleStrategy", ".spec.suspend"]
    fields = [
        {"group": "ray.io", "kind": "RayCluster", "jqPathExpressions": groups},
        {"group": "", "kind": "PersistentVolume", "jqPathExpressions": [".spec.claimRef"]},
        {"group": "", "kind": "PersistentVolumeClaim", "jqPathExpressions": [".spec.volumeName"]},
    ]
    kinds = {each.kind for each in bundle.objects}
    return [{key: value for key, value in entry.items() if value} for entry in fields if entry["kind"] in kinds]
