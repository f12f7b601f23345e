"""What a worker process finds out about the machine it is on, before anything of Neuron is imported."""

import os
import resource
import socket
import struct
from pathlib import Path

from raytrain_eks.train.neuron_environment import Place

SYS = Path("/sys")
SIOCGIFADDR = 0x8915
"""linux/sockios.h: the IPv4 address of an interface."""


def look(rank: int, node: int, local_rank: int, address: str) -> Place:
    """The place of this process; raises its limit of open files as far as it may. `address` is the node's."""
    major, minor = os.uname().release.split(".")[:2]
    return Place(
        rank=rank,
        node=node,
        local_rank=local_rank,
        cores=os.environ.get("NEURON_RT_VISIBLE_CORES", ""),
        instance=instance_type(),
        interface=interface_of(address),
        efa=has_efa(),
        kernel=(int(major), int("".join(filter(str.isdigit, minor)))),
        open_files=raise_open_files(),
    )


def instance_type(sys: Path = SYS) -> str:
    """The EC2 type as the hypervisor tells it, empty elsewhere.

    Instances on the Nitro system, as all with Trainium are, have it as the product's name of their DMI table.
    """
    try:
        vendor = (sys / "class/dmi/id/sys_vendor").read_text().strip()
        return (sys / "class/dmi/id/product_name").read_text().strip() if vendor == "Amazon EC2" else ""
    except OSError:
        return ""


def has_efa(sys: Path = SYS) -> bool:
    """Whether a device of the EFA driver is here: an InfiniBand device whose driver is called efa."""
    devices = (sys / "class/infiniband").glob("*/device/driver")
    return any(driver.resolve().name == "efa" for driver in devices)


def interface_of(address: str) -> str:
    """The name of the network interface that has an IPv4 or IPv6 address; empty when none has it."""
    if ":" in address:
        return _interface6(address)
    import fcntl

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # an interface without an IPv4 address
                continue
            if socket.inet_ntoa(answer[20:24]) == address:
                return name
    return ""


def _interface6(address: str, table: Path = Path("/proc/net/if_inet6")) -> str:
    wanted = socket.inet_pton(socket.AF_INET6, address).hex()
    lines = table.read_text().splitlines() if table.exists() else []
    return next((line.split()[5] for line in lines if line.split()[0] == wanted), "")


def raise_open_files() -> int:
    """Raise this process's limit of open files to the most it may have, and tell it."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return 2**63 - 1 if most == resource.RLIM_INFINITY else most


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    held = []
    try:
        for _ in range(count):
            one = socket.socket()
            held.append(one)
            one.bind(("", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
