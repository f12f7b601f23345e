"""Environment variables of a pod, each with its reason.

What the libraries find by themselves today is not set: `FI_EFA_USE_DEVICE_RDMA` (libfabric uses RDMA where the device
has it; set to 1 it aborts on g5 and g6), `FI_EFA_FORK_SAFE` (not needed from kernel 5.15 on), `NCCL_PROTO` (chosen by
the aws-ofi-nccl plugin), `NEURON_RT_NUM_CORES` and `NEURON_RT_VISIBLE_CORES` (Ray gives each worker its own).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from posixpath import join

from raytrain_eks.manifests import accelerators, efa
from raytrain_eks.manifests.literal import kept
from raytrain_eks.plan.cluster import ClusterPlan, PodPlan


@dataclass(frozen=True, kw_only=True)
class Variable:
    """A variable with the reason why it has this value."""

    name: str
    value: str
    why: str


def derived(plan: ClusterPlan, pod: PodPlan) -> Iterator[Variable]:
    """The variables that follow from instance, network and storage, in a fixed order."""
    found = [
        *_network(plan, pod),
        *efa.variables(pod),
        *accelerators.variables(plan, pod),
        *_storage(plan),
        *_ray(plan),
    ]
    yield from (Variable(name=name, value=value, why=why) for name, value, why in found)


def entries(plan: ClusterPlan, pod: PodPlan) -> tuple[list[dict[str, object]], dict[str, str]]:
    """The container's `env`, and variable -> reason. What the file says wins over what is derived."""
    merged: dict[str, dict[str, object]] = {}
    whys: dict[str, str] = {}
    for variable in derived(plan, pod):
        merged[variable.name] = {"name": variable.name, "value": kept(variable.value)}
        whys[variable.name] = variable.why
    for name, secret in plan.cluster.secrets.items():
        reference = {"secretKeyRef": {"name": secret.name, "key": secret.key}}
        merged[name] = {"name": name, "valueFrom": reference}
        whys[name] = f"from the Secret {secret.name}, as `secrets` says"
    for name, value in pod.spec.environment.items():
        instead = f", instead of {merged[name]['value']}" if "value" in merged.get(name, {}) else ""
        merged[name] = {"name": name, "value": kept(value)}
        whys[name] = f"as the file says{instead}"
    return list(merged.values()), whys


def _network(plan: ClusterPlan, pod: PodPlan) -> Iterator[tuple[str, str, str]]:
    if pod.name == "head":
        return
    if plan.cluster.network.host_network:
        if pod.devices.gpus:
            why = (
                "the host's network holds interfaces that lead nowhere: loopback, docker's, other pods' (eni, veth), "
                "EKS Pod Identity's (pod-id-link). The ^ list is NCCL's own syntax; GLOO_SOCKET_IFNAME would crash on "
                "it and stays unset"
            )
            yield "NCCL_SOCKET_IFNAME", "^lo,docker,veth,eni,pod-id-link", why
        return
    one = "a pod of the VPC CNI has one interface besides loopback, eth0"
    if pod.devices.gpus:
        yield "NCCL_SOCKET_IFNAME", "eth0", f"NCCL's bootstrap, and its data without EFA: {one}"
    yield "GLOO_SOCKET_IFNAME", "eth0", f"gloo would look the host's name up and may get loopback: {one}"


def _storage(plan: ClusterPlan) -> Iterator[tuple[str, str, str]]:
    if (shared := plan.cluster.storage.shared) is not None:
        yield "RAYTRAIN_STORAGE", join(shared.mount, "runs"), "run folders lie on the storage that all pods share"
        yield "HF_HOME", join(shared.mount, ".cache", "huggingface"), "a model is fetched once, not once a pod"


def _ray(plan: ClusterPlan) -> Iterator[tuple[str, str, str]]:
    if plan.cluster.auth.mode == "disabled":
        why = "stated on every side, since Ray's default depends on whether a token file lies about"
        yield "RAY_AUTH_MODE", "disabled", why
