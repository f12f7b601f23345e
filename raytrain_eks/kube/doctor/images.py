"""The images of the file, by their names alone: nothing is pulled, and no registry is asked."""

import re
from collections.abc import Iterator

from raytrain_eks.kube.doctor.look import Look
from raytrain_eks.plan.cluster import HEAD_IMAGE
from raytrain_eks.spec.diagnosis import Diagnosis, green, yellow

ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(\.cn)?/")


def examine(look: Look) -> Iterator[Diagnosis]:
    """One finding for each image of head and groups."""
    if look.plan is None:
        return
    region = look.plan.cluster.region
    users: dict[str, list[str]] = {}
    for pod in look.plan.pods:
        users.setdefault(pod.image, []).append(pod.name)
    for image, names in users.items():
        gpus = any(group.devices.kind != "cpu" and group.name in names for group in look.plan.groups)
        yield _image(image, ", ".join(names), region, accelerated=gpus)


def _image(image: str, users: str, region: str, *, accelerated: bool) -> Diagnosis:
    id, where = "images.name", image
    found = ECR.match(image)
    if found is not None and found["region"] != region:
        why = f"lies in {found['region']}, the cluster in {region}: each node pulls gigabytes between regions"
        return yellow(id, where, why, f"replicate it (ECR replication) and name it in {region}")
    if "@sha256:" not in image and (image.endswith(":latest") or ":" not in image.rpartition("/")[2]):
        why = "has no fixed tag, so two nodes may run different images"
        return yellow(id, where, why, "name a version, or a digest (@sha256:…)")
    if accelerated and image.startswith(f"{HEAD_IMAGE}:"):
        why = f"Ray's public image, for {users}: it has no torch, and no library for EFA or Neuron"
        return yellow(id, where, why, "build one: cluster_specs/images, and name it by `ray: {image: …}`")
    home = f"in ECR of {region}" if found is not None else "not in ECR, so each node pulls it over the internet"
    return green(id, where, f"for {users}; {home}")
