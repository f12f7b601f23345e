"""The text of a first cluster file: a comment behind each line, few fields, and valid as it stands.

What only the person's AWS account or Kubernetes cluster knows (ids, ARNs, images) and nobody gave is a legal example
with the comment `FILL IN`, so that the file can be validated and rendered before all of it is known.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from raytrain_eks.spec.first import line
from raytrain_eks.spec.write import text

FILL = "FILL IN"
"""The mark, in a comment, of a line whose value is an example."""
SUBNET = "subnet-0123456789abcdef0"
GROUP = "sg-0123456789abcdef0"
FILESYSTEM = "fs-0123456789abcdef0"
MOUNT_NAME = "abcdefgh"
RESERVATION = "cr-0123456789abcdef0"
ROLE = "arn:aws:iam::123456789012:role/eks-nodes"
_IN_ZONE = "in the nodes' zone: aws ec2 describe-subnets"
_LETS_IN = "lets in Lustre: TCP 988, 1018-1023"


def to_fill_in(content: str) -> list[tuple[int, str]]:
    """(line, key) of every example in a first file that is to be replaced; lines count from 1."""
    lines = enumerate(content.splitlines(), start=1)
    return [(number, re.split(r":\s", each.strip(" -"))[0]) for number, each in lines if f"# {FILL}: " in each]


@dataclass(frozen=True, kw_only=True)
class FirstStorage:
    """The shared folder of a first cluster. What is None and needed becomes a place to fill in."""

    kind: str
    """`fsx-lustre`, `efs`, `claim` or `storage-class`, as in the file."""
    filesystem: str | None = None
    """An existing file system's id. None: a new one of FSx for Lustre; an EFS one has to exist."""
    mount_name: str | None = None
    size: str | None = None
    throughput: int | None = None
    """MB/s for each TiB, of FSx for Lustre."""
    bucket: str | None = None
    name: str | None = None
    """Of the claim or the storage class."""
    mount: str = "/shared"

    @property
    def is_new(self) -> bool:
        """Whether it is a file system that the file makes, in a subnet of its own."""
        return self.kind == "fsx-lustre" and self.filesystem is None and self.mount_name is None

    def lines(self, subnet: str | None, groups: tuple[str, ...], *, network: bool) -> list[str]:
        """The key `storage`. `network`: the file says subnets and security groups for all of it."""
        body = {
            "fsx-lustre": lambda: self._fsx(subnet, groups, network=network),
            "efs": self._efs,
            "claim": self._claim,
            "storage-class": self._class,
        }[self.kind]()
        return [
            "storage:",
            line("  shared:", "data and checkpoints, seen by all pods"),
            f"    kind: {self.kind}",
            *body,
            f"    mount: {text(self.mount, flow=False)}",
        ]

    def _fsx(self, subnet: str | None, groups: tuple[str, ...], *, network: bool) -> Iterator[str]:
        if not self.is_new:
            yield _given("    filesystem", self.filesystem, FILESYSTEM, "aws fsx describe-file-systems shows both")
            yield _given("    mount_name", self.mount_name, MOUNT_NAME, "LustreConfiguration.MountName of the same")
            yield line(f"    size: {text(self.size or '1200Gi', flow=False)}", "as large as it is")
        else:
            size = text(self.size or "1200Gi", flow=False)
            yield line(f"    size: {size}", "1200Gi, 2400Gi, then in steps of 2400Gi")
            if self.throughput is not None:
                yield line(f"    throughput: {self.throughput}", "MB/s for each TiB")
            if not network:
                held = _list(groups) if groups else None
                yield _given("    subnet", subnet, SUBNET, _IN_ZONE)
                yield _given("    security_groups", held, f"[{GROUP}]", _LETS_IN, plain=True)
        if self.bucket is not None:
            yield line(f"    bucket: {text(self.bucket, flow=False)}", "its objects appear as files")

    def _efs(self) -> Iterator[str]:
        yield _given("    filesystem", self.filesystem, FILESYSTEM, "aws efs describe-file-systems")
        yield line(f"    size: {text(self.size or '1Ti', flow=False)}", "EFS grows by itself; a claim names some size")

    def _claim(self) -> Iterator[str]:
        yield _given("    claim", self.name, "training-data", "a PersistentVolumeClaim of the namespace")

    def _class(self) -> Iterator[str]:
        yield _given("    name", self.name, "shared", "a StorageClass: kubectl get storageclass")
        yield f"    size: {text(self.size or '1Ti', flow=False)}"


