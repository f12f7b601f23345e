"""Around the cluster: namespace rules, metrics, device plugins, delivery by Argo CD."""

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import BeforeValidator

from raytrain_eks.spec.cluster_nodes import mapped
from raytrain_eks.spec.cluster_ray import Image
from raytrain_eks.spec.kubernetes import Label, LabelKey, LabelName, ObjectName, worded
from raytrain_eks.spec.model import Model, rule
from raytrain_eks.spec.problem import Problem

Repository = Annotated[
    str, worded(re.compile(r"[^\s/:]+[/:]\S+\Z").match, "must be a URL such as https://github.com/me/clusters")
]


class Ground(Model):
    """What lies under the pods in their namespace."""

    namespace: bool = True
    """Render the Namespace; false: it exists already."""

    network_policy: bool = True
    """Let only the cluster's own pods and its namespace reach Ray's ports."""

    resource_quota: bool = False
    """Limit the namespace to what this file's groups can use at most."""

    disruption_budget: bool = True
    """Keep voluntary evictions (drains, upgrades) away from head and workers."""


class Monitoring(Model):
    """Metrics by the Prometheus operator."""

    enabled: bool = False
    """Render a PodMonitor for head and workers."""

    labels: dict[LabelKey, Label] = {}
    """Labels by which your Prometheus finds the PodMonitor, such as `release: prometheus`."""


def enabled(value: object) -> object:
    """`monitoring: true` is `{enabled: true}`."""
    return {"enabled": value} if isinstance(value, bool) else mapped(value, "true, false, or a mapping")


MonitoringOrSwitch = Annotated[Monitoring, BeforeValidator(enabled, json_schema_input_type=Monitoring | bool)]


class Plugins(Model):
    """Which device plugins are rendered with the cluster; false: the cluster has it already, or its nodes bring it."""

    nvidia: bool = True
    """NVIDIA's device plugin, when a group has GPUs."""

    neuron: bool = True
    """Neuron's device plugin, when a group has Trainium or Inferentia."""

    efa: bool = True
    """The EFA device plugin, when a group uses EFA."""

    efa_image: Image | None = None
    """The EFA device plugin's image. None: that of EKS's own registry in the region."""


class GitOps(Model):
    """Delivery by Argo CD: what `render --gitops DIR` writes."""

    repository: Repository
    """The URL of the repository that holds the rendered files."""

    path: str = "."
    """Where in the repository the cluster's folder lies."""

    revision: str = "main"
    """The branch or tag that Argo CD follows."""

    project: ObjectName = "default"
    """Argo CD's project."""

    namespace: LabelName = "argocd"
    """The namespace Argo CD runs in."""

    automated: bool = True
    """Apply changes without a person's click."""

    prune: bool = False
    """With `automated`: delete what was removed from the repository. Off, since that would end a running training."""

    @rule
    def prune_and_path(self) -> Iterator[Problem]:
        if self.prune and not self.automated:
            yield Problem(path="prune", rule="only automated delivery prunes", fix="write `automated: true`")
        if self.path.startswith("/") or ".." in self.path.split("/"):
            yield Problem(path="path", rule="must be relative to the repository's top, without ..")
