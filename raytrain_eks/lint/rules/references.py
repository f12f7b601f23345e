"""RT20x: what objects refer to by name must be in the files, or declared to exist outside of them.

An object whose namespace is not written goes wherever it is applied, so it may meet any other by name.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, mapping, text
from raytrain_eks.spec.source import Path

BUILT_IN = {
    ("ServiceAccount", "default"),
    ("ConfigMap", "kube-root-ca.crt"),
    ("PriorityClass", "system-node-critical"),
    ("PriorityClass", "system-cluster-critical"),
    ("StorageClass", "gp2"),
    ("StorageClass", "gp3"),
    ("Queue", "default"),
    ("Queue", "root"),
}
"""What every EKS cluster has, or every installation of the operator (gp3: EKS's own add-on documentation)."""
_IGNORED = "raytrain-eks/external"
"""Annotation that declares what exists outside: `secret/hf-token, pvc/models`."""
_ALIASES = {"pvc": "persistentvolumeclaim", "sa": "serviceaccount", "cm": "configmap", "sc": "storageclass"}


def present(bundle: Bundle, settings: Settings, kind: str, name: str, by: Resource) -> bool:
    """Whether an object that `by` refers to is there, built in, or declared to exist outside."""
    if not name or (kind, name) in BUILT_IN or name.startswith("$"):
        return True
    written = text(by.get("metadata", "namespace"))
    namespaces = _index(bundle).get((kind, name), set())
    made = bool(namespaces) and (not written or bool(namespaces & {"", written}))
    short = next((alias for alias, full in _ALIASES.items() if full == kind.lower()), kind)
    declared = any(settings.has(word, name, written or None) for word in (kind, short))
    return made or declared or _annotated(by, (kind, short), name)


def _annotated(by: Resource, kinds: tuple[str, ...], name: str) -> bool:
    entries = {entry.strip().lower() for entry in text(by.annotations.get(_IGNORED)).split(",")}
    return any(f"{kind}/{name}".lower() in entries for kind in kinds)


@lru_cache(maxsize=1)
def _index(bundle: Bundle) -> dict[tuple[str, str], set[str]]:
    """Kind and name -> the namespaces in which the files make it; empty for an object that names none."""
    found: dict[tuple[str, str], set[str]] = {}
    for entry, namespace in _made(bundle):
        found.setdefault(entry, set()).add(namespace)
    return found


def _made(bundle: Bundle) -> Iterator[tuple[tuple[str, str], str]]:
    """Every object that the files make, directly or through a controller, with its namespace where it is written."""
    for resource in bundle.resources:
        namespace = text(resource.get("metadata", "namespace"))
        yield (resource.kind, resource.name), namespace
        yield from ((entry, namespace) for entry in _made_by_controller(resource))
        if resource.is_a("eksctl.io", "ClusterConfig"):
            for account in items(resource.get("iam", "serviceAccounts")):
                metadata = mapping(get(account, "metadata"))
                yield ("ServiceAccount", text(metadata.get("name"))), text(metadata.get("namespace"))


def _made_by_controller(resource: Resource) -> Iterator[tuple[str, str]]:
    if resource.kind in ("ExternalSecret", "SealedSecret", "VaultStaticSecret"):
        yield "Secret", text(resource.get("spec", "target", "name")) or resource.name
        yield "Secret", text(resource.get("spec", "destination", "name"))
    elif resource.is_a("cert-manager.io", "Certificate"):
        yield "Secret", text(resource.get("spec", "secretName"))
    elif resource.kind == "SecretProviderClass":
        for entry in items(resource.get("spec", "secretObjects")):
            yield "Secret", text(get(entry, "secretName"))
    elif resource.is_a("ray.io", "RayCluster", "RayJob", "RayService"):
        # The operator makes the token's secret under the cluster's name, and the autoscaler's account, but only where
        # the head's pod names none (kuberay, reconcileAutoscalerServiceAccount).
        yield "Secret", resource.name
        if not resource.get("spec", "headGroupSpec", "template", "spec", "serviceAccountName"):
            yield "ServiceAccount", resource.name
    elif resource.group.startswith("kustomize"):
        for kind, key in (("ConfigMap", "configMapGenerator"), ("Secret", "secretGenerator")):
            for entry in items(resource.get(key)):
                yield kind, text(get(entry, "name"))


_ADDED = {
    "kubeflow.org": frozenset({"ssh-auth", "mpi-job-config"}),
    "ray.io": frozenset({"shared-mem", "ray-logs", "ray-token", "ray-tls", "gcs-storage"}),
}
"""Volumes that an operator adds to the pods that it makes."""
Reference = tuple[str, Path]
"""The name that is referred to, and where."""


def claims(pod: Pod) -> Iterator[Reference]:
    """Persistent volume claims of a pod."""
    for data, path, _ in pod.volumes("persistentVolumeClaim"):
        yield text(data.get("claimName")), (*path, "claimName")


def secrets(pod: Pod) -> Iterator[Reference]:
    """Secrets without which the pod does not start; optional ones are left out."""
    for data, path, _ in pod.volumes("secret"):
        if data.get("optional") is not True:
            yield text(data.get("secretName")), (*path, "secretName")
    for index, entry in enumerate(items(pod.spec.get("imagePullSecrets"))):
        yield text(get(entry, "name")), (*pod.path, "imagePullSecrets", index, "name")
    yield from _projected(pod, "secret")
    yield from _from_env(pod, "secretKeyRef", "secretRef")


def config_maps(pod: Pod) -> Iterator[Reference]:
    """Config maps without which the pod does not start."""
    for data, path, _ in pod.volumes("configMap"):
        if data.get("optional") is not True:
            yield text(data.get("name")), (*path, "name")
    yield from _projected(pod, "configMap")
    yield from _from_env(pod, "configMapKeyRef", "configMapRef")


def _projected(pod: Pod, kind: str) -> Iterator[Reference]:
    for data, path, _ in pod.volumes("projected"):
        for index, source in enumerate(items(data.get("sources"))):
            entry = mapping(get(source, kind))
            if entry and entry.get("optional") is not True:
                yield text(entry.get("name")), (*path, "sources", index, kind, "name")


def _from_env(pod: Pod, key: str, whole: str) -> Iterator[Reference]:
    for container in pod.containers:
        for index, entry in enumerate(items(container.data.get("env"))):
            found = mapping(get(entry, "valueFrom", key))
            if found and found.get("optional") is not True:
                yield text(found.get("name")), (*container.path, "env", index, "valueFrom", key, "name")
        for index, entry in enumerate(items(container.data.get("envFrom"))):
            found = mapping(get(entry, whole))
            if found and found.get("optional") is not True:
                yield text(found.get("name")), (*container.path, "envFrom", index, whole, "name")


def accounts(pod: Pod) -> Iterator[Reference]:
    """The service account of a pod."""
    for key in ("serviceAccountName", "serviceAccount"):
        if key in pod.spec:
            yield text(pod.spec[key]), (*pod.path, key)
            return


def _one(key: str) -> Any:
    def named(pod: Pod) -> Iterator[Reference]:
        if key in pod.spec:
            yield text(pod.spec[key]), (*pod.path, key)

    return named


def _rule_for(id: str, kind: str, collect: Any, words: str, why: str) -> Rule:
    """A rule on one kind that pods refer to."""

    def check(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
        for pod in bundle.pods:
            for name, path in collect(pod):
                if not present(bundle, settings, kind, name, pod.owner):
                    yield missing(pod.owner, path, kind, name)

    fix = f"Add the {words} to the files, or declare it: --external {kind.lower()}/NAME."
    return Rule(id=id, severity="error", title=f"A {words} that is nowhere", why=why, fix=fix, check=check)


def missing(on: Resource, path: Path, kind: str, name: str) -> Hit:
    """The finding that an object is not there."""
    namespace = text(on.get("metadata", "namespace"))
    spaced = kind in ("PersistentVolumeClaim", "Secret", "ConfigMap", "ServiceAccount", "LocalQueue")
    full = f"{namespace}/{name}" if namespace and spaced else name
    reason = f"no {kind} {full} is in these files"
    return Hit(on=on, path=path, reason=reason, fix=f"add it, or declare it: --external {kind.lower()}/{full}")


def _queues(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        for kind, name, path in _queue_references(resource):
            if not present(bundle, settings, kind, name, resource):
                yield missing(resource, (*resource.base, *path), kind, name)


def _queue_references(resource: Resource) -> Iterator[tuple[str, str, Path]]:
    labels = resource.labels
    for label, kind in (("volcano.sh/queue-name", "Queue"), ("kueue.x-k8s.io/queue-name", "LocalQueue")):
        if label in labels:
            yield kind, text(labels[label]), ("metadata", "labels", label)
    if resource.is_a("batch.volcano.sh", "Job") and resource.get("spec", "queue"):
        yield "Queue", text(resource.get("spec", "queue")), ("spec", "queue")
    if resource.is_a("kueue.x-k8s.io", "LocalQueue"):
        yield "ClusterQueue", text(resource.get("spec", "clusterQueue")), ("spec", "clusterQueue")
    if resource.is_a("kueue.x-k8s.io", "ClusterQueue"):
        for index, group in enumerate(items(resource.get("spec", "resourceGroups"))):
            for number, flavor in enumerate(items(get(group, "flavors"))):
                path: Path = ("spec", "resourceGroups", index, "flavors", number, "name")
                yield "ResourceFlavor", text(get(flavor, "name")), path


def _node_classes(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pool in bundle.of("karpenter.sh", "NodePool"):
        steps = ("spec", "template", "spec", "nodeClassRef")
        kind, name = text(pool.get(*steps, "kind")), text(pool.get(*steps, "name"))
        # EKS Auto Mode brings its own class, `default`.
        own = text(pool.get(*steps, "group")) == "eks.amazonaws.com" and name == "default"
        if kind and not own and not present(bundle, settings, kind, name, pool):
            yield missing(pool, (*pool.base, *steps, "name"), kind, name)


def _storage_classes(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    static = {text(volume.get("spec", "storageClassName")) for volume in bundle.of("", "PersistentVolume")}
    for claim in bundle.of("", "PersistentVolumeClaim"):
        name = text(claim.get("spec", "storageClassName"))
        if name and name not in static and not present(bundle, settings, "StorageClass", name, claim):
            yield missing(claim, (*claim.base, "spec", "storageClassName"), "StorageClass", name)
        volume = text(claim.get("spec", "volumeName"))
        if volume and not present(bundle, settings, "PersistentVolume", volume, claim):
            yield missing(claim, (*claim.base, "spec", "volumeName"), "PersistentVolume", volume)


def _mounts(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        volumes = {text(get(volume, "name")) for volume in items(pod.spec.get("volumes"))}
        templates = _claim_templates(pod.owner) | _ADDED.get(pod.owner.group, frozenset())
        for container in pod.containers:
            for index, mount in enumerate(items(container.data.get("volumeMounts"))):
                name = text(get(mount, "name"))
                if name and name not in volumes and name not in templates:
                    reason = f"the pod has no volume named {name}"
                    fix = f"add it to volumes; there are {', '.join(sorted(volumes | templates)) or 'none'}"
                    yield Hit(on=pod.owner, path=(*container.path, "volumeMounts", index), reason=reason, fix=fix)


def _claim_templates(owner: Resource) -> set[str]:
    """Volumes that a StatefulSet, a NodeSet or a Volcano task makes by itself."""
    found = items(owner.get("spec", "volumeClaimTemplates"))
    if owner.is_a("batch.volcano.sh", "Job"):
        return {text(get(entry, "volumeClaimName")) for entry in items(owner.get("spec", "volumes"))}
    return {text(get(entry, "metadata", "name")) for entry in found if isinstance(entry, Mapping)}


_STUCK = "The pod stays in ContainerCreating or Pending: "
RULES = (
    _rule_for(
        "RT201",
        "PersistentVolumeClaim",
        claims,
        "persistent volume claim",
        _STUCK + "a claim must lie in the pod's own namespace, and a FileSystem or a PersistentVolume is not yet one.",
    ),
    _rule_for("RT202", "Secret", secrets, "secret", _STUCK + "a secret must lie in the pod's own namespace."),
    _rule_for("RT203", "ConfigMap", config_maps, "config map", _STUCK + "it must lie in the pod's own namespace."),
    _rule_for(
        "RT204",
        "ServiceAccount",
        accounts,
        "service account",
        "The controller cannot create the pod at all (`serviceaccount not found`), and with IRSA or Pod Identity the "
        "account is what gives the pod its AWS rights.",
    ),
    _rule_for(
        "RT205", "RuntimeClass", _one("runtimeClassName"), "runtime class", "The API server refuses the pod without it."
    ),
    _rule_for(
        "RT206",
        "PriorityClass",
        _one("priorityClassName"),
        "priority class",
        "The API server refuses a pod whose priority class does not exist.",
    ),
    Rule(
        id="RT207",
        severity="error",
        title="A queue that is nowhere",
        why="Volcano and Kueue hold back a job whose queue, or the queue's cluster queue or flavor, does not exist.",
        fix="Add the queue to the files, or declare it: --external queue/NAME or localqueue/NAME.",
        check=_queues,
    ),
    Rule(
        id="RT208",
        severity="error",
        title="A node pool without its node class",
        why="Karpenter starts no node for a NodePool whose nodeClassRef points to nothing; pods stay Pending.",
        fix="Add the EC2NodeClass, or declare it: --external ec2nodeclass/NAME.",
        check=_node_classes,
    ),
    Rule(
        id="RT209",
        severity="error",
        title="A claim without its storage class or volume",
        why="The claim is never bound: nothing provisions a volume for it.",
        fix="Add the StorageClass or the PersistentVolume, or declare it: --external storageclass/NAME.",
        check=_storage_classes,
    ),
    Rule(
        id="RT210",
        severity="error",
        title="A mount of a volume that the pod does not have",
        why="The API server refuses the pod (KubeSpawner accepts the profile, and the spawn then fails).",
        fix="Add the volume to the pod, or correct the name.",
        check=_mounts,
    ),
)
