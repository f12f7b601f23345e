"""A training cluster, as a platform engineer writes it. Name, region and workers are required; the rest is derived.

What a type of instance can give is not checked here but in `plan`, which knows the catalogue.
"""

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PositiveInt

from raytrain_eks.spec.cluster_hpc import Mpi, Slurm, group_problems
from raytrain_eks.spec.cluster_jupyter import JupyterHub
from raytrain_eks.spec.cluster_nodes import (
    Ami,
    Capacity,
    Disk,
    EksName,
    Network,
    Nodes,
    Provisioner,
    ProvisionerOrKind,
    ServiceAccount,
    ServiceAccountOrName,
    nodes,
    short,
)
from raytrain_eks.spec.cluster_operations import GitOps, Ground, Monitoring, MonitoringOrSwitch, Plugins
from raytrain_eks.spec.cluster_queue import Kueue, Queue
from raytrain_eks.spec.cluster_ray import (
    Auth,
    AuthOrMode,
    Autoscaling,
    Image,
    KubernetesVersion,
    Operator,
    Ray,
    Tolerance,
    switched,
)
from raytrain_eks.spec.cluster_storage import Storage
from raytrain_eks.spec.kubernetes import (
    DNS_1035,
    DNS_LABEL,
    Label,
    LabelKey,
    LabelName,
    SecretKey,
    Taint,
    Toleration,
    Variable,
    worded,
)
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Cpu, Memory
from raytrain_eks.spec.secret_names import reveals

