"""RT102, RT103, RT105: taints, selectors and zones, the bundle against itself."""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.nodes import OLD, TYPE, ZONE, Offer, Requirement, shown, terms, unmet, untolerated
from raytrain_eks.lint.pods import EFA, Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, mapping, text
from raytrain_eks.spec.source import Path

_ANYWHERE = {"kubernetes.io/os", "kubernetes.io/arch", "kubernetes.io/hostname", "topology.kubernetes.io/region"}
_WIDE = 400 * 10**9
"""Bits per second of EFA from which on a type is made for training over several nodes (p4d and what came after)."""
PLUGINS = ("efa-k8s-device-plugin", "k8s-device-plugin", "neuron-device-plugin")


def particular(pod: Pod) -> bool:
    """Whether the pod needs nodes of its own: devices, or labels that not every node has.

    A pod that does not may run on nodes that stand in none of the files.
    """
    required = {OLD.get(wanted.key, wanted.key) for term in terms(pod) for wanted in term if wanted.operator == "In"}
    return bool(pod.devices or pod.efa or required - _ANYWHERE)


def _suitable(pod: Pod, bundle: Bundle) -> list[Offer]:
    """The groups whose labels and devices the pod can use."""
    return [offer for offer in _near(pod, bundle) if not unmet(pod, offer) and not _without(pod, offer)]


def _near(pod: Pod, bundle: Bundle) -> tuple[Offer, ...]:
    """The groups that the pod's node selector leaves: of hundreds, most fall away by a label that all of them have."""
    by_label = _by_label(bundle)
    selector = mapping(pod.spec.get("nodeSelector"))
    left = [by_label[key].get(text(value), ()) for key, value in selector.items() if key in by_label]
    return min(left, key=len) if left else bundle.offers


@lru_cache(maxsize=1)
def _by_label(bundle: Bundle) -> dict[str, dict[str, tuple[Offer, ...]]]:
    """Label -> value -> the groups that have it, for the labels that every group carries."""
    shared = set.intersection(*(set(offer.labels) for offer in bundle.offers)) if bundle.offers else set()
    found: dict[str, dict[str, tuple[Offer, ...]]] = {key: {} for key in sorted(shared)}
    for offer in bundle.offers:
        for key, groups in found.items():
            groups[offer.labels[key]] = (*groups.get(offer.labels[key], ()), offer)
    return found


def _without(pod: Pod, offer: Offer) -> list[str]:
    """The devices that no type of the group has."""
    names = [*pod.devices, *([EFA] if pod.efa else [])]
    types = [instance(type) for type in offer.types if known(type)]
    if len(types) < len(offer.types) or not types:
        return []
    return [name for name in names if not any(type.allocatable(name) for type in types)]


