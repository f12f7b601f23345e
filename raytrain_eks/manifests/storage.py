"""The folders that pods see: storage classes, volumes, claims, and ACK's FileSystem.

Rules that are easy to get wrong:
- Claims live in the cluster's own namespace: a pod cannot mount a claim of another one.
- FSx for Lustre is created in a fixed subnet, so binding may be immediate; `WaitForFirstConsumer` would start a GPU
  node first and let it idle for the ten minutes that the file system takes.
- PERSISTENT_2 refuses an import path; it is linked to S3 by data repository associations, which neither the CSI driver
  (kubernetes-sigs/aws-fsx-csi-driver#367) nor the ACK controller (its generator leaves them out) can make. The other
  types are linked by the driver's `s3ImportPath`.
- `reclaimPolicy: Retain`: with the default, deleting a claim deletes the file system with every checkpoint in it.
- Lustre 2.15 is the version that the client of Amazon Linux 2023 speaks; FSx's default is older.
"""

from collections.abc import Iterator
from typing import Any

from raytrain_eks.manifests import names
from raytrain_eks.manifests.metadata import metadata, wide
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.plan.network import fsx_security_groups, fsx_subnet
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_storage import THROUGHPUT, Efs, FsxLustre, StorageClass

SYSTEM = "storage"
LUSTRE_VERSION = "2.15"
MANY = ["ReadWriteMany"]
EFS_FOLDER = "/raytrain-eks"
"""Where the access points of an EFS file system begin."""
_FLOCK = "Lustre forbids file locks unless it is mounted with flock; datasets and tokenizers lock their caches"
RETAIN = "deleting the claim must not delete the data and the checkpoints in it"


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """What every volume of the file needs, in the order of applying."""
    for name, volume in plan.cluster.storage.volumes():
        if isinstance(volume, FsxLustre):
            yield from _fsx(plan, name, volume)
        elif isinstance(volume, Efs):
            yield from _efs(plan, name, volume)
        elif isinstance(volume, StorageClass):
            yield claim(plan, name, volume.size, volume.name, access=volume.access)


