"""Who decides when a cluster or job starts: Volcano or Kueue, never both, as each would hold back the other's pods."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Discriminator, NonNegativeInt, PositiveInt

from raytrain_eks.spec.kubernetes import LabelKey, LabelName, ObjectName
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem


class Topology(Model):
    """Keep the pods of one cluster close to each other in the network (Volcano's HyperNodes)."""

    mode: Literal["hard", "soft"] = "hard"
    """`hard`: wait until they fit within the tier; `soft`: prefer it."""

    tier: PositiveInt = 1
    """The highest tier that may be crossed; 1 is the closest."""


class Volcano(Model):
    """Gang scheduling by Volcano: all pods of a cluster start, or none. It is the operator's batch scheduler."""

    kind: Literal["volcano"] = "volcano"
    """Volcano."""

    name: LabelName
    """The queue."""

    create: bool = True
    """Render the Queue as well; false: it exists already."""

    weight: PositiveInt = 1
    """The queue's part of the cluster, relative to other queues."""

    reclaimable: bool = False
    """Whether other queues may take back what this one uses above its part, by killing its pods."""

    priority: ObjectName | None = None
    """An existing PriorityClass for the pods."""

    topology: Topology | None = None
    """Network topology of the pods. None: anywhere in the zone."""

    @rule
    def own_queue(self) -> Iterator[Problem]:
        if self.create and self.name in ("root", "default"):
            why = "every Volcano has this queue already, and its limits would be those of everybody"
            yield Problem(path="name", value=self.name, rule=why, fix="choose another name, or add `create: false`")


class Kueue(Model):
    """Admission by Kueue: a job is held back, suspended, until its quota is free. Excludes autoscaling by Ray."""

    kind: Literal["kueue"] = "kueue"
    """Kueue."""

    name: LabelName
    """The LocalQueue in the cluster's namespace."""

    create: bool = True
    """Render LocalQueue, ClusterQueue and ResourceFlavors as well; false: they exist already."""

    cluster_queue: ObjectName | None = None
    """The ClusterQueue behind it. None: the LocalQueue's name, in this file's namespace."""

    cohort: ObjectName | None = None
    """The cohort whose unused quota may be borrowed."""

    priority: ObjectName | None = None
    """An existing WorkloadPriorityClass."""

    preempt: bool = False
    """Let a job of higher priority stop one of lower priority in the same ClusterQueue."""

    topology: LabelKey | None = None
    """A node label (of a Kueue Topology) within whose value all pods must fit."""

    borrow_nodes: NonNegativeInt = 0
    """Nodes of each group that may be borrowed from the cohort."""

    @rule
    def lent_by_a_cohort(self) -> Iterator[Problem]:
        if self.borrow_nodes and not self.cohort:
            yield Problem(path="borrow_nodes", rule="only a cohort can lend", fix="add `cohort`, or leave it out")


Queue = Annotated[Volcano | Kueue, Discriminator("kind")]
AnyQueue = Volcano | Kueue
