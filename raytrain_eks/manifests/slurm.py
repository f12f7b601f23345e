"""Slurm by Slinky's operator (slinky.slurm.net/v1beta1): Controller, one NodeSet for each group, LoginSet.

Rules that are easy to get wrong:
- The operator takes the keys of a cluster from Secrets that exist; it makes none, and a Controller without them is
  refused.
- slurmd runs in pods of a NodeSet, as dynamic nodes: their devices are told by `extraConf`, and found by gres.conf,
  which reaches them by way of the Controller.
- The service of a LoginSet is an SSH door; only a ClusterIP keeps it inside.
- The accounting database is MariaDB from elsewhere, so there is no accounting here.
"""

from collections.abc import Iterator

from raytrain_eks.manifests import names
from raytrain_eks.manifests.group_pod import group_pod, on_the_head
from raytrain_eks.manifests.metadata import metadata
from raytrain_eks.manifests.object import Body, Object
from raytrain_eks.plan.cluster import ClusterPlan, GroupPlan
from raytrain_eks.spec.cluster_hpc import Login, Slurm

SYSTEM = "slurm"
API = "slinky.slurm.net/v1beta1"
IMAGES = "ghcr.io/slinkyproject"
OS = "ubuntu24.04"
SLURM_KEY, JWT_KEY = "slurm.key", "jwt.key"


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """Everything of the Slurm cluster; nothing without `slurm` in the file."""
    slurm = plan.cluster.slurm
    if slurm is None:
        return
    if devices(partitions(plan, slurm)):
        yield gres(plan, slurm)
    yield controller(plan, slurm)
    for index, group in enumerate(partitions(plan, slurm)):
        yield node_set(plan, slurm, group, default=index == 0)
    if slurm.login is not None:
        yield login_set(plan, slurm, slurm.login)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What must be there before, and what is shared."""
    slurm = plan.cluster.slurm
    if slurm is None:
        return
    namespace, secret = plan.cluster.namespace, keys(plan, slurm)
    yield (
        f"Slurm: the Secret {secret} must exist: kubectl -n {namespace} create secret generic {secret} "
        f"--from-file={SLURM_KEY}=FILE --from-file={JWT_KEY}=FILE, with 1024 and 32 random bytes in the files"
    )
    yield "Slurm: its nodes are the groups' own, which Ray's autoscaler asks for too; who comes first has them"
    if slurm.image is None:
        yield "Slurm: Slinky's image of slurmd has no torch and no EFA; write `slurm: {image: …}`, one built on it"


def partitions(plan: ClusterPlan, slurm: Slurm) -> list[GroupPlan]:
    """The groups that become partitions, in order."""
    return [plan.group(name) for name in slurm.groups] or list(plan.groups)


def devices(groups: list[GroupPlan]) -> list[str]:
    """The kinds of devices (Slurm: GRES) of the groups."""
    return sorted({kind for group in groups if (kind := _device(group))})


def _device(group: GroupPlan) -> str | None:
    return "gpu" if group.devices.gpus else "neuron" if group.devices.neuron_devices else None


def keys(plan: ClusterPlan, slurm: Slurm) -> str:
    """The Secret with the cluster's keys."""
    return slurm.keys or names.resource(plan.cluster.name, "slurm-keys")


def _name(plan: ClusterPlan, *parts: str) -> str:
    return names.resource(plan.cluster.name, "slurm", *parts)


def _image(slurm: Slurm, program: str) -> str:
    return f"{IMAGES}/{program}:{slurm.version}-{OS}"


def gres(plan: ClusterPlan, slurm: Slurm) -> Object:
    """gres.conf: how nodes find their devices."""
    lines = []
    for group in partitions(plan, slurm):
        count = group.devices.neuron_devices
        line = f"Name=neuron File=/dev/neuron[0-{count - 1}]" if count > 1 else "Name=neuron File=/dev/neuron0"
        lines.append(line if count else "AutoDetect=nvidia" if group.devices.gpus else "")
    text = "".join(f"{line}\n" for line in dict.fromkeys(filter(None, lines)))
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(plan, _name(plan, "gres"))}
    why = "NVIDIA's devices are found by the driver's files; Neuron's have to be named"
    return Object(SYSTEM, body | {"data": {"gres.conf": text}}, {"data": why})


