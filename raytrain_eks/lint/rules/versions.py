"""RT30x: API versions that are gone, kinds that never were, images and AMI families that have ended."""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path as File

from raytrain_eks.lint.bundle import Bundle, is_list
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, text
from raytrain_eks.spec.config_fields import one_slip
from raytrain_eks.spec.problem import nearest
from raytrain_eks.spec.source import Path

HERE = File(__file__).parent
_CLOSED = ("apps", "batch", "rbac.authorization.k8s.io")
"""Groups of Kubernetes itself whose kinds are all in the table."""
_GONE = ("Provisioner", "Machine", "AWSNodeTemplate")
"""Kinds of Karpenter before 0.32, which went with their versions."""


@dataclass(frozen=True)
class Retired:
    """An API version or a kind that is served no more; an empty kind stands for all of the version."""

    api_version: str
    kind: str
    since: str
    """`1.25` for Kubernetes itself; empty when the operator's version decides."""
    instead: str
    source: str


@cache
def _retired() -> tuple[Retired, ...]:
    with (HERE / "retired.csv").open(newline="", encoding="utf-8") as file:
        return tuple(Retired(**row) for row in csv.DictReader(file))


@cache
def kinds() -> dict[str, dict[str, str]]:
    """API group -> kind -> the version to write now; empty for a kind that is gone."""
    found: dict[str, dict[str, str]] = {}
    with (HERE / "kinds.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found.setdefault(row["group"], {})[row["kind"]] = row["version"]
    return found


def _retired_versions(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        for entry in _retired():
            if resource.api_version != entry.api_version or entry.kind not in ("", resource.kind):
                continue
            if entry.since and settings.before(entry.since):
                continue
            if not entry.kind and resource.group in kinds() and resource.kind not in _once(resource.group):
                continue
            if resource.kind == "MPIJob" and settings.has("operator", "training-operator"):
                continue
            when = f"since Kubernetes {entry.since}" if entry.since else f"any more ({entry.source})"
            reason = f"{entry.api_version} {resource.kind} is not served {when}"
            path = (*resource.base, "apiVersion")
            yield Hit(on=resource, path=path, reason=reason, fix=f"write {entry.instead}")


def _unknown_kinds(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for resource in bundle.resources:
        known = kinds().get(resource.group)
        if known is None or _is_retired(resource) or settings.has("kind", resource.kind):
            continue
        if not resource.group:
            yield from _core_kind(resource)
            continue
        if resource.kind in known or is_list(resource.data):
            continue
        current = [kind for kind, version in known.items() if version]
        guess = nearest(resource.kind, current)
        reason = f"no version of {resource.group} has ever had a kind {resource.kind}"
        home = _homes(resource.kind)
        fix = f"write apiVersion: {home}. " if home else f"did you mean {guess}? " if guess else ""
        fix += f"The kinds of {resource.group} are {', '.join(current)}"
        yield Hit(on=resource, path=(*resource.base, "kind"), reason=reason, fix=fix)


def _core_kind(resource: Resource) -> Iterator[Hit]:
    """A kind of an API version without a group that is another group's, or one slip away from one of the core's."""
    core, kind, version = kinds()[""], resource.kind, resource.api_version
    if is_list(resource.data) or (version == "v1" and kind in core):
        return
    home = "v1" if kind in core else _homes(kind)
    near = [known for known in core if one_slip(kind, known)]
    if home:
        reason = f"{kind} is no kind of apiVersion {version}"
        fix = f"write apiVersion: {home}"
        yield Hit(on=resource, path=(*resource.base, "apiVersion"), reason=reason, fix=fix)
    elif version == "v1" and len(near) == 1:
        reason = f"no version of the core group has ever had a kind {kind}"
        yield Hit(on=resource, path=(*resource.base, "kind"), reason=reason, fix=f"did you mean {near[0]}?")


def _homes(kind: str) -> str:
    """The groups and versions that have a kind, Kubernetes' own first; empty when none is known."""
    found = [f"{group}/{of[kind]}" for group, of in kinds().items() if group and of.get(kind)]
    own = [home for home in found if home.partition("/")[0] in _CLOSED]
    return " or ".join(own or found)


def _once(group: str) -> set[str]:
    """The kinds that a group has or has had, whatever their version."""
    return kinds()[group].keys() | set(_GONE)


def _is_retired(resource: Resource) -> bool:
    return any(
        resource.api_version == entry.api_version and resource.kind in (entry.kind, *_GONE) for entry in _retired()
    )


def _image_family(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    if settings.before("1.33"):
        return
    for owner, path, value in _families(bundle):
        reason = (
            f"{value}: EKS's last Amazon Linux 2 AMIs are for Kubernetes 1.32; the cluster is {settings.kubernetes}"
        )
        yield Hit(on=owner, path=path, reason=reason, fix=_MODERN[owner.kind])


def _families(bundle: Bundle) -> Iterator[tuple[Resource, Path, str]]:
    for found in bundle.of("karpenter.k8s.aws", "EC2NodeClass"):
        family = text(found.get("spec", "amiFamily"))
        if family == "AL2":
            yield found, (*found.base, "spec", "amiFamily"), family
        for index, term in enumerate(items(found.get("spec", "amiSelectorTerms"))):
            if (alias := text(get(term, "alias"))).startswith("al2@"):
                yield found, (*found.base, "spec", "amiSelectorTerms", index, "alias"), alias
    for found in bundle.of("eks.services.k8s.aws", "Nodegroup"):
        if (family := text(found.get("spec", "amiType"))).startswith("AL2_"):
            yield found, (*found.base, "spec", "amiType"), family
    for config in bundle.of("eksctl.io", "ClusterConfig"):
        for key in ("managedNodeGroups", "nodeGroups"):
            for index, group in enumerate(items(config.get(key))):
                if (family := text(get(group, "amiFamily"))) == "AmazonLinux2":
                    yield config, (*config.base, key, index, "amiFamily"), family


_MODERN = {
    "ClusterConfig": "write amiFamily: AmazonLinux2023",
    "Nodegroup": "write amiType: AL2023_x86_64_NVIDIA, AL2023_x86_64_NEURON or AL2023_x86_64_STANDARD",
    "EC2NodeClass": "drop amiFamily and write amiSelectorTerms: [{alias: al2023@vYYYYMMDD}]",
}


IMAGES = (
    (
        re.compile(r"(^|/)rayproject/ray-ml:"),
        "the ray-ml images are discontinued",
        "use rayproject/ray and install what is needed, or an image of your own",
    ),
    (
        re.compile(r"/bionemo-framework:1\."),
        "BioNeMo framework 1.x (with MegaMolBART) is a retired line",
        "use a 2.x image of bionemo-framework, whose models and commands are others",
    ),
    (
        re.compile(r"^(docker\.io/)?schedmd/"),
        "SchedMD publishes no images under this name",
        "use ghcr.io/slinkyproject/slurmctld, slurmd, ...",
    ),
)
"""Pattern of an image, why it is no more, what to use."""


def _images(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.containers:
            for pattern, reason, fix in IMAGES:
                if pattern.search(container.image):
                    path = (*container.path, "image")
                    yield Hit(on=pod.owner, path=path, reason=f"{container.image}: {reason}", fix=fix)


RULES = (
    Rule(
        id="RT301",
        severity="error",
        title="An API version that is not served any more",
        why="The API server answers `no matches for kind`, and nothing of the file is applied.",
        fix="Write the version that is served now; fields may have moved with it.",
        check=_retired_versions,
    ),
    Rule(
        id="RT302",
        severity="error",
        title="A kind that never existed",
        why="The group is real and the kind is not: no release of its operator has ever defined it, so the file was "
        "written from memory and its fields are likely invented as well.",
        fix="Write one of the group's kinds. A kind that is newer than this tool: --external kind/NAME.",
        check=_unknown_kinds,
    ),
    Rule(
        id="RT303",
        severity="error",
        title="An AMI family past its Kubernetes version",
        why="EKS publishes Amazon Linux 2 AMIs up to Kubernetes 1.32. Karpenter refuses the alias from 1.33 on (`AL2 "
        "aliases are no longer supported on EKS 1.33+`), though its schema still admits the family.",
        fix="Use Amazon Linux 2023, whose accelerated AMIs hold the NVIDIA, EFA and Neuron drivers.",
        check=_image_family,
    ),
    Rule(
        id="RT306",
        severity="warning",
        title="An image of a line that has ended",
        why="It still pulls, perhaps, but gets no fixes; what it holds fits neither today's Ray nor today's drivers.",
        fix="Move to the image that follows it.",
        check=_images,
    ),
)
