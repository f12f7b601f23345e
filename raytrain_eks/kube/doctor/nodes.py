"""Who makes nodes: Karpenter's pools and classes, or nodes that must be there already."""

from collections.abc import Iterator

from raytrain_eks.kube.client import Body
from raytrain_eks.kube.doctor.look import Look, condition, place
from raytrain_eks.manifests import karpenter
from raytrain_eks.plan.cluster import GroupPlan
from raytrain_eks.spec import quantity
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

POOL, CLASS = ("karpenter.sh/v1", "NodePool"), ("karpenter.k8s.aws/v1", "EC2NodeClass")


def examine(look: Look) -> Iterator[Diagnosis]:
    """Pools of the file, or all that there are."""
    kind = look.plan.cluster.provisioner.kind if look.plan is not None else "karpenter"
    if kind == "none":
        yield from _existing(look)
    if kind != "karpenter" or not look.client.serves(*POOL):
        return
    names = [karpenter.pool_name(look.plan, pod) for pod in look.plan.pods] if look.plan is not None else None
    for api, what in ((CLASS, "node class"), (POOL, "node pool")):
        if look.client.serves(*api):
            yield from _all(look, api, what, names)


def _all(look: Look, api: tuple[str, str], what: str, names: list[str] | None) -> Iterator[Diagnosis]:
    found = {each["metadata"]["name"]: each for each in look.client.list(*api)}
    id = f"karpenter.{api[1].lower()}"
    for name in names if names is not None else sorted(found):
        if name not in found:
            yield green(id, f"{api[1]} {name}", f"the {what} is not there yet; `apply` makes it")
            continue
        yield _ready(id, what, found[name])
        if api == POOL:
            yield from _full(found[name])
    if names is None and not found:
        yield yellow(id, api[1], f"there is no {what}: Karpenter makes no node", "apply a cluster file")


def _ready(id: str, what: str, each: Body) -> Diagnosis:
    status, why = condition(each, "Ready")
    where = place(each)
    if status == "True":
        return green(id, where, f"the {what} is ready")
    if status is None:
        return yellow(id, where, f"the {what} has no condition Ready yet", "is Karpenter running? see its log")
    fix = (
        "role, subnets, security groups and AMI of the node class must exist, and their tags match; "
        f"kubectl describe {each.get('kind', '').lower()} {each['metadata']['name']}"
    )
    # Every condition that is not true says which of them it is.
    parts = [
        f"{other['type']} ({other.get('message') or other.get('reason') or 'no reason'})"
        for other in (each.get("status") or {}).get("conditions") or []
        if other.get("status") == "False" and other.get("type") != "Ready"
    ]
    return red(id, where, f"the {what} is not ready: {'; '.join(parts) or why or 'no reason is given'}", fix)


def _full(each: Body) -> Iterator[Diagnosis]:
    """A pool that has reached a limit makes no more nodes, and says so only in Karpenter's log."""
    limits = (each.get("spec") or {}).get("limits") or {}
    used = (each.get("status") or {}).get("resources") or {}
    for name, limit in limits.items():
        if name in used and quantity.parse(str(used[name])) >= quantity.parse(str(limit)):
            why = f"{used[name]} of {limit} {name} are in use: it makes no more nodes"
            fix = "wait, or raise `nodes: {max: …}` of the group and apply"
            yield yellow("karpenter.limits", place(each), why, fix)


def _existing(look: Look) -> Iterator[Diagnosis]:
    """`provisioner: none`: each group's nodes must be there, with its labels."""
    assert look.plan is not None
    for pod in look.plan.pods:
        fitting = [node for node in look.nodes if _fits(node, pod.node_selector)]
        where = f"group {pod.name}"
        wanted = pod.max_nodes if isinstance(pod, GroupPlan) else 1
        said = ", ".join(f"{key}={value}" for key, value in sorted(pod.node_selector.items())) or "any label"
        if not fitting:
            fix = "label the nodes so, or let Karpenter make them: `provisioner: karpenter`"
            yield red("nodes.existing", where, f"no node has {said}", fix)
        elif len(fitting) < wanted:
            why = f"{len(fitting)} of {wanted} nodes with {said}"
            yield yellow("nodes.existing", where, why, "the others must come before the job can have them")
        else:
            yield green("nodes.existing", where, f"{len(fitting)} nodes with {said}")


def _fits(node: Body, selector: dict[str, str]) -> bool:
    labels = (node.get("metadata") or {}).get("labels") or {}
    return all(labels.get(key) == value for key, value in selector.items())