def awaited(plan: ClusterPlan) -> Iterator[str]:
    """`persistentvolume/name` of what can only be rendered once AWS has made the file system."""
    for name, volume in plan.cluster.storage.volumes():
        if isinstance(volume, FsxLustre) and volume.provision == "ack" and volume.filesystem is None:
            yield f"persistentvolume/{_volume_name(plan, name)}"


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What somebody has to do in AWS, since no controller does."""
    for name, volume in plan.cluster.storage.volumes():
        if not isinstance(volume, FsxLustre):
            continue
        if volume.provision == "ack" and volume.filesystem is None:
            yield (
                f"storage.{name}: the ACK controller makes the file system; then write its id and mount name as "
                f"`filesystem` and `mount_name` (kubectl -n {plan.cluster.namespace} get filesystem "
                f"{names.resource(plan.cluster.name, name)} -o yaml) and render again: until then the claim waits"
            )
        if volume.bucket and volume.deployment == "PERSISTENT_2":
            yield (
                f"storage.{name}: no controller links a PERSISTENT_2 file system to S3; once it exists: "
                f"aws fsx create-data-repository-association --region {plan.cluster.region}"
                f" --file-system-id {volume.filesystem or 'FILE_SYSTEM_ID'} --file-system-path /data"
                f" --data-repository-path {volume.bucket} --batch-import-meta-data-on-create"
                " --s3 'AutoImportPolicy={Events=[NEW,CHANGED,DELETED]},AutoExportPolicy={Events=[NEW,CHANGED]}'"
                f"; the objects then appear under {volume.mount}/data"
            )


def _fsx(plan: ClusterPlan, name: str, volume: FsxLustre) -> Iterator[Object]:
    if volume.provision == "ack":
        yield _file_system(plan, name, volume)
    if volume.filesystem is not None:
        yield _fsx_volume(plan, name, volume, volume.filesystem)
    if volume.filesystem is not None or volume.provision == "ack":
        yield claim(plan, name, volume.size, "", volume_name=_volume_name(plan, name))
        return
    parameters, whys = _fsx_parameters(plan, volume)
    yield _class(plan, name, "fsx.csi.aws.com", parameters, whys | {"mountOptions": _FLOCK}, mount_options=["flock"])
    yield claim(plan, name, volume.size, _class_name(plan, name))


def _fsx_parameters(plan: ClusterPlan, volume: FsxLustre) -> tuple[dict[str, str], dict[str, str]]:
    """Parameters of the CSI driver, all of them strings, and the reasons for them."""
    found = {
        "subnetId": fsx_subnet(plan.cluster, volume) or "",
        "securityGroupIds": ",".join(fsx_security_groups(plan.cluster, volume)),
        "deploymentType": volume.deployment,
        "fileSystemTypeVersion": LUSTRE_VERSION,
    }
    whys = {"parameters.fileSystemTypeVersion": "the Lustre that the client of Amazon Linux 2023 speaks"}
    if legal := THROUGHPUT[volume.deployment]:
        found["perUnitStorageThroughput"] = str(volume.throughput or legal[0])
        written = "as the file says" if volume.throughput else "the lowest, as the file says nothing"
        whys["parameters.perUnitStorageThroughput"] = f"MB/s for each TiB: {written}"
    if volume.compression:
        found["dataCompressionType"] = "LZ4"
        whys["parameters.dataCompressionType"] = "text shrinks to half, and less has to be read"
    if volume.kms_key:
        found["kmsKeyId"] = volume.kms_key
    if volume.backup_days is not None:
        found["automaticBackupRetentionDays"] = str(volume.backup_days)
    if volume.bucket and volume.deployment != "PERSISTENT_2":
        found |= {"s3ImportPath": volume.bucket, "autoImportPolicy": "NEW_CHANGED_DELETED"}
        whys["parameters.s3ImportPath"] = "the bucket's objects appear as files and are read when first opened"
        whys["parameters.autoImportPolicy"] = "the files follow the bucket"
    return found, whys


def _fsx_volume(plan: ClusterPlan, name: str, volume: FsxLustre, filesystem: str) -> Object:
    return _volume(
        plan, name, volume.size, fsx_source(plan, volume, filesystem), ["flock"], {"spec.mountOptions": _FLOCK}
    )


def fsx_source(plan: ClusterPlan, volume: FsxLustre, filesystem: str) -> dict[str, Any]:
    """What a PersistentVolume says of a file system that exists."""
    china = ".cn" if plan.cluster.region.startswith("cn-") else ""
    dns = volume.dns or f"{filesystem}.fsx.{plan.cluster.region}.amazonaws.com{china}"
    attributes = {"dnsname": dns, "mountname": volume.mount_name or ""}
    return {"driver": "fsx.csi.aws.com", "volumeHandle": filesystem, "volumeAttributes": attributes}


def _file_system(plan: ClusterPlan, name: str, volume: FsxLustre) -> Object:
    """ACK's FileSystem (fsx.services.k8s.aws/v1alpha1)."""
    lustre: dict[str, Any] = {"deploymentType": volume.deployment}
    if legal := THROUGHPUT[volume.deployment]:
        lustre["perUnitStorageThroughput"] = volume.throughput or legal[0]
    if volume.compression:
        lustre["dataCompressionType"] = "LZ4"
    if volume.backup_days is not None:
        lustre["automaticBackupRetentionDays"] = volume.backup_days
    whys = {"spec.fileSystemTypeVersion": "the Lustre that the client of Amazon Linux 2023 speaks"}
    if volume.bucket and volume.deployment != "PERSISTENT_2":
        lustre |= {"importPath": volume.bucket, "autoImportPolicy": "NEW_CHANGED_DELETED"}
        whys["spec.lustreConfiguration.importPath"] = "the controller's only link to S3: its type has no associations"
    spec: dict[str, Any] = {
        "fileSystemType": "LUSTRE",
        "fileSystemTypeVersion": LUSTRE_VERSION,
        "storageCapacity": int(quantity.parse(volume.size) / 2**30),
        "subnetIDs": [fsx_subnet(plan.cluster, volume) or ""],
        "securityGroupIDs": fsx_security_groups(plan.cluster, volume),
        "lustreConfiguration": lustre,
        "tags": [{"key": "Name", "value": names.resource(plan.cluster.name, name)}],
    }
    if volume.kms_key:
        spec["kmsKeyID"] = volume.kms_key
    keep = {"services.k8s.aws/deletion-policy": "retain"}
    if volume.filesystem is None:
        keep["raytrain-eks/lint-ignore"] = "RT704=its volume is rendered once the file system has an id"
    whys["metadata.annotations.services.k8s.aws/deletion-policy"] = RETAIN
    head = metadata(plan, names.resource(plan.cluster.name, name), keep)
    body = {"apiVersion": "fsx.services.k8s.aws/v1alpha1", "kind": "FileSystem", "metadata": head, "spec": spec}
    return Object(SYSTEM, body, whys)


