"""RT60x: node pools that kill what they should keep, or keep what they should give back."""

import re
from collections.abc import Iterator
from decimal import Decimal

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.nodes import Offer, unmet, untolerated
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import amount, get, items, mapping, text

_INSTALLERS = re.compile(
    r"aws-efa-installer|efa_installer\.sh|yum\.repos\.neuron\.amazonaws\.com|aws-neuronx-(dkms|runtime|collectives|tools)"
    r"|nvidia-driver-latest|cuda-drivers"
)


def _pools(bundle: Bundle) -> Iterator[Offer]:
    return (offer for offer in bundle.offers if offer.owner.is_a("karpenter.sh", "NodePool"))


def accelerated(offer: Offer) -> bool:
    """Whether the group is for accelerators: every type of it that the catalogue knows has some."""
    types = [instance(type) for type in offer.types if known(type)]
    return bool(types) and all(type.accelerators for type in types)


def _budgets(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pool in bundle.of("karpenter.sh", "NodePool"):
        steps = ("spec", "disruption", "budgets")
        for index, budget in enumerate(items(pool.get(*steps))):
            entry = mapping(budget)
            if text(entry.get("nodes")) not in ("0", "0%") or entry.get("schedule"):
                continue
            reasons = [text(reason) for reason in items(entry.get("reasons"))]
            if not reasons or "Empty" in reasons:
                reason = "a budget of 0 for every reason holds back Empty too: idle nodes are never removed"
                fix = "add reasons: [Drifted, Underutilized]"
                yield Hit(on=pool, path=(*pool.base, *steps, index), reason=reason, fix=fix)


def _expiry(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for offer in _pools(bundle):
        path = (*offer.path, "spec")
        spec = mapping(offer.owner.get("spec", "template", "spec"))
        if accelerated(offer) and "expireAfter" not in spec:
            reason = "expireAfter is not written, so nodes expire after 720h, and no budget holds that back"
            yield Hit(
                on=offer.owner, path=path, reason=reason, fix="write expireAfter: Never, or a time above every job's"
            )


def _consolidation(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for offer in _pools(bundle):
        disruption = mapping(offer.owner.get("spec", "disruption"))
        if not accelerated(offer) or text(disruption.get("consolidationPolicy")) == "WhenEmpty":
            continue
        budgets = [mapping(budget) for budget in items(disruption.get("budgets"))]
        held = any(
            text(budget.get("nodes")) in ("0", "0%") and "Underutilized" in (budget.get("reasons") or ["Underutilized"])
            for budget in budgets
        )
        open_to = [pod for pod in bundle.pods if pod.devices and not unmet(pod, offer) and not untolerated(pod, offer)]
        safe = bool(open_to) and all(
            text(pod.annotations.get("karpenter.sh/do-not-disrupt")) == "true" for pod in open_to
        )
        if not held and not safe:
            path = (*offer.owner.base, "spec", "disruption") if disruption else (*offer.owner.base, "spec")
            reason = "consolidation may move running pods off underused nodes, and a training dies with one of its pods"
            fix = 'write consolidationPolicy: WhenEmpty, or annotate the pods karpenter.sh/do-not-disrupt: "true"'
            yield Hit(on=offer.owner, path=path, reason=reason, fix=fix)


def _limits(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for offer in _pools(bundle):
        types = [instance(type) for type in offer.types if known(type)]
        for name, value in mapping(offer.owner.get("spec", "limits")).items():
            limit = amount(value)
            counts = {"cpu": [Decimal(type.vcpu) for type in types], "memory": [type.memory for type in types]}
            sizes = counts.get(name) or [type.allocatable(name) or Decimal(0) for type in types if "/" in name]
            if limit is None or not sizes or not min(sizes) or limit >= min(sizes):
                continue
            smallest = min(sizes)
            said = f"{smallest / 2**30:.0f}Gi" if name == "memory" else f"{smallest:f}"
            reason = (
                f"limits.{name} is {text(value)}, and the smallest node of the pool has {said}: none is ever started"
            )
            path = (*offer.owner.base, "spec", "limits", name)
            yield Hit(on=offer.owner, path=path, reason=reason, fix=f"write at least {said}, times the nodes wanted")


def _reserved(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    classes = {found.name: found for found in bundle.of("karpenter.k8s.aws", "EC2NodeClass")}
    for offer in _pools(bundle):
        capacity = [wanted for wanted in offer.requirements if wanted.key == "karpenter.sh/capacity-type"]
        values = {value for wanted in capacity for value in wanted.values}
        name = text(offer.owner.get("spec", "template", "spec", "nodeClassRef", "name"))
        terms = items(classes[name].get("spec", "capacityReservationSelectorTerms")) if name in classes else None
        if "reserved" in values and terms == []:
            reason = f"capacity-type reserved, and EC2NodeClass {name} selects no reservation"
            fix = "add capacityReservationSelectorTerms to the EC2NodeClass: [{id: cr-...}]"
            yield Hit(on=offer.owner, path=capacity[0].path, reason=reason, fix=fix)
        if terms and capacity and "reserved" not in values:
            reason = f"EC2NodeClass {name} selects reservations, and the pool does not admit capacity-type reserved"
            fix = "add reserved to the values: what was paid for stays unused otherwise"
            yield Hit(on=offer.owner, path=capacity[0].path, reason=reason, fix=fix)


def _user_data(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for found in bundle.of("karpenter.k8s.aws", "EC2NodeClass"):
        if match := _INSTALLERS.search(text(found.get("spec", "userData"))):
            reason = f"user data installs drivers ({match[0]}) that EKS's accelerated AMIs of AL2023 bring along"
            yield Hit(on=found, path=(*found.base, "spec", "userData"), reason=reason, fix=_without_installer(found))


def _without_installer(found: Resource) -> str:
    alias = any(text(get(term, "alias")).startswith("al2023") for term in items(found.get("spec", "amiSelectorTerms")))
    return "leave it out" if alias else "leave it out, and select the AMI by alias: al2023@vYYYYMMDD"


RULES = (
    Rule(
        id="RT601",
        severity="error",
        title="A budget that keeps idle nodes for ever",
        why='`budgets: [{nodes: "0"}]` without reasons is meant to protect running jobs, and blocks removal of empty '
        "nodes as well (Empty is one of the reasons): consolidateAfter never fires and idle accelerators are paid for.",
        fix="Add reasons: [Drifted, Underutilized] to the budget.",
        check=_budgets,
    ),
    Rule(
        id="RT602",
        severity="warning",
        title="Nodes that expire under a long job",
        why="Karpenter's expireAfter is 720h where it is not written. Expiry is forceful: disruption budgets do not "
        "hold it back, so the 31st day of a training kills its nodes.",
        fix="Write expireAfter: Never in the pool's template.",
        check=_expiry,
    ),
    Rule(
        id="RT603",
        severity="error",
        title="Reserved capacity that is not used",
        why="capacity-type reserved and the EC2NodeClass's capacityReservationSelectorTerms work together only: one "
        "without the other starts no node, or starts on-demand nodes beside a capacity block that was bought.",
        fix="Write both.",
        check=_reserved,
    ),
    Rule(
        id="RT604",
        severity="warning",
        title="User data that installs drivers",
        why="EKS's accelerated Amazon Linux 2023 AMIs hold the NVIDIA, EFA and Neuron drivers. Installing at boot "
        "makes nodes late and breaks with the next release; recipes for Amazon Linux 2 (yum) break on 2023.",
        fix="Leave it out, and select the AMI by an al2023 alias.",
        check=_user_data,
    ),
    Rule(
        id="RT606",
        severity="error",
        title="A pool's limit below one node",
        why="Karpenter counts the whole node against the pool's limits before it starts it. A limit below the smallest "
        "type of the pool means no node at all, and pods stay Pending.",
        fix="Write the resource of one node, times the most nodes that are wanted.",
        check=_limits,
    ),
    Rule(
        id="RT605",
        severity="warning",
        title="Consolidation that moves training pods",
        why="WhenEmptyOrUnderutilized (the default) replaces nodes that look underused by draining them. A training "
        "dies with one of its pods, and starts again from its last checkpoint.",
        fix="Write consolidationPolicy: WhenEmpty, or a budget of 0 for Underutilized, or annotate do-not-disrupt.",
        check=_consolidation,
    ),
)
