"""A JupyterHub beside the cluster: what its users' notebooks run on, and what they may do."""

from collections.abc import Iterator

from raytrain_eks.spec.cluster_nodes import RoleArn
from raytrain_eks.spec.cluster_ray import Image
from raytrain_eks.spec.kubernetes import LabelName, ObjectName
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem
from raytrain_eks.spec.quantity import Cpu, Duration, Memory, seconds


class JupyterHub(Model):
    """Values for the zero-to-jupyterhub chart, and the Kubernetes objects that its users' notebooks need."""

    namespace: LabelName = "jupyter"
    """The namespace that the chart is installed in, where users' pods run. In the cluster's own namespace notebooks see
    all of its folders; in another one, those of file systems that exist already."""

    image: Image
    """The image of notebooks on CPUs, with JupyterHub's single-user server and raytrain-eks."""

    gpu_image: Image | None = None
    """The image of notebooks with GPUs. None: `image`."""

    neuron_image: Image | None = None
    """The image of notebooks with Neuron devices, which needs Neuron's runtime and compiler as well."""

    groups: list[str] | None = None
    """The worker groups whose nodes notebooks may use; their pods count against the groups' most nodes. None: all."""

    cpu: Cpu = "2"
    """CPUs of a notebook without accelerators."""

    memory: Memory = "8Gi"
    """Memory of a notebook without accelerators."""

    home: Memory = "10Gi"
    """The size of each user's home volume."""

    home_class: ObjectName | None = None
    """The storage class of home volumes. None: the Kubernetes cluster's default one."""

    idle: Duration = "1h"
    """How long a notebook server without activity stays. A kernel that computes is active."""

    longest: Duration | None = None
    """How old a notebook server may become, idle or not. None: any age."""

    connect: bool = False
    """Let notebooks reach the running cluster, as `Cluster.connect` does: its dashboard and client port, and the token
    that both ask for. Whoever has the token runs code in the cluster."""

    irsa: RoleArn | None = None
    """The IAM role of notebooks, by their service account's annotation (IRSA), to read runs and data in S3."""

    @rule
    def ages_are_in_order(self) -> Iterator[Problem]:
        if seconds(self.idle) < 60:
            yield Problem(path="idle", value=self.idle, rule="is less than a minute, and nobody reads so fast")
        if self.longest is not None and seconds(self.longest) < seconds(self.idle):
            yield Problem(path="longest", value=self.longest, rule=f"is less than `idle`, which is {self.idle}")
