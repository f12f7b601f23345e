"""Storage: CSI drivers of the file's volumes, StorageClasses, and claims that are bound or are not."""

from collections.abc import Iterator

from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, place, running, unready
from raytrain_eks.manifests import names
from raytrain_eks.spec.cluster_storage import Claim, Efs, FsxLustre, StorageClass
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

DRIVERS = {
    "fsx.csi.aws.com": ("the FSx for Lustre CSI driver", "aws-fsx-csi-driver", "the EKS add-on aws-fsx-csi-driver"),
    "efs.csi.aws.com": ("the EFS CSI driver", "aws-efs-csi-driver", "the EKS add-on aws-efs-csi-driver"),
}
"""CSIDriver -> its name, the end of its image's name, how it is installed."""
API = "storage.k8s.io/v1"


def examine(look: Look) -> Iterator[Diagnosis]:
    """Nothing without a file: what exists by chance is nobody's need."""
    if look.plan is None:
        return
    volumes = list(look.plan.cluster.storage.volumes())
    drivers = {"fsx.csi.aws.com" for _, volume in volumes if isinstance(volume, FsxLustre)}
    drivers |= {"efs.csi.aws.com" for _, volume in volumes if isinstance(volume, Efs)}
    for driver in sorted(drivers):
        yield _driver(look, driver)
    for name, volume in volumes:
        if isinstance(volume, StorageClass):
            yield _class(look, volume.name)
        own = volume.claim if isinstance(volume, Claim) else names.resource(look.plan.cluster.name, name)
        if isinstance(volume, Claim | FsxLustre | Efs | StorageClass):
            yield claim(look, own, given=isinstance(volume, Claim))


def _driver(look: Look, driver: str) -> Diagnosis:
    name, image, install = DRIVERS[driver]
    id = f"storage.{driver.partition('.')[0]}"
    if look.client.find(API, "CSIDriver", driver) is None:
        return red(id, f"CSIDriver {driver}", f"{name} is not installed: claims wait for ever", f"install {install}")
    workloads = [each for each, _ in running([*look.daemon_sets, *look.deployments], image)]
    for each in workloads:
        if (why := unready(each)) is not None:
            fix = "kubectl describe its pods; a node without it mounts nothing, does it tolerate the nodes' taints?"
            return red(id, place(each), f"{name}: {why}", fix)
    return green(id, f"CSIDriver {driver}", f"{name} is there" + (" and ready" if workloads else ""))


def _class(look: Look, name: str) -> Diagnosis:
    if look.client.find(API, "StorageClass", name) is None:
        there = ", ".join(sorted(each["metadata"]["name"] for each in look.client.list(API, "StorageClass"))) or "none"
        return red("storage.class", f"StorageClass {name}", f"does not exist; there is {there}", "name one of them")
    return green("storage.class", f"StorageClass {name}", "exists")


def claim(look: Look, name: str, *, given: bool) -> Diagnosis:
    """A claim in the file's namespace. `given`: it must exist already."""
    found = look.client.find("v1", "PersistentVolumeClaim", name, look.namespace)
    id, where = "storage.claim", f"PersistentVolumeClaim {look.namespace}/{name}"
    if found is None and not given:
        return green(id, where, "is not there yet; `apply` makes it")
    if found is None:
        return red(id, where, "does not exist, and the file does not make it", "create it, or name another one")
    phase = (found.get("status") or {}).get("phase") or "Pending"
    if phase == "Bound":
        return _shared(id, where, found)
    why = _last_event(look, found)
    if phase == "Lost":
        return red(
            id, where, "its volume is gone (Lost)", "make a new claim; data on the old volume needs its own rescue"
        )
    if "WaitForFirstConsumer" in why:
        return green(id, where, "waits for its first pod, as its class says")
    fix = "kubectl describe it; a new FSx file system takes 5 to 10 minutes"
    return yellow(id, where, f"is {phase}{': ' + why if why else ''}", fix)


def _shared(id: str, where: str, found: Body) -> Diagnosis:
    """A claim for run folders must be one that many nodes can write at a time."""
    modes = (found.get("spec") or {}).get("accessModes") or []
    if "ReadWriteMany" in modes or "ReadOnlyMany" in modes:
        return green(id, where, f"is bound, {', '.join(modes)}")
    why = f"is bound, for one node at a time only ({', '.join(modes)})"
    return yellow(id, where, why, "runs of more than one node need ReadWriteMany: FSx for Lustre or EFS")


def _last_event(look: Look, found: Body) -> str:
    events = look.client.events(found)
    return " ".join(str(events[-1].get("message") or "").split())[:300] if events else ""
