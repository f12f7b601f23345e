"""Other ways to run a job on a cluster's nodes: one MPIJob (Kubeflow's MPI operator), or Slurm (Slinky's operator).

Both take the pods of a worker group as the Ray cluster's workers have them: devices, EFA, folders, nodes. They share
these nodes with Ray, and whoever comes first has them.
"""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import Field, PositiveInt

from raytrain_eks.spec.cluster_ray import Image
from raytrain_eks.spec.kubernetes import DNS_LABEL, ObjectName, SecretKey, worded
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem, nearest
from raytrain_eks.spec.quantity import Duration, Memory

Group = Annotated[str, worded(DNS_LABEL.match, "must be the name of a worker group")]
Folder = Annotated[str, worded(re.compile(r"/[^\s:]+\Z").match, "must be an absolute path such as /home/ray/.ssh")]
SlurmName = Annotated[
    str, worded(re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z").match, "must be lower-case, at most 40 long (Slurm's limit)")
]
SlurmVersion = Annotated[str, worded(re.compile(r"\d\d\.\d\d\Z").match, 'must be in quotes, such as "26.05"')]
PublicKey = Annotated[
    str, worded(re.compile(r"(ssh|ecdsa|sk)-\S+ [A-Za-z0-9+/=]+( .*)?\Z").match, "must be a public key of OpenSSH")
]


class Mpi(Model):
    """One MPIJob for a program that mpirun starts, such as nccl-tests. Workers need sshd and OpenMPI in their image."""

    command: Annotated[list[str], Field(min_length=1)]
    """What each rank runs, word by word, without mpirun."""

    group: Group | None = None
    """The worker group whose pods run it. None: the only one."""

    nodes: PositiveInt | None = None
    """How many of the group's nodes. None: all that it can have."""

    image: Image | None = None
    """The image of launcher and workers. None: the group's."""

    ssh: Folder = "/root/.ssh"
    """Where the image's sshd and ssh look for keys: the home folder of the user that the image runs as."""

    start: bool = False
    """Start when it is applied. Off: it waits until `suspend` is taken away, since it takes nodes."""

    keep: Duration = "1d"
    """How long it stays after its end, for its log."""


class Login(Model):
    """A place to log in and call sbatch; it is reached inside of the cluster only."""

    sssd: SecretKey
    """The existing Secret with sssd.conf, which tells who the users are."""

    root_keys: list[PublicKey] = []
    """Public keys that may log in as root."""


class Slurm(Model):
    """A Slurm cluster of Slinky's operator: a controller, a partition for each group, a login pod."""

    name: SlurmName | None = None
    """Slurm's own name of the cluster. None: the cluster's name."""

    groups: list[Group] = []
    """The worker groups that become partitions, the default one first. None given: all."""

    version: SlurmVersion = "26.05"
    """Slurm's version in Slinky's images."""

    image: Image | None = None
    """The image of the nodes: a slurmd with your software, such as torch. None: Slinky's own, which has none."""

    keys: ObjectName | None = None
    """The existing Secret with `slurm.key` and `jwt.key`. None: `<cluster>--slurm-keys`."""

    state: Memory = "4Gi"
    """The volume for the controller's state: jobs that wait and run."""

    storage_class: ObjectName | None = None
    """The storage class of that volume. None: the cluster's default one."""

    login: Login | None = None
    """None: no login pod; jobs are submitted from a node's pod."""

    @rule
    def each_group_once(self) -> Iterator[Problem]:
        for index, name in enumerate(self.groups):
            if name in self.groups[:index]:
                yield Problem(path=f"groups.{index}", value=name, rule="is given twice", fix="leave one out")


def group_problems(mpi: Mpi | None, slurm: Slurm | None, nodes: dict[str, int]) -> Iterator[Problem]:
    """What does not fit the worker groups, `nodes` being the most of each; paths are relative to the cluster."""
    known = ", ".join(nodes)
    asked = [("mpi.group", mpi.group)] if mpi is not None and mpi.group is not None else []
    asked += [(f"slurm.groups.{index}", name) for index, name in enumerate(slurm.groups if slurm is not None else [])]
    for path, name in asked:
        if name not in nodes:
            guess = nearest(name, nodes)
            fix = f"did you mean `{guess}`?" if guess else f"there are {known}"
            yield Problem(path=path, value=name, rule="is no worker group of this file", fix=fix)
    if mpi is None:
        return
    if mpi.group is None and len(nodes) > 1:
        yield Problem(path="mpi.group", rule="the file has several groups", fix=f"say which: {known}")
    most = nodes.get(mpi.group) if mpi.group is not None else next(iter(nodes.values()), None)
    if mpi.nodes is not None and most is not None and mpi.nodes > most:
        rule = f"the group has at most {most} nodes"
        yield Problem(path="mpi.nodes", value=str(mpi.nodes), rule=rule, fix=f"write at most {most}")
