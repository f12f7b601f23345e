"""What an NCCL log (NCCL_DEBUG=INFO) says about the network that was really taken, in plain words.

NCCL tries the plugin aws-ofi-nccl (its network is called `AWS Libfabric`, later `Libfabric`), then InfiniBand verbs,
then TCP sockets, and goes on with the first that starts. The last one always starts: so a missing library or device
shows as nothing but a line among thousands. Versions 2.4 to 2.28 of NCCL and 1.4 to 1.16 of the plugin word it in
their own ways; all of those are read.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

LINK_LOCAL = "169.254."
"""Addresses of one machine: EKS Pod Identity's interface (pod-id-link0) has one, and no other node reaches it."""
_VERSION = re.compile(r"NCCL version ([0-9][\w.+-]*)")
_NETWORK = re.compile(r"(?:Using network|Initialized NET plugin|Assigned NET plugin) ([\w -]+?)(?: to comm)?\s*$")
_PLUGIN = re.compile(r"NET/OFI (?:Using|Initializing) aws-ofi-nccl ([0-9][\w.+-]*)")
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([\w-]+)(?:, fabric is ([\w-]+))?(?: \(found (\d+) nics\))?")
_SOCKETS = re.compile(r"NET/Socket ?: ?Using (.*)$")
_BOOTSTRAP = re.compile(r"Bootstrap ?: ?Using (?:\[\d+\])?([\w.-]+):(\S+?)<")
_INTERFACE = re.compile(r"\[\d+\]([\w.-]+):(\S+?)<")
_VIA = re.compile(r"via NET/([\w ]+?)/\d+(/GDRDMA)?")
_WARN = re.compile(r"NCCL WARN (.*)$")
_NO_PLUGIN = re.compile(r"Could not find:? ?libnccl-net|No plugin found|libnccl-net[\w.-]*: cannot open shared object")
_FAILED = re.compile(r"No eligible providers|initialization failed|Only EFA provider is supported|optimal provider")
_REFUSED = re.compile(r"(?:connect to|Connect to) (\S+?)(?:<\d+>)? (?:failed|returned).*(?:refused|No route|timed out)")


@dataclass
class NcclLog:
    """What one log, or those of all ranks together, say."""

    version: str | None = None
    networks: set[str] = field(default_factory=set)
    """As NCCL names them: `Libfabric`, `AWS Libfabric`, `IB`, `Socket`."""
    plugin: str | None = None
    """aws-ofi-nccl's version."""
    plugin_missing: bool = False
    plugin_failed: str | None = None
    """Its own last words, when it was found and did not start."""
    provider: str | None = None
    """libfabric's."""
    interfaces: int | None = None
    """Network cards that the plugin found."""
    gpu_direct: bool = False
    """Whether a channel reads GPU memory by itself (GDRDMA)."""
    channels: bool = False
    """Whether any channel over a network is listed, so that `gpu_direct` means something."""
    sockets: dict[str, str] = field(default_factory=dict)
    """Interface -> address, of bootstrap and TCP."""
    refused: str | None = None
    """An address that could not be reached."""
    warnings: list[str] = field(default_factory=list)

    @property
    def efa(self) -> bool:
        """Whether data goes over EFA, on every rank that said so."""
        return bool(self.networks) and all("Libfabric" in name for name in self.networks) and self.provider == "efa"

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self) | {"networks": sorted(self.networks)}


def of_data(data: dict[str, Any]) -> NcclLog:
    """What `NcclLog.as_data` wrote."""
    return NcclLog(**data | {"networks": set(data["networks"])})


def together(logs: list[NcclLog]) -> NcclLog:
    """What the logs of several ranks say together: a failure of one is one of all."""
    found = NcclLog()
    for log in logs:
        found.version, found.plugin = found.version or log.version, found.plugin or log.plugin
        found.provider = found.provider or log.provider
        found.networks |= log.networks
        found.plugin_missing = found.plugin_missing or log.plugin_missing
        found.plugin_failed = found.plugin_failed or log.plugin_failed
        if log.interfaces is not None:
            found.interfaces = min(log.interfaces, found.interfaces or log.interfaces)
        found.gpu_direct, found.channels = found.gpu_direct or log.gpu_direct, found.channels or log.channels
        found.sockets |= log.sockets
        found.refused = found.refused or log.refused
        found.warnings += [text for text in log.warnings if text not in found.warnings]
    return found


def read(lines: Iterable[str]) -> NcclLog:
    """What a log says. Lines of other programs in between are passed over; memory does not grow with the log."""
    found = NcclLog()
    for line in lines:
        if "NCCL" in line or "NET/" in line:
            _line(found, line.rstrip("\n"))
    return found


