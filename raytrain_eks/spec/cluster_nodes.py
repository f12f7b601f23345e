"""Where nodes come from: who creates them, under which contract with AWS, in which network and under which identity."""

import math
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt

from raytrain_eks.spec import quantity
from raytrain_eks.spec.kubernetes import SECURITY_GROUP, SUBNET, LabelName, refused, worded
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Duration, Memory

RoleArn = Annotated[
    str,
    worded(
        re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+\Z").match, "must look like arn:aws:iam::<account>:role/<name>"
    ),
]
ReservationId = Annotated[str, worded(re.compile(r"cr-[0-9a-f]{8,40}\Z").match, "must look like cr-0123456789abcdef0")]
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::\d{12}:role/.+\Z|[\w+=,.@-]{1,64}\Z")
Role = Annotated[str, worded(_ROLE.match, "must be a role's name, or arn:aws:iam::<account>:role/<name>")]
_AMI = re.compile(r"ami-([0-9a-f]{8}|[0-9a-f]{17})\Z|(al2|al2023|bottlerocket)@(latest|v?[0-9][\w.-]*)\Z")
Ami = Annotated[str, worded(_AMI.match, "must be an alias such as al2023@v20260801, or ami-0123456789abcdef0")]
Disk = Annotated[
    Memory,
    refused(
        lambda text: not 20 * 2**30 <= quantity.parse(text) <= 64 * 2**40,
        "must lie between 20Gi, the size of EKS's images, and 64Ti, the most of a gp3 volume",
    ),
    quantity.sized(lambda wanted: f"{min(max(math.ceil(wanted), 20), 64 * 1024)}Gi" if wanted else "200Gi"),
]
EksName = Annotated[
    str, worded(re.compile(r"[0-9A-Za-z][\w-]{0,99}\Z").match, "an EKS cluster's name has letters, digits, - and _")
]


def _word(key: str, model: type[Model]) -> Any:
    """The type of the one word that stands for a model: its field's, with what the field's metadata adds."""
    info = model.model_fields[key]
    return Annotated[(info.annotation, *info.metadata)] if info.metadata else info.annotation


def short(key: str, model: type[Model]) -> Any:
    """A `model` that may be written as one word, which is its field `key`: `capacity: spot`."""

    def spelt_out(value: object) -> object:
        if isinstance(value, str | int | float):
            return {key: value}
        return mapped(value, "a word, or a mapping")

    return BeforeValidator(spelt_out, json_schema_input_type=_word(key, model) | model)


def mapped(value: object, expected: str) -> object:
    """`value` when it is a mapping or a model already. Raises ValueError with what is expected."""
    if isinstance(value, Mapping | Model):
        return value
    raise ValueError(f"must be {expected}")


def _moment(value: object) -> object:
    try:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError("must be a time with its offset from UTC, such as 2026-12-24T11:30:00Z")
    return value


Moment = Annotated[str, BeforeValidator(_moment)]


class Capacity(Model):
    """Under which contract a group's instances run."""

    kind: Literal["on-demand", "spot", "reserved", "capacity-block"] = "on-demand"
    """`reserved`: on-demand capacity reservations; `capacity-block`: a block of reserved time, which ends."""

    reservations: list[ReservationId] = []
    """Ids of the capacity reservations or blocks."""

    tags: dict[str, str] = {}
    """Tags that choose the reservations, instead of ids."""

    fallback: bool = False
    """For `reserved`: go on with on-demand capacity when the reservation is full."""

    ends: Moment | None = None
    """When the capacity block ends (UTC). EC2 begins to end its instances 30 minutes earlier."""

    @rule
    def reservations_fit(self) -> Iterator[Problem]:
        held = self.kind in ("reserved", "capacity-block")
        if held and not (self.reservations or self.tags):
            fix = f"for example `capacity: {{kind: {self.kind}, reservations: [cr-0123456789abcdef0]}}`"
            yield Problem(path="", rule=f"{self.kind} needs `reservations` or `tags` that choose them", fix=fix)
        if held and self.reservations and self.tags:
            yield Problem(path="tags", rule="give `reservations` or `tags`, not both")
        if not held and (self.reservations or self.tags):
            word = "reservations" if self.reservations else "tags"
            yield Problem(path=word, rule=f"{self.kind} capacity has none", fix="write `kind: reserved`")
        if self.fallback and self.kind != "reserved":
            yield Problem(path="fallback", rule="only reserved capacity falls back to on-demand")
        if self.ends is not None and self.kind != "capacity-block":
            yield Problem(path="ends", rule="only a capacity block ends", fix="leave it out")
        if self.ends is None and self.kind == "capacity-block":
            why = "a capacity block needs the time when it ends, since no job may outlive it"
            yield Problem(path="ends", rule=why, fix="aws ec2 describe-capacity-reservations shows it as EndDate")


