"""The pod of a head or worker: one Ray container, its devices, folders, node and identity.

Every decision was taken in `plan`; here it gets the words of Kubernetes. The file's own piece of a pod is merged over
it last.
"""

from typing import Any

from raytrain_eks.manifests import environment, names
from raytrain_eks.manifests.object import Body, at
from raytrain_eks.plan.cluster import ClusterPlan, PodPlan
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_storage import AnyVolume, Claim
from raytrain_eks.spec.pod_overlay import merged

CONTAINER = {True: "ray-head", False: "ray-worker"}
SHM = "shared-mem"
"""The operator's own name for /dev/shm; it adds one without a limit where none is mounted."""

Whys = dict[str, str]


def template(plan: ClusterPlan, pod: PodPlan) -> tuple[Body, Whys]:
    """The pod template of the head or of a group's workers, and path inside of it -> reason."""
    container, whys = _container(plan, pod)
    name = str(container["name"])
    found = {f"spec.containers.{name}.{path}": why for path, why in whys.items()}
    spec: Body = {"serviceAccountName": plan.service_account, "restartPolicy": "Never"}
    found["spec.restartPolicy"] = "the autoscaler v2 and SidecarMode refuse pods that restart by themselves"
    if plan.cluster.network.host_network and pod.name != "head":
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
        found["spec.dnsPolicy"] = "with the host's network, a pod finds services only by this policy"
    if plan.cluster.ray.pull_secrets:
        spec["imagePullSecrets"] = [{"name": secret} for secret in plan.cluster.ray.pull_secrets]
    if pod.node_selector:
        spec["nodeSelector"] = dict(pod.node_selector)
        found["spec.nodeSelector"] = "labels that the group's nodes carry, by the same decision that makes the nodes"
    if pod.tolerations:
        spec["tolerations"] = [dict(toleration) for toleration in pod.tolerations]
        found["spec.tolerations"] = "the taints of the group's own nodes, and what the file adds"
    spec |= {"containers": [container], "volumes": _volumes(plan, pod)}
    found[f"spec.volumes.{SHM}"] = pod.why["shm"]
    body: Body = {"metadata": _metadata(plan, pod, found), "spec": spec}
    whole = merged(body, pod.spec.pod)
    return whole, _after(body, whole, found) if pod.spec.pod else found


def _after(before: Body, whole: Body, whys: Whys) -> Whys:
    """The reasons that still hold after the file's own piece of a pod was merged, and its own where it changed them."""
    found = Whys()
    for path, why in whys.items():
        try:
            found[path] = why if at(before, path) == at(whole, path) else "as `pod` in the file says"
        except KeyError:
            continue
    return found


def _metadata(plan: ClusterPlan, pod: PodPlan, whys: Whys) -> Body:
    labels = dict(plan.cluster.labels) | dict(pod.spec.labels)
    metadata: Body = {"labels": labels} if labels else {}
    annotations = dict(pod.spec.annotations)
    if plan.cluster.provisioner.kind == "karpenter":
        annotations.setdefault("karpenter.sh/do-not-disrupt", "true")
        whys["metadata.annotations.karpenter.sh/do-not-disrupt"] = (
            "Karpenter must not end a node in the middle of a run"
        )
    elif plan.cluster.provisioner.kind == "managed":
        annotations.setdefault("cluster-autoscaler.kubernetes.io/safe-to-evict", "false")
        why = "the cluster autoscaler must not end a node in the middle of a run"
        whys["metadata.annotations.cluster-autoscaler.kubernetes.io/safe-to-evict"] = why
    return metadata | ({"annotations": annotations} if annotations else {})


def _container(plan: ClusterPlan, pod: PodPlan) -> tuple[Body, Whys]:
    env, reasons = environment.entries(plan, pod)
    whys = {f"env.{name}": why for name, why in reasons.items()}
    for side in ("requests", "limits"):
        whys |= {f"resources.{side}.{name}": pod.why[name] for name in ("cpu", "memory")}
        for name, _ in pod.devices.resources:
            key = "efa" if name.endswith("/efa") else "accelerators"
            whys[f"resources.{side}.{name}"] = f"{pod.why[key]}; extended resources cannot be overcommitted"
    container: Body = {
        "name": CONTAINER[pod.name == "head"],
        "image": pod.image,
        "imagePullPolicy": plan.cluster.ray.pull_policy,
    }
    if env:
        container["env"] = env
    container["resources"] = {"requests": pod.resources, "limits": pod.resources}
    container["volumeMounts"] = _mounts(plan, pod)
    return container, whys


def _mounts(plan: ClusterPlan, pod: PodPlan) -> list[Body]:
    mounts: list[Body] = [{"name": SHM, "mountPath": "/dev/shm"}]
    for name, volume in plan.cluster.storage.volumes():
        read_only = {"readOnly": True} if isinstance(volume, Claim) and volume.read_only else {}
        mounts.append({"name": name, "mountPath": volume.mount} | read_only)
    scratch = plan.cluster.storage.scratch
    if scratch is not None and pod.name != "head":
        mounts.append({"name": "scratch", "mountPath": scratch.mount})
    return mounts


def _volumes(plan: ClusterPlan, pod: PodPlan) -> list[Body]:
    shm = {"medium": "Memory", "sizeLimit": quantity.gibibytes(pod.shm)}
    volumes: list[Body] = [{"name": SHM, "emptyDir": shm}]
    for name, volume in plan.cluster.storage.volumes():
        claim: dict[str, Any] = {"claimName": claim_name(plan, name, volume)}
        if isinstance(volume, Claim) and volume.read_only:
            claim["readOnly"] = True
        volumes.append({"name": name, "persistentVolumeClaim": claim})
    scratch = plan.cluster.storage.scratch
    if scratch is not None and pod.name != "head":
        volumes.append({"name": "scratch", "emptyDir": {"sizeLimit": scratch.size} if scratch.size else {}})
    return volumes


def claim_name(plan: ClusterPlan, name: str, volume: AnyVolume) -> str:
    """The claim behind a volume of the file: an existing one by its own name, else that which is rendered for it."""
    return volume.claim if isinstance(volume, Claim) else names.resource(plan.cluster.name, name)
