"""RT10x: whether a pod's requests fit on one node, and whether they are quantities at all."""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import cache

from raytrain_eks.catalog.instance import Instance, instance, instances, known, unknown
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.nodes import TYPE, named_types, unmet, untolerated
from raytrain_eks.lint.pods import EFA, Container, Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import amount, get, mapping, placeholder, text
from raytrain_eks.spec.source import Path

_MIB, _GIB = Decimal(2**20), Decimal(2**30)
_AUTOSCALER = {"cpu": Decimal("0.5"), "memory": 512 * _MIB}
"""What KubeRay gives the autoscaler beside the head when `autoscalerOptions.resources` is not set (common/pod.go)."""
_MOST_CPUS = 2000
_MOST_MEMORY = 32 * 2**40
"""More CPUs than any EC2 type has (u7in-32tb: 1,920)."""


def candidates(pod: Pod, bundle: Bundle) -> list[str]:
    """The types that the pod may run on, as far as the files say: those it names, else those of the groups it may use.

    Empty when nothing says.
    """
    named = [value for wanted in named_types(pod) for value in wanted.values]
    if named:
        return sorted(set(named))
    admitting = [offer for offer in bundle.offers if not unmet(pod, offer)]
    # Taints choose as well: a pod for GPUs tolerates those of the GPU groups. Where it tolerates none, RT102 speaks.
    open_to = [offer for offer in admitting if not untolerated(pod, offer)] or admitting
    found = {type for offer in open_to for type in offer.types}
    if pod.devices or pod.efa:
        wanted = [*pod.devices, *([EFA] if pod.efa else [])]
        return sorted(
            type for type in found if known(type) and all(instance(type).allocatable(name) for name in wanted)
        )
    return sorted(found) if mapping(pod.spec.get("nodeSelector")) or pod.spec.get("affinity") else []


def overhead(bundle: Bundle, settings: Settings, type: str) -> dict[str, Decimal]:
    """What daemon sets take of a node of a type: EKS's own, and those of the files that run there."""
    total = {"cpu": settings.daemon_cpu, "memory": settings.daemon_memory}
    for pod in bundle.daemons:
        if _runs_on(pod, type, bundle):
            for name, value in pod.requests.items():
                total[name] = total.get(name, Decimal(0)) + value
    return total


def _runs_on(pod: Pod, type: str, bundle: Bundle) -> bool:
    named = named_types(pod)
    if named and not any(wanted.admits(type) for wanted in named):
        return False
    offers = [offer for offer in bundle.offers if type in offer.types]
    return not offers or any(not unmet(pod, offer) and not untolerated(pod, offer) for offer in offers)


def beside(pod: Pod) -> dict[str, Decimal]:
    """Requests of containers that the KubeRay operator adds to the pod: the autoscaler, beside a head."""
    spec = get(pod.owner.document.data, *pod.path[: pod.path.index("headGroupSpec")]) if pod.head else None
    if get(spec, "enableInTreeAutoscaling") is not True:
        return {}
    given = mapping(get(spec, "autoscalerOptions", "resources"))
    asked = {**mapping(given.get("limits")), **mapping(given.get("requests"))}
    return {name: amount(asked[name]) or Decimal(0) if name in asked else value for name, value in _AUTOSCALER.items()}


def _lacking(pod: Pod, type: Instance, taken: Mapping[str, Decimal]) -> dict[str, Decimal]:
    """Resource -> the largest request that would fit, for each that does not."""
    added, found = beside(pod), {}
    for name, wanted in pod.requests.items():
        available = _available(type, name)
        if available is None or name.startswith("ephemeral") or (name not in ("cpu", "memory") and not _device(name)):
            continue
        left = available - taken.get(name, Decimal(0)) - added.get(name, Decimal(0))
        if wanted > left:
            found[name] = max(left, Decimal(0))
    return found


def _available(type: Instance, name: str) -> Decimal | None:
    """What a node can give; of NeuronCores the most that any LNC makes, since the node's user data sets it."""
    if name == "aws.amazon.com/neuroncore" and type.neuron_cores:
        return Decimal(type.logical_cores(min(type.lnc_allowed)))
    return type.allocatable(name) if name in ("cpu", "memory") or "/" in name else None


def _device(name: str) -> bool:
    return name.startswith(("nvidia.com/gpu", "aws.amazon.com/neuron", "amd.com/gpu", "habana.ai/", EFA))