class Nodes(Model):
    """How many nodes a group has."""

    min: NonNegativeInt = 0
    """Nodes that are always there."""

    max: Annotated[int, Field(ge=1, le=10_000)] = 1
    """The most nodes."""

    start: NonNegativeInt | None = None
    """Nodes at the beginning. None: `min` with autoscaling; without it `min` and `max` must be equal then."""

    @rule
    def in_order(self) -> Iterator[Problem]:
        if self.min > self.max:
            yield Problem(path="min", rule=f"is more than `max`, which is {self.max}")
        if self.start is not None and not self.min <= self.start <= self.max:
            yield Problem(path="start", rule=f"must lie between `min` and `max`: {self.min} to {self.max}")


def nodes(value: object) -> object:
    """`nodes: 4` is `{min: 4, max: 4}`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return {"min": value, "max": value}
    return mapped(value, "a number of nodes, or a mapping such as {min: 0, max: 16}")


class Selector(Model):
    """AWS objects by their ids, or by tags that all must match."""

    ids: list[str] = []
    """Ids, such as subnet-0123456789abcdef0 or sg-0123456789abcdef0."""

    tags: dict[str, str] = {}
    """Tags that all must match; a value of `*` matches any."""

    @rule
    def ids_or_tags(self) -> Iterator[Problem]:
        if bool(self.ids) == bool(self.tags):
            yield Problem(path="", rule="needs `ids` or `tags`, and not both")


class Network(Model):
    """The network of nodes and pods."""

    discovery: str | None = None
    """The value of the tag `karpenter.sh/discovery` on subnets and security groups. None: the EKS cluster's name."""

    subnets: Selector | None = None
    """The nodes' subnets. None: those with the discovery tag."""

    security_groups: Selector | None = None
    """The nodes' security groups. None: those with the discovery tag. EFA needs one that allows itself all traffic."""

    host_network: bool = False
    """Worker pods use the node's own network: one pod per node, and NCCL must choose among real interfaces."""

    @rule
    def ids_are_of_their_kind(self) -> Iterator[Problem]:
        kinds = {"subnets": (self.subnets, SUBNET), "security_groups": (self.security_groups, SECURITY_GROUP)}
        for name, (selector, kind) in kinds.items():
            for index, id in enumerate(selector.ids if selector else []):
                if not kind.fullmatch(id):
                    why = f"must look like {'subnet' if name == 'subnets' else 'sg'}-0123456789abcdef0"
                    yield Problem(path=f"{name}.ids.{index}", value=id, rule=why)


_OWN_TAGS = {
    "eks:eks-cluster-name",
    "karpenter.sh/nodepool",
    "karpenter.sh/nodeclaim",
    "karpenter.k8s.aws/ec2nodeclass",
}
"""Besides `kubernetes.io/cluster/...`: the CEL rules of EC2NodeClass.spec.tags (Karpenter 1.14)."""


class Provisioner(Model):
    """Who makes the nodes, and what all of them have in common."""

    kind: Literal["karpenter", "managed", "none"] = "karpenter"
    """`karpenter`; `managed`: EKS managed node groups; `none`: the nodes exist already, none are rendered."""

    role: Role | None = None
    """The nodes' IAM role: its name for Karpenter, its ARN for managed node groups, which need it.
    None: `KarpenterNodeRole-<EKS cluster>`."""

    ami: Ami | None = None
    """AMI alias or id of all nodes: `al2023@v20260101`, `ami-…`. None: the newest AL2023, which moves."""

    disk: Disk = "200Gi"
    """The root volume, which holds images and containers' file systems."""

    idle: Duration = "10m"
    """How long an empty node stays."""

    tags: dict[str, str] = {}
    """AWS tags of instances and volumes."""

    def problems(self) -> Iterator[Problem]:
        arn = (self.role or "").startswith("arn:")
        if self.kind == "managed" and not arn:
            rule = "managed node groups need the ARN of the nodes' IAM role"
            yield Problem(path="role", rule=rule, fix="write `role: arn:aws:iam::<account>:role/<name>`")
        if self.kind == "karpenter" and arn:
            rule = "Karpenter takes the role's name"
            yield Problem(path="role", rule=rule, fix=f"write `role: {(self.role or '').rpartition('/')[2]}`")
        for tag in self.tags:
            if self.kind == "karpenter" and (not tag or tag in _OWN_TAGS or tag.startswith("kubernetes.io/cluster")):
                rule = "Karpenter sets this tag itself and refuses it here" if tag else "a tag needs a name"
                yield Problem(path="tags", value=tag, rule=rule, fix="leave it out")


ProvisionerOrKind = Annotated[Provisioner, short("kind", Provisioner)]


class ServiceAccount(Model):
    """Who the pods are, towards Kubernetes and AWS."""

    name: LabelName | None = None
    """Its name. None: the cluster's name."""

    create: bool = True
    """Render the service account; false: it exists already."""

    irsa: RoleArn | None = None
    """The IAM role that pods take by the service account's annotation (IRSA)."""

    pod_identity: RoleArn | None = None
    """The IAM role that pods take by EKS Pod Identity; the association is made in EKS, not in Kubernetes."""

    @rule
    def one_role(self) -> Iterator[Problem]:
        if self.irsa and self.pod_identity:
            yield Problem(path="pod_identity", rule="give `irsa` or `pod_identity`, not both")


ServiceAccountOrName = Annotated[ServiceAccount, short("name", ServiceAccount)]