def controller(plan: ClusterPlan, slurm: Slurm) -> Object:
    """slurmctld, with the volume of its state."""
    found = devices(partitions(plan, slurm))
    persistence: Body = {
        "enabled": True,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": slurm.state}},
    }
    if slurm.storage_class is not None:
        persistence["storageClassName"] = slurm.storage_class
    spec: Body = {
        "clusterName": slurm.name or plan.cluster.name.replace(".", "-")[:40],
        "slurmKeyRef": {"name": keys(plan, slurm), "key": SLURM_KEY},
        "jwtHs256KeyRef": {"name": keys(plan, slurm), "key": JWT_KEY},
        "slurmctld": {"image": _image(slurm, "slurmctld")},
        "persistence": persistence,
        "template": {"spec": on_the_head(plan)},
    }
    if found:
        spec |= {
            "configFileRefs": [{"name": _name(plan, "gres")}],
            "extraConf": f"GresTypes={','.join(found)}",
        }
    whys = {
        "spec.slurmKeyRef": "the operator makes no keys: they are in a Secret that exists",
        "spec.persistence": "jobs that wait and run survive the controller's pod",
        "spec.template": "it runs no training, so it goes where Ray's head goes",
    }
    return Object(SYSTEM, _body(plan, "Controller", _name(plan), spec), whys)


def node_set(plan: ClusterPlan, slurm: Slurm, group: GroupPlan, *, default: bool) -> Object:
    """A group's pods with slurmd in the place of Ray, as a partition of its own."""
    parts = group_pod(plan, group)
    device, count = _device(group), group.devices.gpus or group.devices.neuron_devices
    told = [f"Features={group.name}", *([f"Gres={device}:{count}"] if device else [])]
    template: Body = {"metadata": parts.metadata} if parts.metadata else {}
    config = "State=UP MaxTime=UNLIMITED" + (" Default=YES" if default else "")
    spec: Body = {
        "controllerRef": {"name": _name(plan)},
        "replicas": group.start_pods,
        "extraConf": " ".join(told),
        "partition": {"enabled": True, "config": config},
        "slurmd": {"image": slurm.image or _image(slurm, "slurmd")} | parts.container,
        "template": template | {"spec": parts.spec},
        "workloadDisruptionProtection": True,
    }
    whys = {
        "spec.replicas": "as many as the group has nodes at the beginning",
        "spec.extraConf": "what a dynamic node tells the controller of itself",
        "spec.slurmd": f"devices, EFA, folders and variables of the group {group.name}",
        "spec.workloadDisruptionProtection": "a node with a job is not drained by an eviction",
    }
    return Object(SYSTEM, _body(plan, "NodeSet", _name(plan, group.name), spec), whys)


def login_set(plan: ClusterPlan, slurm: Slurm, login: Login) -> Object:
    """Where people log in, inside of the cluster: kubectl port-forward leads there."""
    spec: Body = {
        "controllerRef": {"name": _name(plan)},
        "replicas": 1,
        "sssdConfRef": {"name": login.sssd.name, "key": login.sssd.key},
        "login": {"image": _image(slurm, "login")},
        "service": {"spec": {"type": "ClusterIP"}},
        "template": {"spec": on_the_head(plan)},
    }
    if login.root_keys:
        spec["rootSshAuthorizedKeys"] = "".join(f"{key}\n" for key in login.root_keys)
    why = {"spec.service": "an SSH door belongs inside: kubectl port-forward leads to it"}
    return Object(SYSTEM, _body(plan, "LoginSet", _name(plan, "login"), spec), why)


def _body(plan: ClusterPlan, kind: str, name: str, spec: Body) -> Body:
    return {"apiVersion": API, "kind": kind, "metadata": metadata(plan, name), "spec": spec}