def _too_large(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    taken = cache(lambda type: overhead(bundle, settings, type))
    for pod in bundle.pods:
        if not pod.containers or not pod.requests or pod.daemon:
            continue
        types = candidates(pod, bundle)
        if not types and pod.devices and not bundle.offers:
            yield from _fits_nowhere(pod)
            continue
        if not types or not all(known(type) for type in types):
            continue
        shortages = {type: _lacking(pod, instance(type), taken(type)) for type in types}
        if all(shortages.values()):
            type = min(types, key=lambda name: (len(shortages[name]), -_roominess(instance(name)), name))
            yield from (_shortage(pod, type, name, most, types) for name, most in shortages[type].items())


def _roominess(type: Instance) -> Decimal:
    return type.allocatable_memory or Decimal(0)


def _shortage(pod: Pod, type: str, name: str, most: Decimal, types: list[str]) -> Hit:
    container = pod.largest(name)
    others = pod.requests[name] - container.requests().get(name, Decimal(0))
    allocatable = _available(instance(type), name) or Decimal(0)
    kept = allocatable - most
    subject = f"{type}, the roomiest of {', '.join(types)}," if len(types) > 1 else type
    reason = (
        f"asks for {written(name, pod.requests[name])} {name}, and {subject} can give pods {written(name, allocatable)}"
    )
    if kept:
        reason += f", of which daemon sets and sidecars take {written(name, kept)}"
    largest = most - others
    if name in ("cpu", "memory") and largest > 0:
        fix = f"the largest that fits is {quantity_text(name, largest)}"
    elif largest >= 1:
        fix = f"the largest that fits is {int(largest)}"
    else:
        fix = f"choose a type that has it: raytrain-eks catalog --where '{_expression(name, pod.requests[name])}'"
    return Hit(on=pod.owner, path=container.where(name), reason=reason, fix=fix)


def _expression(name: str, value: Decimal) -> str:
    fact = {"cpu": "cpu", "memory": "allocatable_memory", EFA: "efa"}.get(name, "gpus")
    vendor = "vendor=aws," if "neuron" in name else ("vendor=nvidia," if "nvidia" in name else "")
    return f"{vendor}{fact}>={value:f}"


def written(name: str, value: Decimal) -> str:
    """An amount of a resource for people: memory in Gi, CPUs and counts as they are."""
    return f"{value / _GIB:.1f}Gi" if name == "memory" else f"{value.normalize():f}"


def quantity_text(name: str, value: Decimal) -> str:
    """An amount as a manifest would have it, rounded down."""
    if name == "memory":
        return f"{value // _GIB}Gi" if value >= 4 * _GIB else f"{value // _MIB}Mi"
    return f"{int(value * 1000)}m" if value < 16 else f"{int(value)}"


def _fits_nowhere(pod: Pod) -> Iterator[Hit]:
    """Without any named type: more devices than any single node has."""
    for name, count in pod.devices.items():
        if name == "aws.amazon.com/neuroncore":
            continue
        most = max((found.accelerators for found in instances() if found.device_resource == name), default=0)
        if count > most:
            reason = f"asks for {count} {name}, and no instance type has more than {most}"
            fix = f"ask for at most {most} in one pod, and make more pods"
            yield Hit(on=pod.owner, path=pod.largest(name).where(name), reason=reason, fix=fix)


def _unknown_types(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for wanted in named_types(pod):
            for type in wanted.values:
                if _is_wrong(type):
                    yield _unknown(pod.owner, wanted.path, type)
    for offer in bundle.offers:
        named = [wanted for wanted in offer.requirements if wanted.key == TYPE and wanted.operator == "In"]
        for wanted in named:
            for index, type in enumerate(wanted.values):
                if _is_wrong(type):
                    yield _unknown(offer.owner, (*wanted.path, "values", index), type)
        for type in offer.fixed_types:
            if _is_wrong(type):
                yield _unknown(offer.owner, offer.path, type)


def _is_wrong(type: str) -> bool:
    return not known(type) and not placeholder(type)


def _unknown(owner: Resource, path: Path, type: str) -> Hit:
    problem = unknown(type)
    return Hit(on=owner, path=path, reason=f"{type} {problem.rule}", fix=problem.fix or "")


def _overcommitted(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.containers:
            yield from _extended(pod, container)


def _extended(pod: Pod, container: Container) -> Iterator[Hit]:
    limits = mapping(get(container.data, "resources", "limits"))
    requests = mapping(get(container.data, "resources", "requests"))
    for name in dict.fromkeys([*limits, *requests]):
        path = (*container.path, "resources", "limits" if name in limits else "requests", name)
        if "/" not in name and not name.startswith("hugepages-"):
            continue
        limit, request = amount(limits.get(name)), amount(requests.get(name))
        if name in requests and name not in limits:
            fix = f"write limits.{name}: {text(requests[name])} too"
            yield Hit(on=pod.owner, path=path, reason=f"{name} is requested and has no limit", fix=fix)
        elif name in requests and limit != request:
            reason = f"{name}: the request is {text(requests[name])}, the limit {text(limits[name])}"
            yield Hit(on=pod.owner, path=path, reason=reason, fix="write the same number in both, or only the limit")
        elif "/" in name and limit is not None and limit != int(limit):
            reason = f"{name}: {text(limits[name])} is no whole number, and devices are whole"
            yield Hit(on=pod.owner, path=path, reason=reason, fix="write a whole number")


def _bad_quantities(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for pod in bundle.pods:
        for container in pod.containers:
            for side in ("limits", "requests"):
                for name, value in mapping(get(container.data, "resources", side)).items():
                    path = (*container.path, "resources", side, name)
                    if found := _quantity_problem(name, value):
                        yield Hit(on=pod.owner, path=path, reason=found[0], fix=found[1])
            yield from _reversed(pod, container)


def _quantity_problem(name: str, value: object) -> tuple[str, str] | None:
    shown, parsed = text(value), amount(value)
    if placeholder(value):
        return None
    if parsed is None:
        return f"{name}: {shown or 'nothing'} is no Kubernetes quantity", "write for example 500m, 4, 1.5Gi or 200G"
    if name == "memory" and shown.endswith("m"):
        meant = "512Mi" if parsed <= 0 else f"{shown[:-1]}Mi"
        return f"memory: {shown} is thousandths of a byte", f"write {meant}"
    if name == "memory" and parsed < _MIB and parsed > 0:
        number = shown.rstrip("kKi") if shown.rstrip("kKi").replace(".", "").isdigit() else "64"
        return f"memory: {shown} is {parsed.normalize():f} bytes", f"write a larger unit: {number}Gi or {number}Mi"
    if name == "memory" and parsed > _MOST_MEMORY:
        return f"memory: {shown}, and no instance type has more than 32Ti", "write what a node has, such as 64Gi"
    if name == "cpu" and parsed > _MOST_CPUS:
        return (
            f"cpu: {shown} is {shown} CPUs, and no instance type has as many",
            f"write {shown}m if millicores are meant",
        )
    return (f"{name}: {shown} is negative", "write zero or more") if parsed < 0 else None


def _reversed(pod: Pod, container: Container) -> Iterator[Hit]:
    limits = mapping(get(container.data, "resources", "limits"))
    for name, value in mapping(get(container.data, "resources", "requests")).items():
        limit, request = amount(limits.get(name)), amount(value)
        if "/" not in name and limit is not None and request is not None and request > limit:
            path = (*container.path, "resources", "requests", name)
            reason = f"{name}: the request {text(value)} is above the limit {text(limits[name])}"
            yield Hit(on=pod.owner, path=path, reason=reason, fix="lower the request, or raise the limit")


RULES = (
    Rule(
        id="RT101",
        severity="error",
        title="The pod fits on no node of its type",
        why="A node's kubelet, its hypervisor and its daemon sets keep a part of CPU and memory. A pod that asks for "
        "what the brochure says is never scheduled: it stays Pending, Karpenter starts no node for it, and nothing "
        "else reports an error. The figures are those of `raytrain-eks catalog TYPE` (Karpenter's planning figures).",
        fix="Ask for what fits, or choose a larger type. A limit without a request counts as a request.",
        check=_too_large,
    ),
    Rule(
        id="RT104",
        severity="error",
        title="An instance type that EC2 does not have",
        why="A node selector or a pool that names a type that does not exist matches nothing, without an error.",
        fix="Write a type of `raytrain-eks catalog`.",
        check=_unknown_types,
    ),
    Rule(
        id="RT107",
        severity="error",
        title="A device is requested otherwise than it is limited",
        why="Extended resources (GPUs, Neuron devices, EFA) and huge pages cannot be overcommitted: requests "
        "must equal limits, in whole numbers. The API server refuses the pod, and so a controller hangs on it.",
        fix="Write the limit only, or the same number in both places.",
        check=_overcommitted,
    ),
    Rule(
        id="RT108",
        severity="error",
        title="A quantity that means something else than it looks like",
        why="`memory: 64` is 64 bytes and `memory: 512m` half a byte: both are valid and kill the container at once. "
        "`cpu: 4000` asks for 4,000 CPUs. A request above its limit is refused by the API server.",
        fix="Write the unit.",
        check=_bad_quantities,
    ),
)