def _line(found: NcclLog, line: str) -> None:
    if match := _VERSION.search(line):
        found.version = match[1]
    # Internal networks are initialised beside the one that is taken; what is assigned, or used, decides.
    if (match := _NETWORK.search(line)) and ("Using" in line or "Assigned" in line or "Socket" in match[1]):
        found.networks.add(match[1].strip())
    if match := _PLUGIN.search(line):
        found.plugin = match[1]
    if match := _PROVIDER.search(line):
        found.provider = match[1]
        found.interfaces = int(match[3]) if match[3] else found.interfaces
    if match := _VIA.search(line):
        found.channels = True
        found.gpu_direct = found.gpu_direct or bool(match[2])
    found.plugin_missing = found.plugin_missing or bool(_NO_PLUGIN.search(line))
    if "NET/OFI" in line and _FAILED.search(line):
        found.plugin_failed = line[line.index("NET/OFI") :]
    if match := _BOOTSTRAP.search(line):
        found.sockets[match[1]] = match[2]
    if match := _SOCKETS.search(line):
        found.sockets |= dict(_INTERFACE.findall(match[1]))
    if match := _REFUSED.search(line):
        found.refused = match[1]
    if (match := _WARN.search(line)) and len(found.warnings) < 20 and match[1] not in found.warnings:
        found.warnings.append(match[1][:300])


def diagnose(log: NcclLog, where: str, *, efa: int, several_nodes: bool) -> Iterator[Diagnosis]:
    """Findings of a log. `efa`: EFA interfaces of each node; `several_nodes`: whether data must leave a node."""
    if log.version is None and not log.networks:
        fix = "set NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV"
        yield yellow("fabric.nccl", where, "the log holds nothing of NCCL", fix)
        return
    networks = " and ".join(sorted(log.networks)) or "none named"
    text = f"NCCL {log.version or '(version not said)'}, network {networks}"
    if log.efa:
        count = f" with {log.interfaces} interfaces" if log.interfaces else ""
        yield green("fabric.nccl", where, f"{text}: EFA{count}, aws-ofi-nccl {log.plugin or 'of unknown version'}")
        yield from _direct(log, where)
    elif efa and several_nodes:
        yield red("fabric.nccl", where, f"NET/{_taken(log)}: EFA is not in use ({text})", _why(log))
    elif efa:
        yield yellow("fabric.nccl", where, f"{text}: EFA is not in use, which one node does not need", _why(log))
    else:
        yield green("fabric.nccl", where, f"{text}, as expected without EFA")
    yield from _interfaces(log, where)
    if log.warnings:
        yield yellow("fabric.warnings", where, f"NCCL warns: {log.warnings[0]}", "see the log of the job")


def _taken(log: NcclLog) -> str:
    """The network that is to blame: sockets when any rank took them."""
    return "Socket" if "Socket" in log.networks or not log.networks else sorted(log.networks)[0]


def _why(log: NcclLog) -> str:
    """The fix that follows from what the log says about the plugin."""
    if log.plugin_failed is not None and log.plugin is None and log.plugin_missing:
        return "aws-ofi-nccl is missing: install it in the image (cluster_specs/images) and put it on LD_LIBRARY_PATH"
    if log.plugin is not None or log.plugin_failed is not None:
        said = f" ({log.plugin_failed})" if log.plugin_failed else ""
        return (
            f"aws-ofi-nccl started and found no EFA device{said}: ask for vpc.amazonaws.com/efa in requests and "
            "limits, and let the EFA device plugin run on the node; `fi_info -p efa` in the pod must list devices"
        )
    return (
        "NCCL found no libnccl-net.so: install aws-ofi-nccl in the image, which the EFA installer brings, and put its "
        "folder on LD_LIBRARY_PATH; cluster_specs/images has one"
    )


def _direct(log: NcclLog, where: str) -> Iterator[Diagnosis]:
    if log.channels and not log.gpu_direct:
        why = "data passes through host memory on its way to EFA (no channel says GDRDMA)"
        fix = "types with EFA from p4d on read GPU memory directly: FI_EFA_USE_DEVICE_RDMA=1, and a driver with dma-buf"
        yield yellow("fabric.gpu_direct", where, why, fix)


def _interfaces(log: NcclLog, where: str) -> Iterator[Diagnosis]:
    """Addresses that other nodes cannot reach, as interfaces of the bootstrap."""
    fix = "set NCCL_SOCKET_IFNAME to the pod's interface (eth0), or exclude more: ^lo,docker,veth,eni,pod-id-link"
    for name, address in sorted(log.sockets.items()):
        if address.startswith(LINK_LOCAL):
            why = f"NCCL may take {name} ({address}), which no other node reaches"
            yield red("fabric.interface", where, f"{why}: the first collective hangs", fix)
    if log.refused is not None:
        why = f"a rank could not reach {log.refused}"
        yield red("fabric.reach", where, why, f"security groups must allow all traffic among the nodes; {fix}")