def _efs(plan: ClusterPlan, name: str, volume: Efs) -> Iterator[Object]:
    if not volume.dynamic:
        csi = {"driver": "efs.csi.aws.com", "volumeHandle": volume.filesystem}
        yield _volume(plan, name, volume.size, csi, ["tls"], {"spec.mountOptions": "encrypted on the way"})
        yield claim(plan, name, volume.size, "", volume_name=_volume_name(plan, name))
        return
    parameters = {
        "provisioningMode": "efs-ap",
        "fileSystemId": volume.filesystem,
        "directoryPerms": "755",
        "basePath": EFS_FOLDER,
        "subPathPattern": "${.PVC.namespace}/${.PVC.name}",
        "ensureUniqueDirectory": "false",
    }
    whys = {
        "parameters.provisioningMode": "an access point of its own, whose user owns every file, whoever the pod is",
        "parameters.ensureUniqueDirectory": "the same claim finds the same files again after it was deleted",
    }
    yield _class(plan, name, "efs.csi.aws.com", parameters, whys)
    yield claim(plan, name, volume.size, _class_name(plan, name))


def _class_name(plan: ClusterPlan, name: str) -> str:
    """The name of a volume's StorageClass or PersistentVolume, which have no namespace."""
    return names.resource(plan.cluster.namespace, plan.cluster.name, name)


_volume_name = _class_name


def _class(
    plan: ClusterPlan,
    name: str,
    provisioner: str,
    parameters: dict[str, str],
    whys: dict[str, str],
    mount_options: list[str] | None = None,
) -> Object:
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": wide(plan, _class_name(plan, name)),
        "provisioner": provisioner,
        "parameters": parameters,
        "reclaimPolicy": "Retain",
        "volumeBindingMode": "Immediate",
    } | ({"mountOptions": mount_options} if mount_options else {})
    whys |= {
        "reclaimPolicy": RETAIN,
        "volumeBindingMode": "the place is fixed; waiting for a pod would start its node first and let it idle",
    }
    return Object(SYSTEM, body, whys)


def _volume(
    plan: ClusterPlan, name: str, size: str, csi: dict[str, Any], mount_options: list[str], whys: dict[str, str]
) -> Object:
    spec = {
        "capacity": {"storage": size},
        "volumeMode": "Filesystem",
        "accessModes": MANY,
        "mountOptions": mount_options,
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": plan.cluster.namespace, "name": names.resource(plan.cluster.name, name)},
        "csi": csi,
    }
    whys |= {
        "spec.persistentVolumeReclaimPolicy": RETAIN,
        "spec.claimRef": "kept for this cluster's claim, so that no other one takes it",
    }
    body = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": wide(plan, _volume_name(plan, name))}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def claim(
    plan: ClusterPlan, name: str, size: str, storage_class: str, *, volume_name: str = "", access: str = MANY[0]
) -> Object:
    """The claim of a volume, in the cluster's namespace. An empty storage class stands for a given volume."""
    spec: dict[str, Any] = {
        "accessModes": [access],
        "storageClassName": storage_class,
        "resources": {"requests": {"storage": size}},
    }
    whys = {"metadata.namespace": "a pod can only mount claims of its own namespace"}
    if volume_name:
        spec["volumeName"] = volume_name
        whys["spec.storageClassName"] = "empty, so that no default class makes another volume"
    head = metadata(plan, names.resource(plan.cluster.name, name))
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": head, "spec": spec}
    return Object(SYSTEM, body, whys)
