"""GPUs and NeuronCores towards Ray: what `ray start` is told, and what the Neuron runtime and compiler need.

Everything is stated, nothing is left to detection. KubeRay maps only `aws.amazon.com/neuroncore` to `neuron_cores`
(controllers/ray/common/pod.go), Ray's autoscaler maps neither that nor `aws.amazon.com/neuron`, and a head on a GPU
node would advertise the host's GPUs (ray-project/kuberay#2098).
"""

import json
from collections.abc import Iterator
from posixpath import join

from raytrain_eks.plan.cluster import ClusterPlan, PodPlan


def ray_start_params(plan: ClusterPlan, pod: PodPlan) -> tuple[dict[str, str], dict[str, str]]:
    """`rayStartParams` and their reasons: whole CPUs, GPUs, NeuronCores where there are any.

    `resources` is a word of a shell command and JSON at once: KubeRay strips one pair of single quotes before it reads
    the JSON, bash does the same (ray-project/kuberay#1758).
    """
    params = {"num-cpus": str(pod.num_cpus), "num-gpus": str(pod.devices.gpus)}
    whys = {"num-cpus": pod.why["num_cpus"]}
    if pod.name == "head":
        whys["num-gpus"] = "the head advertises no accelerators, whatever its node has"
    else:
        whys["num-gpus"] = pod.why.get("accelerators", "none") if pod.devices.gpus else "the group has no GPUs"
    scratch = plan.cluster.storage.scratch
    if scratch is not None and pod.name != "head":
        params["object-spilling-directory"] = join(scratch.mount, "spill")
        whys["object-spilling-directory"] = "objects that leave memory go to the scratch disks, not to the root volume"
    if pod.devices.neuron_cores:
        params["resources"] = f"'{json.dumps({'neuron_cores': pod.devices.neuron_cores})}'"
        whys["resources"] = pod.why["neuron_cores"]
    return params, whys


def variables(plan: ClusterPlan, pod: PodPlan) -> Iterator[tuple[str, str, str]]:
    """(name, value, reason) of what Neuron's runtime and compilers need; none for other pods."""
    if not pod.devices.neuron_devices:
        return
    if pod.instance is not None and len(pod.instance.lnc_allowed) > 1:
        why = "physical cores in a logical one, as the nodes are set up; the compiler's -lnc must be the same"
        yield "NEURON_LOGICAL_NC_CONFIG", str(pod.devices.logical_core), why
    if not plan.cluster.network.host_network:
        yield "CCOM_SOCKET_IFNAME", "eth0", "the bootstrap of Neuron's collectives: a pod has one interface, eth0"
    why = "one process for each core: without a limit their malloc arenas take the host's memory (Neuron's examples)"
    yield "MALLOC_ARENA_MAX", "64", why
    shared = plan.cluster.storage.shared
    if shared is not None:
        cache = join(shared.mount, ".cache", "neuron")
        reason = "compiling takes minutes to hours; with a cache of its own every pod would compile everything again"
        yield "NEURON_COMPILE_CACHE_URL", cache, f"{reason} (torch-neuronx with XLA)"
        yield "TORCH_NEURONX_NEFF_CACHE_DIR", join(cache, "neff"), f"{reason} (TorchNeuron, eager and torch.compile)"
