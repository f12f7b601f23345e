"""RT109, RT110: images and the processors of the nodes that they run on.

An image is a list of builds, or one build. Whether it is a list cannot be seen from its name, unless the name says
the architecture, as Ray's own images do: `rayproject/ray:2.60.0-py311-gpu-aarch64`, and without an ending amd64.
"""

import re
from collections.abc import Iterator

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.nodes import OLD, named_types, terms, unmet, untolerated
from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.tree import mapping

_ARCH = "kubernetes.io/arch"
_ENDINGS = {"aarch64": "arm64", "arm64": "arm64", "amd64": "amd64", "x86_64": "amd64"}
_ENDING = re.compile(rf"[:._-]({'|'.join(_ENDINGS)})\Z")
_RAY = re.compile(r"(docker\.io/)?rayproject/ray(-llm)?:[^@]+\Z")
_OF_TRAINING = ("ray.io", "kubeflow.org", "batch.volcano.sh", "slinky.slurm.net")
"""Groups whose pods run images of one's own; small public ones (busybox) are built for everything."""


def architecture(bundle: Bundle, pod: Pod) -> str | None:
    """`amd64` or `arm64`, when all nodes that a pod can get are of one architecture; None when that is not certain."""
    chosen = {wanted.key: wanted for term in terms(pod) for wanted in term if wanted.operator == "In"}
    found: set[str] = set()
    if (said := next((each for key, each in chosen.items() if OLD.get(key, key) == _ARCH), None)) is not None:
        found = set(said.values)
    elif named := [type for wanted in named_types(pod) for type in wanted.values]:
        found = {instance(type).arch if known(type) else "" for type in named}
    elif mapping(pod.spec.get("nodeSelector")):
        fitting = [offer for offer in bundle.offers if not unmet(pod, offer) and not untolerated(pod, offer)]
        types = [type for offer in fitting for type in offer.types or ("",)]
        found = {instance(type).arch if known(type) else "" for type in types}
    return found.pop() if len(found) == 1 and found <= {"amd64", "arm64"} else None


def built_for(image: str) -> str | None:
    """The architecture that an image's name tells; None when it tells none."""
    if ending := _ENDING.search(image):
        return _ENDINGS[ending[1]]
    return "amd64" if _RAY.match(image) else None


def _wrong_builds(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.containers:
            built = built_for(container.image)
            if built is None or (runs := architecture(bundle, pod)) in (None, built):
                continue
            reason = f"{container.image} is built for {built}, and the pod's nodes are {runs}: exec format error"
            fix = f"write the image for {runs}"
            if _RAY.match(container.image):
                fix += ", whose tag ends with -aarch64" if runs == "arm64" else ", whose tag has no -aarch64"
            yield Hit(on=pod.owner, path=(*container.path, "image"), reason=reason, fix=fix)


def _shared_images(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    first: dict[str, tuple[Pod, str]] = {}
    for pod in bundle.pods:
        main = pod.main[0] if pod.main else None
        if main is None or not main.image or pod.owner.group not in _OF_TRAINING or built_for(main.image):
            continue
        if (runs := architecture(bundle, pod)) is None:
            continue
        before, other = first.setdefault(main.image, (pod, runs))
        if runs != other:
            what = f"the {before.role or before.owner.title} is {other}, the {pod.role or pod.owner.title} {runs}"
            reason = f"one image for two architectures: {what}; {main.image} must be built for both"
            fix = "build it for linux/amd64 and linux/arm64 and silence this here, or give each an image of its own"
            yield Hit(on=pod.owner, path=(*main.path, "image"), reason=reason, fix=fix)


RULES = (
    Rule(
        id="RT109",
        severity="warning",
        title="One image on two architectures",
        why="Graviton and Grace nodes are arm64, all others amd64. An image that was built for one of them ends with "
        "`exec format error` on the other: the pods are made and never start.",
        fix="Build the image for both (`docker buildx build --platform linux/amd64,linux/arm64`), or write one for "
        "each group.",
        check=_shared_images,
    ),
    Rule(
        id="RT110",
        severity="error",
        title="An image of another architecture",
        why="The image's name says what it is built for, and the nodes that the pod selects are of another kind: its "
        "containers end with `exec format error`. Ray's own images are amd64 unless their tag ends with -aarch64.",
        fix="Write the image for the nodes' architecture.",
        check=_wrong_builds,
    ),
)
