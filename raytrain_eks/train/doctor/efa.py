"""EFA as a pod sees it: kernel devices, libfabric's provider, and the plugin through which NCCL reaches it.

Each of them may be missing alone, and training then runs over TCP at a hundredth of the bandwidth, or hangs, without
an error. libfabric's `fi_info -p efa` ends with -61 (no data available) when the pod has no device.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from raytrain_eks.catalog import Instance
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.train.doctor.programs import Run, find, run

PLUGIN_FOLDERS = (
    *("/opt/amazon/ofi-nccl/lib", "/opt/amazon/ofi-nccl/lib64", "/opt/amazon/ofi-nccl/lib/x86_64-linux-gnu"),
    *("/opt/amazon/ofi-nccl/lib/aarch64-linux-gnu", "/opt/aws-ofi-nccl/lib", "/opt/aws-ofi-nccl/install/lib"),
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/lib"),
)
"""Where the EFA installer and AWS's containers put aws-ofi-nccl."""
ASK = "ask for vpc.amazonaws.com/efa in the pod's requests and limits; is the EFA device plugin running on the node?"


def providers(text: str) -> dict[str, set[str]]:
    """`fi_info`'s answer: provider -> its domains. An EFA interface has a domain for each kind of endpoint, such as
    rdmap79s0-rdm and rdmap79s0-dgrm, so interfaces are counted without that ending."""
    found: dict[str, set[str]] = {}
    provider = ""
    for line in text.splitlines():
        key, _, value = line.strip().partition(":")
        if key == "provider":
            provider = value.strip().partition(";")[0]
            found.setdefault(provider, set())
        elif key == "domain" and provider:
            found[provider].add(re.sub(r"-(rdm|dgrm)\Z", "", value.strip()))
    return found


def examine(
    where: str,
    instance: Instance | None,
    *,
    several_nodes: bool,
    ask: Run = run,
    sys: Path = Path("/sys"),
    dev: Path = Path("/dev"),
    environment: Mapping[str, str] = os.environ,
) -> Iterator[Diagnosis]:
    """EFA's devices, provider and plugin. Nothing where the instance has no EFA and none was found."""
    devices = [
        entry.parent.parent.name for entry in (sys / "class/infiniband").glob("*/device/driver") if _is_efa(entry)
    ]
    expected = instance.efa if instance is not None else 0
    if not devices and not expected:
        return
    verbs = sorted(path.name for path in (dev / "infiniband").glob("uverbs*"))
    yield _devices(where, instance, len(devices), len(verbs), several_nodes)
    if not verbs:
        return
    yield _provider(where, len(verbs), ask)
    if instance is not None and instance.vendor == "nvidia":
        yield _plugin(where, environment)
    if environment.get("FI_PROVIDER", "efa") != "efa":
        why = f"FI_PROVIDER={environment['FI_PROVIDER']}: libfabric takes another network than EFA"
        yield red("worker.efa.environment", where, why, "set FI_PROVIDER=efa, or leave it out")


def _is_efa(driver: Path) -> bool:
    return driver.resolve().name == "efa"


def _devices(where: str, instance: Instance | None, node: int, pod: int, several: bool) -> Diagnosis:
    id, all = "worker.efa.devices", max(node, instance.efa if instance is not None else 0)
    if pod and pod >= all:
        return green(id, where, f"{pod} EFA interfaces")
    if pod:
        fix = "right for a pod with a part of the node; else ask for all of them"
        return yellow(id, where, f"{pod} EFA interfaces in the pod, {all} on the node", fix)
    why = f"the node has {all} EFA interfaces, and none is in this pod (/dev/infiniband has no uverbs)"
    return red(id, where, why, ASK) if several else yellow(id, where, f"{why}; fine while one node is all", ASK)


def _provider(where: str, interfaces: int, ask: Run) -> Diagnosis:
    id = "worker.efa.provider"
    if find("fi_info") is None and ask is run:
        fix = "an image with the EFA installer's libfabric; cluster_specs/images has one"
        return red(id, where, "fi_info is not here: the image has no libfabric for EFA", fix)
    answer = ask("fi_info", "-p", "efa")
    domains = providers(answer or "").get("efa", set())
    version = _version(ask("fi_info", "--version") or "")
    if not domains:
        return red(id, where, f"libfabric{version} finds no EFA provider (fi_info -p efa is empty)", ASK)
    if len(domains) < interfaces:
        why = f"libfabric{version} finds {len(domains)} of {interfaces} EFA interfaces"
        return yellow(id, where, why, "a newer EFA installer in the image, or fix the node")
    return green(id, where, f"libfabric{version} finds {len(domains)} EFA interfaces")


def _version(text: str) -> str:
    found = re.search(r"libfabric: (\S+)", text)
    return f" {found[1]}" if found else ""


def _plugin(where: str, environment: Mapping[str, str]) -> Diagnosis:
    """libnccl-net*.so, which NCCL opens by name: so its folder must be on the loader's path."""
    id = "worker.efa.plugin"
    on_path = [Path(part) for part in environment.get("LD_LIBRARY_PATH", "").split(os.pathsep) if part]
    if found := _first(on_path):
        return green(id, where, f"aws-ofi-nccl is on LD_LIBRARY_PATH: {found}")
    if found := _first([Path(part) for part in PLUGIN_FOLDERS]):
        why = f"aws-ofi-nccl is at {found}; whether NCCL finds it depends on the image's loader path"
        return yellow(id, where, why, f"put {found.parent} on LD_LIBRARY_PATH; `doctor worker` shows what NCCL took")
    fix = "install aws-ofi-nccl in the image; the EFA installer brings it, see cluster_specs/images"
    return red(id, where, "no libnccl-net*.so: NCCL has no way to EFA and takes TCP", fix)


def _first(folders: list[Path]) -> Path | None:
    return next((path for folder in folders for path in sorted(folder.glob("libnccl-net*.so"))), None)