def _no_pool(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    if not bundle.offers:
        return
    for pod in bundle.pods:
        if not particular(pod) or _suitable(pod, bundle) or pod.daemon:
            continue
        missing = min((unmet(pod, offer) for offer in bundle.offers), key=len)
        missing = [wanted for wanted in missing if not _external(wanted, settings)]
        names = ", ".join(offer.title for offer in bundle.offers)
        for wanted in missing:
            values = " or ".join(wanted.values) or wanted.operator
            reason = f"{wanted.key}: {values} is offered by no group of nodes in these files ({names})"
            fix = _provide(wanted, bundle)
            yield Hit(on=pod.owner, path=wanted.path, reason=reason, fix=fix)
        if not min((unmet(pod, offer) for offer in bundle.offers), key=len):
            lacking = min((_without(pod, offer) for offer in bundle.offers if not unmet(pod, offer)), key=len)
            for name in lacking:
                reason = f"{name} is offered by no group of nodes in these files ({names})"
                path = pod.largest(name).where(name)
                yield Hit(on=pod.owner, path=path, reason=reason, fix="add a node pool with a type that has it")


def _external(wanted: Requirement, settings: Settings) -> bool:
    return any(settings.has("node", f"{wanted.key}={value}") for value in wanted.values)


def _provide(wanted: Requirement, bundle: Bundle) -> str:
    key = OLD.get(wanted.key, wanted.key)
    if key == TYPE:
        offered = sorted({type for offer in bundle.offers for type in offer.types})
        return f"add a node pool for it, or select one of {', '.join(offered[:8]) or 'the types that are offered'}"
    if key == ZONE:
        zones = sorted({zone for offer in bundle.offers for zone in offer.zones})
        return f"offered are {', '.join(zones)}"
    label = f"{wanted.key}={wanted.values[0] if wanted.values else ''}"
    return f"put the label on a node pool, or declare it: --external node/{label}"


def _tainted(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        if pod.daemon:
            yield from _plugin_kept_off(pod, bundle)
            continue
        suitable = _suitable(pod, bundle) if particular(pod) else []
        if suitable and all(untolerated(pod, offer) for offer in suitable):
            nearest = min(suitable, key=lambda offer: len(untolerated(pod, offer)))
            yield _intolerant(pod, nearest)


def _plugin_kept_off(pod: Pod, bundle: Bundle) -> Iterator[Hit]:
    """A device plugin must run on every node that has its device; other daemon sets may keep away on purpose."""
    if not any(plugin in container.image for container in pod.main for plugin in PLUGINS):
        return
    image = " ".join(container.image for container in pod.main)
    device = EFA if "efa-" in image else ("aws.amazon.com/neuron" if "neuron" in image else "nvidia.com/gpu")
    for offer in bundle.offers:
        has = any(instance(type).allocatable(device) for type in offer.types if known(type))
        if has and not unmet(pod, offer) and untolerated(pod, offer):
            yield _intolerant(pod, offer)


def _intolerant(pod: Pod, offer: Offer) -> Hit:
    missing = untolerated(pod, offer)
    said = ", ".join(shown(taint) for taint in missing)
    reason = f"{offer.title} has the taint{'s' if len(missing) > 1 else ''} {said}, which the pod does not tolerate"
    additions = "; ".join(
        f"{{key: {text(taint.get('key'))}, operator: Exists, effect: {text(taint.get('effect'))}}}" for taint in missing
    )
    path = (*pod.path, "tolerations") if "tolerations" in pod.spec else pod.path
    return Hit(
        on=pod.owner, path=path, reason=reason, fix=f"add the toleration{'s' if len(missing) > 1 else ''} {additions}"
    )


def _zones(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for offer in bundle.offers:
        if len(set(offer.zones)) > 1 and _for_efa(offer, bundle):
            wanted = next(wanted for wanted in offer.requirements if wanted.key == ZONE)
            reason = f"a group with EFA spans {', '.join(offer.zones)}, and EFA does not reach over zones"
            yield Hit(on=offer.owner, path=wanted.path, reason=reason, fix="name one zone; one group for each zone")
    yield from _volumes_elsewhere(bundle)
    found = list(_places(bundle))
    regions = Counter(_region(zone) for _, _, zone in found)
    if len(regions) > 1:
        usual, _ = regions.most_common(1)[0]
        for owner, path, zone in found:
            if _region(zone) != usual:
                reason = f"{zone} lies in another region than the rest of these files ({usual})"
                yield Hit(on=owner, path=path, reason=reason, fix=f"a cluster has one region: name a zone of {usual}")


def _volumes_elsewhere(bundle: Bundle) -> Iterator[Hit]:
    """Pods whose volume lies in a zone that their node selector, or every group that they may use, excludes."""
    volumes = {
        volume.name: {zone for _, _, zone in _volume_zones(volume)} for volume in bundle.of("", "PersistentVolume")
    }
    bound = {
        (claim.namespace, claim.name): volumes.get(text(claim.get("spec", "volumeName")), set())
        for claim in bundle.of("", "PersistentVolumeClaim")
    }
    for pod in bundle.pods:
        for data, path, _ in pod.volumes("persistentVolumeClaim"):
            lying = bound.get((pod.owner.namespace, text(data.get("claimName"))), set())
            running = _zones_of(pod, bundle)
            if lying and running and not lying & running:
                reason = (
                    f"the volume lies in {', '.join(sorted(lying))}, and the pod runs in {', '.join(sorted(running))}"
                )
                fix = "use a volume in the pod's zone, or run the pod where the volume is"
                yield Hit(on=pod.owner, path=(*path, "claimName"), reason=reason, fix=fix)


def _zones_of(pod: Pod, bundle: Bundle) -> set[str]:
    """The zones that the pod may run in, as far as the files say; empty when nothing says."""
    own = {
        value
        for term in terms(pod)
        for wanted in term
        if OLD.get(wanted.key, wanted.key) == ZONE and wanted.operator == "In"
        for value in wanted.values
    }
    if own:
        return own
    groups = _suitable(pod, bundle) if particular(pod) else []
    return {zone for offer in groups for zone in offer.zones} if all(offer.zones for offer in groups) else set()


def _for_efa(offer: Offer, bundle: Bundle) -> bool:
    """Whether EFA is to join the group's nodes: a pod says so, the group does, or its types are made for it."""
    group = get(offer.owner.document.data, *offer.path)
    if get(group, "efaEnabled") is True or any(pod.efa and pod in _placed(offer, bundle) for pod in bundle.pods):
        return True
    types = [instance(type) for type in offer.types if known(type)]
    return bool(types) and all(type.accelerators and (type.efa_bandwidth or 0) >= _WIDE for type in types)


def _placed(offer: Offer, bundle: Bundle) -> list[Pod]:
    return [pod for pod in bundle.pods if not unmet(pod, offer) and not untolerated(pod, offer)]


def _region(zone: str) -> str:
    return zone.rstrip("abcdefghijklmnopqrstuvwxyz")


def _places(bundle: Bundle) -> Iterator[tuple[Resource, Path, str]]:
    """Every zone that is named, with its place."""
    for offer in bundle.offers:
        for wanted in offer.requirements:
            if wanted.key == ZONE:
                yield from (
                    (offer.owner, (*wanted.path, "values", index), zone) for index, zone in enumerate(wanted.values)
                )
    for pod in bundle.pods:
        for term in terms(pod):
            for wanted in term:
                if OLD.get(wanted.key, wanted.key) == ZONE and wanted.operator == "In":
                    yield from ((pod.owner, wanted.path, zone) for zone in wanted.values)
    for volume in bundle.of("", "PersistentVolume"):
        yield from _volume_zones(volume)


def _volume_zones(volume: Resource) -> Iterator[tuple[Resource, Path, str]]:
    steps = ("spec", "nodeAffinity", "required", "nodeSelectorTerms")
    for index, term in enumerate(items(volume.get(*steps))):
        for number, entry in enumerate(items(get(term, "matchExpressions"))):
            if text(mapping(entry).get("key")) in (ZONE, "topology.ebs.csi.aws.com/zone"):
                path = (*volume.base, *steps, index, "matchExpressions", number)
                yield from ((volume, path, text(zone)) for zone in items(mapping(entry).get("values")))


RULES = (
    Rule(
        id="RT102",
        severity="error",
        title="A taint that the pod does not tolerate",
        why="Every group of nodes that has what the pod needs repels it. The pod stays Pending for ever, and Karpenter "
        "starts no node, since it knows the taints too. A device plugin that is kept off leaves the nodes without the "
        "resource that the pods wait for.",
        fix="Add the tolerations, or drop the taints from the pool.",
        check=_tainted,
    ),
    Rule(
        id="RT103",
        severity="error",
        title="A node that no pool provides",
        why="The pod selects a label, a type or a device that no node pool or node group of these files offers, so it "
        "stays Pending. Only pods that need something particular are looked at, and only when the files offer nodes.",
        fix="Offer it in a pool, select what is offered, or declare it with --external node/KEY=VALUE.",
        check=_no_pool,
    ),
    Rule(
        id="RT105",
        severity="error",
        title="Zones that do not agree",
        why="EFA's remote memory access stays within one zone: ranks in two of them hang in the first collective. And "
        "a cluster lies in one region, so zones of two regions in one set of files cannot both be right.",
        fix="Name one zone for each group with EFA, all in the cluster's region.",
        check=_zones,
    ),
)
