"""Whether this user may do what `apply`, `submit` and `status` do, asked of the API itself (SelfSubjectAccessReview).

An answer of the API takes RBAC, webhooks and EKS access policies together; reading Roles would not.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from raytrain_eks.kube.doctor.look import Look
from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow
from raytrain_eks.spec.problem import counted


@dataclass(frozen=True)
class Need:
    """A kind and what is done with it."""

    api_version: str
    kind: str
    verbs: tuple[str, ...]
    subresource: str | None = None

    def named(self, verb: str) -> str:
        """`create rayjobs`, as a person writes it."""
        what = f"{self.kind}/{self.subresource}" if self.subresource else self.kind
        return f"{verb} {what}"


READ, WRITE = ("get", "list"), ("get", "create", "patch")
RAY = "ray.io/v1"
SUBMIT = (
    Need(RAY, "RayJob", (*READ, "create", "patch", "delete")),
    Need(RAY, "RayCluster", READ),
    Need("v1", "ConfigMap", ("create", "patch")),
)
"""What `submit`, `cancel` and `resume` do (submit/eks*.py)."""
STATUS = (
    Need(RAY, "RayJob", READ),
    Need(RAY, "RayCluster", READ),
    Need("v1", "Pod", READ),
    Need("v1", "Pod", ("get",), "log"),
    Need("v1", "Event", ("list",)),
)
"""What `status` and `logs` do."""
PROXY = (Need("v1", "Service", ("get", "create"), "proxy"),)
"""How the job server of a head is reached: for ranks' logs, a last checkpoint before a cancel, checks of workers."""


def examine(look: Look) -> Iterator[Diagnosis]:
    """One finding for each verb."""
    yield _verb(look, "status", STATUS)
    yield _verb(look, "submit", SUBMIT)
    yield _verb(look, "proxy", PROXY)
    if look.plan is not None:
        kinds = dict.fromkeys((each.body["apiVersion"], each.kind) for each in look.bundle.objects)
        yield _verb(look, "apply", [Need(version, kind, WRITE) for version, kind in kinds])


def _verb(look: Look, verb: str, needs: Iterable[Need]) -> Diagnosis:
    id, where, missing, asked = f"rights.{verb}", f"namespace {look.namespace}", [], 0
    for need in needs:
        for right in need.verbs:
            asked += 1
            allowed, _ = look.client.allowed(
                right, need.api_version, need.kind, _space(look, need), subresource=need.subresource
            )
            if not allowed:
                missing.append((need, right))
    if not missing:
        return green(id, where, f"{verb}: all of {counted(asked, 'right')}")
    # Whoever applies cluster files is often another person; without the proxy most of a run is still told.
    found = red if verb in ("status", "submit") else yellow
    why = f"{verb} needs rights that you do not have: {', '.join(need.named(right) for need, right in missing)}"
    return found(id, where, why, f"a Role with {_rules(missing)}, bound to you; {EKS}")


EKS = "or an EKS access policy such as AmazonEKSEditPolicy"


def _space(look: Look, need: Need) -> str:
    """Device plugins go to another namespace than the cluster."""
    spaces = {each.namespace for each in look.bundle.objects if each.kind == need.kind and each.namespace}
    return spaces.pop() if len(spaces) == 1 else look.namespace


def _rules(missing: list[tuple[Need, str]]) -> str:
    """Rules of a Role that grant them."""
    by_kind: dict[tuple[str, str], list[str]] = {}
    for need, right in missing:
        plural = f"{need.kind.lower()}s" + (f"/{need.subresource}" if need.subresource else "")
        by_kind.setdefault((need.api_version.rpartition("/")[0], plural), []).append(right)
    return ", ".join(
        f'{{apiGroups: ["{group}"], resources: [{plural}], verbs: [{", ".join(verbs)}]}}'
        for (group, plural), verbs in by_kind.items()
    )