@dataclass(frozen=True, kw_only=True)
class FirstCluster:
    """What a first cluster file says. At most one of `instance` and `gpus`; neither: pods on nodes that exist."""

    name: str
    region: str
    namespace: str = "training"
    zone: str | None = None
    kubernetes: str = "1.33"
    eks: str | None = None
    """The EKS cluster's name; None: the same as this one's."""
    instance: str | None = None
    gpus: str | None = None
    neuron: bool = False
    """Whether that type has Neuron devices, whose images nobody publishes with Ray in them."""
    nodes: tuple[int, int] = (0, 4)
    capacity: str = "on-demand"
    reservations: tuple[str, ...] = ()
    ends: str | None = None
    """When a capacity block ends."""
    efa: str | None = None
    image: str | None = None
    provisioner: str = "karpenter"
    role: str | None = None
    """The nodes' IAM role."""
    subnet: str | None = None
    security_groups: tuple[str, ...] = ()
    """Both of a new FSx for Lustre, else of the nodes."""
    storage: FirstStorage | None = None
    queue: str | None = None
    queue_name: str = "training"
    hub: str | None = None
    """The image of a JupyterHub's notebooks; None: no hub."""
    gitops: str | None = None
    """The repository that Argo CD follows."""

    def text(self, file: str) -> str:
        """The file; `file` is where it will lie, for the comment that says what to do with it."""
        gitops = f" --gitops {self.name}-repository" if self.gitops else ""
        lines = [
            "# A training cluster on EKS. Every field: raytrain-eks explain cluster",
            f"#   raytrain-eks validate {file}",
            f"#   raytrain-eks render {file}{gitops}",
            "kind: Cluster",
            line(f"name: {text(self.name, flow=False)}", "names of its objects begin with it"),
            f"namespace: {text(self.namespace, flow=False)}",
            f"region: {text(self.region, flow=False)}",
        ]
        lines += [line(f"eks: {text(self.eks, flow=False)}", "the EKS cluster's name")] if self.eks else []
        if self.zone:
            lines.append(line(f"zone: {text(self.zone, flow=False)}", "EFA and FSx for Lustre stay within one"))
        lines += [line(f'kubernetes: "{self.kubernetes}"', "the EKS cluster's version"), *self._ray(), self._head()]
        lines += ["workers:", *self._group(), *self._provisioner(), *self._network()]
        if self.storage:
            network = self.provisioner == "managed"
            lines += self.storage.lines(self.subnet, self.security_groups, network=network)
        lines += [*self._queue(), *self._hub()]
        if self.gitops:
            content = f"gitops: {{repository: {text(self.gitops, flow=True)}}}"
            lines.append(line(content, "what Argo CD follows"))
        return "".join(f"{each}\n" for each in [*lines, *self._more()])

    @property
    def _existing(self) -> bool:
        return self.instance is None and self.gpus is None

    def _own(self, what: str) -> str:
        """An image that somebody has to build."""
        return f"123456789012.dkr.ecr.{self.region}.amazonaws.com/raytrain:{what}"

    def _ray(self) -> Iterator[str]:
        if self.image is not None:
            yield from ["ray:", line(f"  image: {text(self.image, flow=False)}", "yours, with torch and this package")]
        elif self.neuron:
            yield "ray:"
            yield _given("  image", None, self._own("neuron"), "on AWS's Neuron image")
        else:
            yield line("ray: {version: 2.60.0}", "image: your own, with torch in it")

    def _head(self) -> str:
        if self.provisioner == "none":
            return line("head: {instance: null, cpu: 1, memory: 4Gi}", "any node")
        return line("head: {instance: m6i.2xlarge}", "plans and watches, runs no training")

    def _group(self) -> Iterator[str]:
        low, high = self.nodes
        count = f"nodes: {high}" if low == high else f"nodes: {{min: {low}, max: {high}}}"
        if self._existing:
            yield from ["  - name: cpu", f"    nodes: {max(low, high)}", "    cpu: 2", "    memory: 4Gi"]
            return
        kind = f"instance: {text(self.instance, flow=False)}" if self.instance else f"gpus: {self.gpus}"
        yield from ["  - name: main", line(f"    {kind}", "CPU and memory are what fits")]
        why = "or {min: 0, max: 16}: as jobs need them" if low == high else "as jobs need them"
        yield line(f"    {count}", "a fixed number: Kueue admits all or none" if self.queue == "kueue" else why)
        if self.capacity in ("reserved", "capacity-block") or self.reservations or self.ends:
            yield from self._reserved()
        elif self.provisioner != "none":
            yield line(f"    capacity: {self.capacity}", "or spot, reserved, capacity-block")
        if self.efa:
            yield line(f"    efa: {self.efa}", "required: refuse a type without it")

    def _reserved(self) -> Iterator[str]:
        yield from ["    capacity:", f"      kind: {self.capacity}"]
        held = _list(self.reservations) if self.reservations else None
        where = "aws ec2 describe-capacity-reservations"
        yield _given("      reservations", held, f"[{RESERVATION}]", where, plain=True)
        if self.ends:
            yield line(f"      ends: {text(self.ends, flow=False)}", "EC2 takes the nodes 30 minutes earlier")

    def _provisioner(self) -> Iterator[str]:
        if self.provisioner == "none":
            yield line("provisioner: none", "the nodes exist already")
        elif self.provisioner == "karpenter" and self.role:
            yield line(f"provisioner: {{role: {text(self.role, flow=True)}}}", "the nodes' IAM role")
        elif self.provisioner == "managed":
            yield from ["provisioner:", line("  kind: managed", "EKS managed node groups")]
            yield _given("  role", self.role, ROLE, "the nodes' IAM role")

    def _network(self) -> Iterator[str]:
        """Of the nodes. Karpenter finds by tags what nobody said; managed node groups take ids only."""
        subnets = f"{{ids: [{text(self.subnet, flow=True)}]}}" if self.subnet else None
        groups = f"{{ids: {_list(self.security_groups)}}}" if self.security_groups else None
        managed = self.provisioner == "managed"
        apart = self.storage is not None and self.storage.is_new and not managed
        if apart or not (managed or subnets or groups):
            return
        yield "network:"
        if managed or subnets:
            yield _given("  subnets", subnets, f"{{ids: [{SUBNET}]}}", _IN_ZONE, plain=True)
        if managed or groups:
            why = "EFA needs one that allows itself all traffic"
            yield _given("  security_groups", groups, f"{{ids: [{GROUP}]}}", why, plain=True)

    def _queue(self) -> Iterator[str]:
        if self.queue:
            why = "a job waits until its quota is free" if self.queue == "kueue" else "all pods of a job start, or none"
            yield line(f"queue: {{kind: {self.queue}, name: {text(self.queue_name, flow=True)}}}", why)

    def _hub(self) -> Iterator[str]:
        if self.hub is None:
            return
        yield line("jupyterhub:", "notebooks on the cluster's nodes")
        yield f"  image: {text(self.hub, flow=False)}"
        if self.neuron:
            why = "with Neuron's runtime"
            yield _given("  neuron_image", None, self._own("hub-neuron"), why)

    def _more(self) -> Iterator[str]:
        """Examples of what most clusters say sooner or later, as comments."""
        if self.storage is None:
            yield "# Data and checkpoints that all nodes share; for an existing file system:"
            yield "# storage:"
            yield f"#   shared: {{kind: efs, filesystem: {FILESYSTEM}, size: 1Ti, mount: /shared}}"
        if self.provisioner != "none":
            yield "# An IAM role for the pods, for S3 (the association with it is made in EKS):"
            yield "# service_account: {pod_identity: arn:aws:iam::123456789012:role/training}"


def _given(key: str, value: str | None, example: str, comment: str, *, plain: bool = False) -> str:
    """`key: value`; without a value the example, marked. `plain`: the value is YAML already."""
    if value is not None:
        return f"{key}: {value if plain else text(value, flow=False)}"
    return line(f"{key}: {example}", f"{FILL}: {comment}")


def _list(values: tuple[str, ...]) -> str:
    return f"[{', '.join(text(each, flow=True) for each in values)}]"
