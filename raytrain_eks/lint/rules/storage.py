"""RT70x: FSx for Lustre as AWS accepts it, file systems that are never bound, access modes."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import amount, items, mapping, text
from raytrain_eks.spec.source import Path

DRIVER = "fsx.csi.aws.com"
THROUGHPUT = {"PERSISTENT_1": (50, 100, 200), "PERSISTENT_2": (125, 250, 500, 1000)}
"""MB/s per TiB that AWS accepts with SSD storage (FSx for Lustre user guide, `PerUnitStorageThroughput`)."""
HARD_DISKS = (12, 40)
"""The same for PERSISTENT_1 with HDD storage."""
TYPES = ("SCRATCH_1", "SCRATCH_2", "PERSISTENT_1", "PERSISTENT_2")


def _lustre(bundle: Bundle) -> Iterator[tuple[Resource, Path, Mapping[str, Any], str]]:
    """Every description of a Lustre file system: its object, path, fields and storage type."""
    for found in bundle.of("storage.k8s.io", "StorageClass"):
        if text(found.get("provisioner")) == DRIVER:
            parameters = mapping(found.get("parameters"))
            yield found, (*found.base, "parameters"), parameters, text(parameters.get("storageType")) or "SSD"
    for found in bundle.of("fsx.services.k8s.aws", "FileSystem"):
        if text(found.get("spec", "fileSystemType")) in ("LUSTRE", ""):
            fields = mapping(found.get("spec", "lustreConfiguration"))
            path = (*found.base, "spec", "lustreConfiguration")
            yield found, path, fields, text(found.get("spec", "storageType")) or "SSD"


def _throughputs(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for found, path, fields, storage in _lustre(bundle):
        kind = text(fields.get("deploymentType")) or "SCRATCH_1"
        given = text(fields.get("perUnitStorageThroughput"))
        place = (*path, "perUnitStorageThroughput" if given else "deploymentType")
        if kind not in TYPES:
            reason = f"{kind} is no deployment type"
            fix = f"write one of {', '.join(TYPES)}"
            yield Hit(on=found, path=(*path, "deploymentType"), reason=reason, fix=fix)
            continue
        allowed = THROUGHPUT.get(kind, ()) + (HARD_DISKS if storage == "HDD" and kind == "PERSISTENT_1" else ())
        choices = ", ".join(map(str, allowed))
        if not allowed and given:
            reason = f"{kind} takes no perUnitStorageThroughput"
            fix = "leave it out, or write deploymentType: PERSISTENT_2 with 125, 250, 500 or 1000"
            yield Hit(on=found, path=place, reason=reason, fix=fix)
        elif allowed and not given:
            reason = f"{kind} needs perUnitStorageThroughput"
            yield Hit(on=found, path=place, reason=reason, fix=f"write one of {choices} (MB/s per TiB)")
        elif allowed and given not in map(str, allowed):
            reason = f"perUnitStorageThroughput {given} is not offered for {kind}"
            yield Hit(on=found, path=place, reason=reason, fix=f"write one of {choices} (MB/s per TiB)")


def _sizes(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    classes = {
        found.name: text(fields.get("deploymentType")) or "SCRATCH_1"
        for found, _, fields, storage in _lustre(bundle)
        if found.kind == "StorageClass" and storage == "SSD"
    }
    for claim in bundle.of("", "PersistentVolumeClaim"):
        kind = classes.get(text(claim.get("spec", "storageClassName")))
        size = amount(claim.get("spec", "resources", "requests", "storage"))
        if kind and size is not None:
            path = (*claim.base, "spec", "resources", "requests", "storage")
            yield from _size(claim, path, kind, size / 2**30)
    for found, _, fields, storage in _lustre(bundle):
        size = amount(found.get("spec", "storageCapacity")) if found.kind == "FileSystem" else None
        if size is not None and storage == "SSD":
            kind = text(fields.get("deploymentType")) or "SCRATCH_1"
            yield from _size(found, (*found.base, "spec", "storageCapacity"), kind, size)


def _size(on: Resource, path: Path, kind: str, size: Decimal) -> Iterator[Hit]:
    step = 3600 if kind == "SCRATCH_1" else 2400
    if size in (1200, 2400) or size % step == 0:
        return
    above = (int(size) // step + 1) * step
    reason = f"a {kind} file system has 1200 GiB, 2400 GiB or a multiple of {step} GiB, not {size.normalize():f}"
    near = f"{1200 if size < 1200 else above}Gi".removesuffix("" if on.kind == "PersistentVolumeClaim" else "Gi")
    yield Hit(on=on, path=path, reason=reason, fix=f"write {near}")


def _paths(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for found, path, fields, _ in _lustre(bundle):
        names = ("s3ImportPath", "s3ExportPath", "importPath", "exportPath", "autoImportPolicy")
        given = [name for name in names if name in fields]
        if text(fields.get("deploymentType")) == "PERSISTENT_2" and given:
            reason = f"PERSISTENT_2 takes no {given[0]}: its links to S3 are data repository associations"
            fix = "create the association outside (`aws fsx create-data-repository-association`), or use PERSISTENT_1"
            yield Hit(on=found, path=(*path, given[0]), reason=reason, fix=fix)


def _unbound(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    handles = [
        text(volume.get("spec", "csi", "volumeHandle"))
        for volume in bundle.of("", "PersistentVolume")
        if text(volume.get("spec", "csi", "driver")) == DRIVER
    ]
    declared = any(name.startswith("persistentvolume/") for name in settings.external)
    for found in bundle.of("fsx.services.k8s.aws", "FileSystem"):
        if not handles and not declared:
            reason = "no PersistentVolume of these files binds the file system, so no pod can mount it"
            if any(text(other.get("provisioner")) == DRIVER for other in bundle.of("storage.k8s.io", "StorageClass")):
                reason += "; the StorageClass creates another one"
            fix = f"add a PersistentVolume (driver {DRIVER}, volumeHandle: its id) and a claim with volumeName"
            yield Hit(on=found, path=(*found.base, "metadata", "name"), reason=reason, fix=fix)


def _modes(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    blocks = {
        found.name
        for found in bundle.of("storage.k8s.io", "StorageClass")
        if text(found.get("provisioner")) in ("ebs.csi.aws.com", "kubernetes.io/aws-ebs", "ebs.csi.eks.amazonaws.com")
    } | {"gp2", "gp3"}
    for claim in bundle.of("", "PersistentVolumeClaim"):
        name = text(claim.get("spec", "storageClassName"))
        if "ReadWriteMany" in items(claim.get("spec", "accessModes")) and name in blocks:
            if text(claim.get("spec", "volumeMode")) == "Block":
                continue
            reason = f"{name} gives EBS volumes, which one node mounts at a time, and ReadWriteMany is asked for"
            path = (*claim.base, "spec", "accessModes")
            yield Hit(on=claim, path=path, reason=reason, fix="use FSx for Lustre or EFS, or write ReadWriteOnce")


RULES = (
    Rule(
        id="RT701",
        severity="error",
        title="FSx for Lustre: deployment type and throughput do not go together",
        why="AWS refuses the file system when the claim is made: perUnitStorageThroughput belongs to PERSISTENT types "
        "only, and has fixed steps (PERSISTENT_1 50, 100, 200; PERSISTENT_2 125, 250, 500, 1000 MB/s per TiB). The "
        "claim stays Pending with the reason in its events (aws-fsx-csi-driver#232).",
        fix="Leave it out for SCRATCH types; write a step for PERSISTENT ones.",
        check=_throughputs,
    ),
    Rule(
        id="RT702",
        severity="error",
        title="FSx for Lustre: a size that is not offered",
        why="File systems come in 1200 GiB, then multiples of 2400 GiB (3600 for SCRATCH_1); others are refused.",
        fix="Write the next size.",
        check=_sizes,
    ),
    Rule(
        id="RT703",
        severity="error",
        title="FSx for Lustre: import and export paths on PERSISTENT_2",
        why="ImportPath, ExportPath and AutoImportPolicy are for SCRATCH and PERSISTENT_1 types. PERSISTENT_2 is tied "
        "to S3 by data repository associations, which neither the CSI driver nor the ACK controller creates.",
        fix="Create the association outside.",
        check=_paths,
    ),
    Rule(
        id="RT704",
        severity="error",
        title="A file system that nothing binds",
        why="The ACK controller creates an FSx file system, not a volume: pods mount it only by a PersistentVolume "
        "with its id and a claim. A StorageClass of the CSI driver creates a second file system instead.",
        fix="Add the PersistentVolume and the claim, or declare it: --external persistentvolume/NAME.",
        check=_unbound,
    ),
    Rule(
        id="RT705",
        severity="error",
        title="A block volume for many nodes",
        why="EBS volumes with a file system are mounted by one node. The claim with ReadWriteMany is refused.",
        fix="Use a shared file system.",
        check=_modes,
    ),
)
