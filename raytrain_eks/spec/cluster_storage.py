"""What the cluster's pods see as folders: shared file systems, models, scratch space, existing claims."""

import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PositiveInt

from raytrain_eks.spec import quantity
from raytrain_eks.spec.kubernetes import SECURITY_GROUP, SUBNET, ObjectName, refused, worded
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Memory

GIBI = Decimal(2**30)
THROUGHPUT = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000), "SCRATCH_1": (), "SCRATCH_2": ()}
"""Deployment type -> the MB/s per TiB it may be bought with (FSx for Lustre, SSD); scratch types take none."""

_SYSTEM = {
    "bin",
    "boot",
    "dev",
    "etc",
    "home",
    "lib",
    "lib64",
    "opt",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "usr",
    "var",
}
"""Folders at the top of an image that hold what it runs."""


def _covers_the_image(path: str) -> bool:
    first, *rest = path.strip("/").split("/")
    return (first in _SYSTEM and (not rest or first in ("dev", "proc", "sys"))) or path == "/home/ray"


MountPath = Annotated[
    str,
    worded(re.compile(r"/[^:\0]*[^:\0/]\Z").match, "must be an absolute path other than /, without a colon"),
    refused(
        lambda path: not path.isprintable() or {"", ".", ".."} & set(path[1:].split("/")),
        "must be written plainly: without `.`, `..`, `//` and control characters",
    ),
    refused(_covers_the_image, "would hide what the image needs there; for example /shared, /models or /mnt/data"),
]
FileSystemId = Annotated[str, worded(re.compile(r"fs-[0-9a-f]{8,40}\Z").match, "must look like fs-0123456789abcdef0")]
SubnetId = Annotated[str, worded(SUBNET.match, "must look like subnet-0123456789abcdef0")]
SecurityGroupId = Annotated[str, worded(SECURITY_GROUP.match, "must look like sg-0123456789abcdef0")]
MountName = Annotated[
    str, worded(re.compile(r"[A-Za-z0-9_-]{1,8}\Z").match, "has at most 8 letters, digits, - and _, such as abcdefgh")
]
DnsName = Annotated[str, worded(re.compile(r"[A-Za-z0-9.-]{1,253}\Z").match, "must be a DNS name without a protocol")]
KmsKey = Annotated[str, worded(re.compile(r"[\w:/-]{1,2048}\Z").match, "must be a key's id, alias or ARN")]
BucketUrl = Annotated[
    str, worded(re.compile(r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/.*)?\Z").match, "must look like s3://bucket/prefix")
]


def lustre_size(wanted: Decimal, deployment: str = "PERSISTENT_2") -> int:
    """GiB of the smallest legal file system that holds `wanted` GiB: 1200, 2400, then multiples of 2400 (3600 for
    SCRATCH_1). Of more than Kubernetes can write the largest."""
    if wanted <= 2400:
        return 1200 if wanted <= 1200 else 2400
    step = 3600 if deployment == "SCRATCH_1" else 2400
    most = quantity.MOST // 2**30 // step * step
    return min(-(-int(wanted.to_integral_value(ROUND_CEILING)) // step) * step, most)


LustreSize = Annotated[Memory, quantity.sized(lambda wanted: f"{lustre_size(wanted)}Gi")]


class FsxLustre(Model):
    """Amazon FSx for Lustre: a parallel file system in one zone. Without `filesystem` the CSI driver creates it."""

    kind: Literal["fsx-lustre"] = "fsx-lustre"
    """Amazon FSx for Lustre."""

    mount: MountPath = "/shared"
    """Where every pod sees it."""

    size: LustreSize = "1200Gi"
    """Its capacity: 1200Gi, 2400Gi, and from there in steps of 2400Gi (3600Gi for SCRATCH_1)."""

    deployment: Literal["PERSISTENT_2", "PERSISTENT_1", "SCRATCH_2", "SCRATCH_1"] = "PERSISTENT_2"
    """The deployment type; scratch ones keep no replica of the data."""

    throughput: PositiveInt | None = None
    """MB/s for each TiB, which only persistent types have. None: the type's lowest."""

    compression: bool = True
    """LZ4 compression of the data."""

    bucket: BucketUrl | None = None
    """An S3 bucket and prefix whose objects appear as files. PERSISTENT_2 links it by a data repository association."""

    provision: Literal["csi", "ack"] = "csi"
    """Who creates it: the FSx CSI driver from a claim, or the ACK controller from a FileSystem object."""

    subnet: SubnetId | None = None
    """The subnet that a new file system lies in, in the cluster's zone. None: the only one of `network.subnets.ids`."""

    security_groups: list[SecurityGroupId] = []
    """Security groups of a new file system, which let Lustre in from the nodes (TCP 988 and 1018-1023).
    None given: those of `network.security_groups.ids`."""

    filesystem: FileSystemId | None = None
    """An existing file system to use instead of a new one; needs `mount_name`."""

    mount_name: MountName | None = None
    """The existing file system's mount name, as DescribeFileSystems gives it."""

    dns: DnsName | None = None
    """The existing file system's DNS name. None: its usual one, from its id and the region."""

    kms_key: KmsKey | None = None
    """The KMS key that encrypts it. None: the account's key for FSx."""

    backup_days: Annotated[int, Field(ge=0, le=90)] | None = None
    """How many days automatic backups stay, for persistent types, at most 90. None: no backups."""

    @rule
    def legal_for_deployment(self) -> Iterator[Problem]:
        gib = quantity.parse(self.size) / GIBI
        step = 3600 if self.deployment == "SCRATCH_1" else 2400
        if self.filesystem is None and gib != lustre_size(gib, self.deployment):
            why = f"{self.deployment} comes in 1200Gi, 2400Gi and multiples of {step}Gi"
            yield Problem(path="size", rule=why, fix=f"write {lustre_size(gib, self.deployment)}Gi")
        legal = THROUGHPUT[self.deployment]
        if self.throughput is not None and self.throughput not in legal:
            words = ", ".join(map(str, legal)) or "none: it comes with its own"
            fix = "leave it out" if not legal else "write one of these, or leave it out for the lowest"
            yield Problem(path="throughput", rule=f"{self.deployment} takes {words}", fix=fix)
        if (self.filesystem is None) != (self.mount_name is None):
            missing = "mount_name" if self.filesystem else "filesystem"
            why = "an existing file system is named by `filesystem` and `mount_name` together"
            yield Problem(path=missing, rule=why, fix="aws fsx describe-file-systems shows both")
        if self.backup_days is not None and self.deployment.startswith("SCRATCH"):
            yield Problem(path="backup_days", rule=f"{self.deployment} has no backups", fix="leave it out")


class Efs(Model):
    """Amazon EFS: a file system that reaches all zones of its region; for models and results, not for training data."""

    kind: Literal["efs"] = "efs"
    """Amazon EFS."""

    filesystem: FileSystemId
    """The existing file system; the CSI driver makes an access point in it."""

    mount: MountPath = "/models"
    """Where every pod sees it."""

    size: Memory = "1Ti"
    """What the claim asks for; EFS grows by itself and does not enforce it."""

    dynamic: bool = True
    """Make an access point of its own for the claim (true), or use the file system's root (false)."""


class Claim(Model):
    """A PersistentVolumeClaim that exists already in the cluster's namespace."""

    kind: Literal["claim"] = "claim"
    """An existing PersistentVolumeClaim."""

    claim: ObjectName
    """The claim's name."""

    mount: MountPath
    """Where every pod sees it."""

    read_only: bool = False
    """Mount it for reading only."""


class StorageClass(Model):
    """A new claim of a storage class that the Kubernetes cluster has already."""

    kind: Literal["storage-class"] = "storage-class"
    """A new claim of an existing storage class."""

    name: ObjectName
    """The storage class."""

    size: Memory
    """The claim's size."""

    mount: MountPath = "/shared"
    """Where every pod sees it."""

    access: Literal["ReadWriteMany", "ReadWriteOnce"] = "ReadWriteMany"
    """ReadWriteOnce only suits a cluster on a single node."""


Volume = Annotated[FsxLustre | Efs | Claim | StorageClass, Discriminator("kind")]
AnyVolume = FsxLustre | Efs | Claim | StorageClass


class Scratch(Model):
    """Space on the node's own disks, gone with the node."""

    kind: Literal["nvme", "root"] = "nvme"
    """`nvme`: the instance's NVMe disks as one RAID 0; `root`: the node's root volume."""

    mount: MountPath = "/scratch"
    """Where worker pods see it."""

    size: Memory | None = None
    """How much a pod may use. None: what the node has."""


class Storage(Model):
    """The folders that pods see."""

    shared: Volume | None = None
    """Read and written by every pod: data, checkpoints, compile cache."""

    models: Volume | None = None
    """Models to start from, and results."""

    scratch: Scratch | None = None
    """Space on the node's own disks. None: pods only have their root file system."""

    claims: list[Claim] = []
    """More claims that exist already."""

    @rule
    def temporary_files_are_a_pods_own(self) -> Iterator[Problem]:
        for name, volume in self.volumes():
            if volume.mount == "/tmp" or volume.mount.startswith("/tmp/ray"):
                why = "Ray keeps each pod's sockets and logs in /tmp/ray, and pods that share it break each other"
                at = f"{name}.mount" if name in type(self).model_fields else "claims"
                yield Problem(path=at, value=volume.mount, rule=why, fix="for example /shared")

    def volumes(self) -> list[tuple[str, AnyVolume]]:
        """(volume name, what it is) of everything that is mounted through a claim, in a fixed order."""
        named: list[tuple[str, AnyVolume | None]] = [("shared", self.shared), ("models", self.models)]
        named += [(f"claim-{claim.claim}".replace(".", "-")[:63].rstrip("-"), claim) for claim in self.claims]
        return [(name, volume) for name, volume in named if volume is not None]

    @rule
    def mounts_are_apart(self) -> Iterator[Problem]:
        mounts = [(name, volume.mount) for name, volume in self.volumes()]
        mounts += [("scratch", self.scratch.mount)] if self.scratch else []
        for index, (name, mount) in enumerate(mounts):
            for other, before in mounts[:index]:
                if mount == before or mount.startswith(f"{before}/") or before.startswith(f"{mount}/"):
                    why = f"{mount} of {name} and {before} of {other} cover each other"
                    yield Problem(path=name if name in type(self).model_fields else "claims", rule=why)
