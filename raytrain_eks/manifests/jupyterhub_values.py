"""Values for the zero-to-jupyterhub chart (4.x): a profile for each kind of notebook, and what surrounds them.

Rules that are easy to get wrong:
- The chart's KubeSpawner keeps volumes in a mapping, and a profile's mapping is merged into it (kubespawner 7,
  `_apply_overrides`); a list would throw the user's home away. Tolerations are a list and replace the hub's.
- KubeSpawner's memory is in bytes, or in `8G` that mean GiB; bytes cannot be misread.
- The chart forbids notebooks every private address (`singleuser.networkPolicy.egressAllowRules`): the API server of
  EKS answers on one, port 443, and so does the head of a cluster.
- The chart publishes its proxy by a load balancer; the hub stays inside until somebody decides otherwise.
- Its image pullers would put every image on every node, accelerators' included.
"""

from posixpath import join
from typing import Any

from raytrain_eks.manifests.jupyterhub import RAY_PORTS, Folder, account, folders
from raytrain_eks.manifests.object import Body
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.plan.notebooks import Profile, profiles
from raytrain_eks.spec.cluster_jupyter import JupyterHub
from raytrain_eks.spec.quantity import seconds

START_S = 1200
"""A node with accelerators takes minutes to come, and an image of 20 GB as long to be pulled."""
CULL_EVERY_S = 600
SHM = "shm"
DO_NOT_DISRUPT = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""A kernel's memory is all its work: neither Karpenter nor the cluster autoscaler may move its pod."""


def values(plan: ClusterPlan) -> Body:
    """The chart's values. Raises ValueError when the file has no `jupyterhub`."""
    hub = plan.cluster.jupyterhub
    if hub is None:
        raise ValueError("the cluster file has no `jupyterhub`")
    return {
        "singleuser": _singleuser(plan, hub),
        "cull": {
            "enabled": True,
            "timeout": int(seconds(hub.idle)),
            "every": min(CULL_EVERY_S, int(seconds(hub.idle))),
            "maxAge": int(seconds(hub.longest)) if hub.longest is not None else 0,
        },
        "proxy": {"service": {"type": "ClusterIP"}},
        "prePuller": {"hook": {"enabled": False}, "continuous": {"enabled": False}},
    }


def _singleuser(plan: ClusterPlan, hub: JupyterHub) -> Body:
    seen = folders(plan)
    name, _, tag = hub.image.rpartition(":")
    named = {"name": name, "tag": tag} if name and "/" not in tag else {"name": hub.image, "tag": "latest"}
    shared = [folder for folder in seen if folder.name == "shared"]
    storage: Body = {"type": "dynamic", "capacity": hub.home}
    if hub.home_class is not None:
        storage["dynamic"] = {"storageClass": hub.home_class}
    if seen:
        storage["extraVolumes"] = {folder.name: _volume(folder) for folder in seen}
        storage["extraVolumeMounts"] = {folder.name: _mount(folder) for folder in seen}
    return {
        "image": named | {"pullPolicy": plan.cluster.ray.pull_policy},
        "serviceAccountName": account(plan),
        "startTimeout": START_S,
        "extraAnnotations": DO_NOT_DISRUPT,
        "extraEnv": {"RAYTRAIN_STORAGE": join(shared[0].mount, "runs")} if shared else {},
        "storage": storage,
        "networkPolicy": {"enabled": True, "egress": _egress(plan, hub)},
        "profileList": profile_list(plan),
    }


def _volume(folder: Folder) -> Body:
    claim: Body = {"claimName": folder.claim} | ({"readOnly": True} if folder.read_only else {})
    return {"name": folder.name, "persistentVolumeClaim": claim}


def _mount(folder: Folder) -> Body:
    return {"name": folder.name, "mountPath": folder.mount} | ({"readOnly": True} if folder.read_only else {})


def _egress(plan: ClusterPlan, hub: JupyterHub) -> list[Body]:
    """Beside the chart's own rules: the Kubernetes API, and with `connect` the cluster's head."""
    rules: list[Body] = [{"ports": [{"protocol": "TCP", "port": 443}]}]
    if hub.connect:
        peer = {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": plan.cluster.namespace}},
            "podSelector": {"matchLabels": {"ray.io/cluster": plan.cluster.name, "ray.io/node-type": "head"}},
        }
        rules.append({"to": [peer], "ports": [{"protocol": "TCP", "port": port} for port in RAY_PORTS]})
    return rules


def profile_list(plan: ClusterPlan) -> list[Body]:
    """KubeSpawner's `profile_list`; the first profile is what a user gets who does not choose."""
    found = [_profile(profile) for profile in profiles(plan)]
    return [each | {"default": True} if index == 0 else each for index, each in enumerate(found)]


def _profile(profile: Profile) -> Body:
    override: dict[str, Any] = {
        "image": profile.image,
        "cpu_guarantee": float(profile.cpu),
        "cpu_limit": float(profile.cpu),
        "mem_guarantee": int(profile.memory),
        "mem_limit": int(profile.memory),
        "volumes": {SHM: {"name": SHM, "emptyDir": {"medium": "Memory", "sizeLimit": str(int(profile.shm))}}},
        "volume_mounts": {SHM: {"name": SHM, "mountPath": "/dev/shm"}},
    }
    if profile.resource is not None:
        name, count = profile.resource
        override["extra_resource_guarantees"] = {name: str(count)}
        override["extra_resource_limits"] = {name: str(count)}
    if profile.node_selector:
        override["node_selector"] = dict(profile.node_selector)
    if profile.tolerations:
        override["tolerations"] = [dict(toleration) for toleration in profile.tolerations]
    if profile.environment:
        override["environment"] = dict(profile.environment)
    return {
        "slug": profile.slug,
        "display_name": profile.title,
        "description": profile.description,
        "kubespawner_override": override,
    }