ClusterName = Annotated[
    str,
    worded(
        lambda text: DNS_1035.match(text) and len(text) <= 53,
        "must be lower-case letters, digits and dashes, a letter first, at most 53 long (a RayCluster's limit)",
    ),
]
GroupName = Annotated[str, worded(DNS_LABEL.match, "must be lower-case letters, digits and dashes, at most 63 long")]
InstanceType = Annotated[
    str, worded(re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+\Z").match, "must be an EC2 type such as p5.48xlarge")
]
Gpus = Annotated[str, worded(re.compile(r"[A-Za-z][\w -]*:[1-9]\d*\Z").match, "must be a name and a count, as H100:8")]
Region = Annotated[str, worded(re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d\Z").match, "must be a region such as us-west-2")]
Zone = Annotated[
    str, worded(re.compile(r"[a-z]{2,4}(-[a-z]+)+-\d(-[a-z]+-\d)?[a-z]\Z").match, "must be a zone such as us-west-2a")
]

PlacementGroup = Annotated[
    str, worded(re.compile(r"\S([ -~]{0,253}\S)?\Z").match, "must be a placement group's name, at most 255 long")
]
External = Annotated[str, worded(re.compile(r"[^/\s]+/\S+\Z").match, "must be Kind/name or Kind/namespace/name")]


class Pods(Model):
    """What head and worker groups share: the pod and what is not named elsewhere."""

    instance: InstanceType | None = None
    """The EC2 type of its nodes."""

    image: Image | None = None
    """The image of its pods. None: `ray.image`."""

    cpu: Cpu | None = None
    """CPUs of a pod. None: its part of what the node can give, less daemon sets."""

    memory: Memory | None = None
    """Memory of a pod. None: its part of what the node can give, less daemon sets."""

    environment: dict[Variable, str] = {}
    """Environment variables; they win over those that are derived, which `explain` tells with their reasons."""

    labels: dict[LabelKey, Label] = {}
    """Labels of the pods and of their nodes, known to Ray as node labels as well. Those of Kubernetes' and Karpenter's
    own domains stay with the pods."""

    annotations: dict[LabelKey, str] = {}
    """Annotations of the pods."""

    node_selector: dict[LabelKey, Label] = {}
    """More labels that a node must have, for nodes which are not made by this file."""

    tolerations: list[Toleration] = []
    """More taints that the pods tolerate."""

    pod: dict[str, Any] = {}
    """A piece of a Kubernetes Pod (`metadata`, `spec`) merged over the derived one as kubectl's strategic merge does.
    For everything that has no field here; unknown pod fields are refused. The Ray container is called `ray-head` in
    the head and `ray-worker` in workers."""

    @rule
    def labels_are_free(self) -> Iterator[Problem]:
        for key in self.labels:
            owner = key.rpartition("/")[0]
            if owner in ("ray.io", "raytrain-eks"):
                why = (
                    "labels under ray.io/ belong to Ray, which refuses to start with them" if owner == "ray.io" else ""
                )
                why = why or "labels under raytrain-eks/ choose the nodes"
                yield Problem(path="labels", value=key, rule=why, fix="use a domain of your own")

    @rule
    def secrets_are_elsewhere(self) -> Iterator[Problem]:
        for name, value in self.environment.items():
            if reveals(name, value):
                why = "looks like a secret, and everyone who may read the manifests could read it"
                fix = f"keep it in a Secret and write `secrets: {{{name}: {{name: …, key: …}}}}`"
                yield Problem(path=f"environment.{name}", value="(not shown)", rule=why, fix=fix)

    @rule
    def pod_is_a_pod(self) -> Iterator[Problem]:
        if self.pod:
            from raytrain_eks.spec import pod_overlay

            yield from pod_overlay.problems(self.pod, "pod")


class Head(Pods):
    """The Ray head: it plans and watches, runs no training and keeps off accelerators."""

    instance: InstanceType | None = "m6i.2xlarge"
    """The EC2 type of its node; null with `provisioner: none`: any node."""

    fault_tolerance: Tolerance | None = None
    """Where the head's state survives its pod. None: a lost head ends its jobs."""

    service: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """How the head's service can be reached."""


class WorkerGroup(Pods):
    """Workers of one kind, one type of instance."""

    name: GroupName
    """The group's name, unique in the file."""

    gpus: Gpus | None = None
    """Instead of `instance`: an accelerator and how many a node has, such as `H100:8`; the smallest type that fits."""

    nodes: Annotated[Nodes, BeforeValidator(nodes, json_schema_input_type=Nodes | int)]
    """How many nodes, as `4` or `{min: 0, max: 16}`."""

    capacity: Annotated[Capacity, short("kind", Capacity)] = Capacity.model_construct()
    """`on-demand`, `spot`, or a mapping for `reserved` and `capacity-block`, which need their reservations."""

    zone: Zone | None = None
    """The group's availability zone. None: the cluster's."""

    accelerators: PositiveInt | None = None
    """Accelerators of one pod. None: all of the node, which is the fastest; fewer: several pods share a node."""

    neuron: Literal["devices", "cores"] = "devices"
    """How a Neuron pod asks: whole devices (`aws.amazon.com/neuron`) or cores (`aws.amazon.com/neuroncore`)."""

    logical_cores: Literal[1, 2] | None = None
    """Physical NeuronCores in a logical one (LNC), as the nodes are set up. None: 2 on Trainium2 and later, else 1."""

    efa: Literal["auto", "required", "none"] = "auto"
    """`auto`: EFA when the type has it and the group can have more than one node; `required`: refuse a type without."""

    shm: Memory | None = None
    """The size of /dev/shm, which holds Ray's object store and NCCL's buffers; part of the pod's memory.
    None: a third of the memory."""

    placement_group: PlacementGroup | None = None
    """An existing EC2 placement group (cluster strategy) for the nodes."""

    taints: list[Taint] | None = None
    """Taints of the nodes. None: one for the kind of accelerator, none for CPUs."""

    ami: Ami | None = None
    """AMI alias or id of the group's nodes. None: the provisioner's."""

    disk: Disk | None = None
    """The root volume of the group's nodes. None: the provisioner's."""

    @rule
    def own_words(self) -> Iterator[Problem]:
        if self.instance and self.gpus:
            yield Problem(path="gpus", rule="give `instance` or `gpus`, not both")


class Cluster(Model):
    """One Ray cluster for training on EKS, with everything it needs around it."""

    kind: Literal["Cluster"] = "Cluster"
    """The kind of file this is."""

    name: ClusterName
    """The cluster's name; names of its objects begin with it."""

    namespace: LabelName = "training"
    """The Kubernetes namespace of everything that has one."""

    region: Region
    """The AWS region."""

    zone: Zone | None = None
    """The availability zone of all groups. Groups that use EFA, and FSx for Lustre, need one."""

    kubernetes: KubernetesVersion = "1.33"
    """The cluster's Kubernetes version, in quotes."""

    eks: EksName | None = None
    """The EKS cluster's name. None: this cluster's name."""

    labels: dict[LabelKey, Label] = {}
    """Labels of every object."""

    ray: Ray = Ray.model_construct()
    """Ray's version and image."""

    head: Head = Head.model_construct()
    """The Ray head."""

    workers: Annotated[list[WorkerGroup], Field(min_length=1)]
    """The worker groups."""

    autoscaling: Annotated[
        Autoscaling, BeforeValidator(switched, json_schema_input_type=Autoscaling | bool | Literal["on", "off"])
    ] = Autoscaling.model_construct()
    """Whether Ray asks for more or fewer workers by itself."""

    storage: Storage = Storage.model_construct()
    """The folders that pods see."""

    queue: Queue | None = None
    """Who decides when a cluster or job starts. None: it starts at once."""

    network: Network = Network.model_construct()
    """The network of nodes and pods."""

    service_account: ServiceAccountOrName = ServiceAccount.model_construct()
    """Who the pods are, towards Kubernetes and AWS; a name, or a mapping with `irsa` or `pod_identity`."""

    provisioner: ProvisionerOrKind = Provisioner.model_construct()
    """Who makes the nodes: `karpenter`, `managed` or `none`, or a mapping with more."""

    auth: AuthOrMode = Auth.model_construct()
    """Tokens for dashboard and Jobs API."""

    secrets: dict[Variable, SecretKey] = {}
    """Environment variables of all pods that come from existing Secrets, such as `HF_TOKEN: {name: hf, key: token}`."""

    ground: Ground = Ground.model_construct()
    """What lies under the pods in their namespace."""

    monitoring: MonitoringOrSwitch = Monitoring.model_construct()
    """Metrics."""

    plugins: Plugins = Plugins.model_construct()
    """Which device plugins are rendered."""

    operator: Operator = Operator.model_construct()
    """The KubeRay operator that will read the objects."""

    jupyterhub: JupyterHub | None = None
    """A JupyterHub whose notebooks use the cluster's nodes and folders and submit jobs. None: no hub."""

    mpi: Mpi | None = None
    """An MPIJob on the pods of a group. None: none."""

    slurm: Slurm | None = None
    """A Slurm cluster on the pods of groups. None: none."""

    gitops: GitOps | None = None
    """Delivery by Argo CD. None: somebody applies the files."""

    external: list[External] = []
    """Objects that exist outside of this file, as `Kind/name`, so that a check does not miss them."""

    @rule
    def names_and_types(self) -> Iterator[Problem]:
        seen: set[str] = set()
        for index, group in enumerate(self.workers):
            if group.name in seen:
                yield Problem(path=f"workers.{index}.name", rule="another group has this name", fix="choose another")
            seen.add(group.name)
            if group.name in ("head", "headgroup"):
                why = "the operator calls the head's own group so"
                yield Problem(path=f"workers.{index}.name", rule=why, fix="choose another")
            if group.instance is None and group.gpus is None:
                if self.provisioner.kind != "none":
                    why = "needs `instance` or `gpus`"
                    yield Problem(path=f"workers.{index}", rule=why, fix="for example `instance: p5.48xlarge`")
                elif group.cpu is None or group.memory is None:
                    why = "without `instance` a pod needs `cpu` and `memory`, since nothing is known about its node"
                    yield Problem(path=f"workers.{index}", rule=why)

    @rule
    def notebooks(self) -> Iterator[Problem]:
        known = [group.name for group in self.workers]
        for index, name in enumerate((self.jupyterhub.groups if self.jupyterhub else None) or []):
            if name not in known:
                why, fix = "there is no such worker group", f"there are {', '.join(known)}"
                yield Problem(path=f"jupyterhub.groups.{index}", value=name, rule=why, fix=fix)

    @rule
    def others_name_groups(self) -> Iterator[Problem]:
        yield from group_problems(self.mpi, self.slurm, {group.name: group.nodes.max for group in self.workers})

    @rule
    def places(self) -> Iterator[Problem]:
        zones = [("zone", self.zone)] + [(f"workers.{i}.zone", group.zone) for i, group in enumerate(self.workers)]
        for path, zone in zones:
            if zone is not None and not zone.startswith(self.region):
                yield Problem(path=path, rule=f"does not lie in the region, which is {self.region}")
        if self.head.instance is None and self.provisioner.kind != "none":
            yield Problem(path="head.instance", rule="needs a type, since its node is made by the provisioner")

    @rule
    def nobody_gets_in_unasked(self) -> Iterator[Problem]:
        if self.auth.mode == "disabled" and self.head.service != "ClusterIP":
            why = "whoever reaches the nodes would run code in the cluster: its Jobs API asks for no token"
            fix = "write `auth: token`, or `service: ClusterIP` and use kubectl port-forward"
            yield Problem(path="head.service", value=self.head.service, rule=why, fix=fix)

    @rule
    def scaling(self) -> Iterator[Problem]:
        if isinstance(self.queue, Kueue):
            if self.autoscaling.enabled:
                why = "Kueue admits a fixed number of pods, so Ray's autoscaler must be off"
                yield Problem(path="autoscaling", rule=why, fix="write `autoscaling: off`, or use Volcano")
            if len(self.workers) > 17:
                why = f"Kueue admits at most 18 sets of pods: the head and 17 groups, here are {len(self.workers)}"
                yield Problem(path="workers", value=str(len(self.workers)), rule=why)
        if not self.autoscales:
            for index, group in enumerate(self.workers):
                if group.nodes.start is None and group.nodes.min != group.nodes.max:
                    why = "Kueue excludes autoscaling" if isinstance(self.queue, Kueue) else "autoscaling is off"
                    why = f"{why}, so the number of nodes is fixed"
                    fix = f"write `nodes: {group.nodes.max}`, or add `start`"
                    yield Problem(path=f"workers.{index}.nodes", rule=why, fix=fix)

    @property
    def autoscales(self) -> bool:
        """Whether Ray's autoscaler runs: as written, or when a group's size may change and the queue allows it."""
        if self.autoscaling.enabled is not None:
            return self.autoscaling.enabled
        return not isinstance(self.queue, Kueue) and any(
            group.nodes.min != group.nodes.max and group.nodes.start is None for group in self.workers
        )

    def group(self, name: str | None) -> WorkerGroup | None:
        """The worker group of that name; the only one for None; None when there is no such group."""
        if name is None:
            return self.workers[0] if len(self.workers) == 1 else None
        return next((group for group in self.workers if group.name == name), None)
