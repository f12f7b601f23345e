"""RT80x: Ray clusters on Kubernetes, beyond what the operator itself refuses."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from raytrain_eks.catalog.instance import instance, known
from raytrain_eks.lint.bundle import Bundle
from raytrain_eks.lint.finding import Hit, Rule, Settings
from raytrain_eks.lint.nodes import named_types
from raytrain_eks.lint.pods import Pod
from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, mapping, text
from raytrain_eks.spec.source import Path

_WHERE = {
    "RayCluster": ("spec",),
    "RayJob": ("spec", "rayClusterSpec"),
    "RayService": ("spec", "rayClusterConfig"),
    "RayCronJob": ("spec", "jobTemplate", "rayClusterSpec"),
}
_NEURON = ("aws.amazon.com/neuron", "aws.amazon.com/neurondevice", "aws.amazon.com/neuroncore")


@dataclass(frozen=True, eq=False)
class Cluster:
    """The Ray cluster that an object describes."""

    owner: Resource
    path: Path
    spec: Mapping[str, Any]
    pods: tuple[Pod, ...]

    @cached_property
    def head(self) -> Pod | None:
        return next((pod for pod in self.pods if pod.head), None)

    @cached_property
    def workers(self) -> list[tuple[Mapping[str, Any], Path, Pod | None]]:
        """Each worker group with its path and its pod."""
        found = []
        for index, group in enumerate(items(self.spec.get("workerGroupSpecs"))):
            path = (*self.path, "workerGroupSpecs", index)
            pod = next((pod for pod in self.pods if pod.path[: len(path)] == path), None)
            found.append((mapping(group), path, pod))
        return found

    @property
    def accelerated(self) -> bool:
        return any(pod is not None and pod.devices for _, _, pod in self.workers)


def clusters(bundle: Bundle) -> Iterator[Cluster]:
    """Every Ray cluster of the bundle."""
    for kind, steps in _WHERE.items():
        for owner in bundle.of("ray.io", kind):
            if spec := mapping(owner.get(*steps)):
                yield Cluster(owner, (*owner.base, *steps), spec, tuple(bundle.pods_of(owner)))


def _head_on_accelerators(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        head = cluster.head
        # A RayService may serve on its head.
        if head is None or not cluster.workers or cluster.owner.kind == "RayService":
            continue
        for name in head.devices:
            reason = f"the head takes {head.devices[name]} {name}, and trains nothing"
            path = head.largest(name).where(name)
            yield Hit(on=cluster.owner, path=path, reason=reason, fix="leave it out of the head")
        for wanted in named_types(head):
            for type in wanted.values:
                if known(type) and instance(type).accelerators and not head.devices:
                    reason = f"the head runs on {type}, whose accelerators it does not use"
                    yield Hit(
                        on=cluster.owner, path=wanted.path, reason=reason, fix="select a type without accelerators"
                    )
        anywhere = not head.spec.get("nodeSelector") and not get(head.spec, "affinity", "nodeAffinity")
        if (
            anywhere
            and not head.devices
            and cluster.accelerated
            and any(pod and (pod.spec.get("nodeSelector") or pod.spec.get("affinity")) for _, _, pod in cluster.workers)
        ):
            reason = "the workers choose their nodes and the head does not: it lands on any node, spot ones included"
            fix = "give the head a nodeSelector for on-demand nodes without accelerators"
            yield Hit(on=cluster.owner, path=head.path, reason=reason, fix=fix)


def _head_resources(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        head = cluster.head
        if head is None or not head.main:
            continue
        lacking = [name for name in ("cpu", "memory") if name not in head.main[0].requests()]
        if lacking:
            reason = f"the head asks for no {' and no '.join(lacking)}: Ray takes the node's for its own"
            yield Hit(on=cluster.owner, path=head.main[0].path, reason=reason, fix="write requests and limits")
        group = mapping(cluster.spec.get("headGroupSpec"))
        cpus = get(group, "rayStartParams", "num-cpus", default=get(group, "resources", "CPU"))
        if cluster.accelerated and text(cpus) != "0" and cluster.owner.kind != "RayService":
            reason = "the head advertises CPUs, so tasks and actors land on it and take its memory"
            path = (*cluster.path, "headGroupSpec")
            fix = 'write rayStartParams: {num-cpus: "0"}, or resources: {CPU: "0"} on the head group'
            yield Hit(on=cluster.owner, path=path, reason=reason, fix=fix)


def _fixed_range(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        if cluster.spec.get("enableInTreeAutoscaling") is True:
            continue
        for group, path, _ in cluster.workers:
            least, most, now = group.get("minReplicas"), group.get("maxReplicas"), group.get("replicas")
            if not (isinstance(least, int) and isinstance(most, int) and least < most):
                continue
            stays = now if isinstance(now, int) else 0
            stays = max(least, min(stays, most))
            reason = f"minReplicas {least} and maxReplicas {most} without the autoscaler: there are {stays}, always"
            fix = "write enableInTreeAutoscaling: true, or the same number three times"
            yield Hit(on=cluster.owner, path=(*path, "maxReplicas"), reason=reason, fix=fix)


def _versions(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        said = text(cluster.spec.get("rayVersion"))
        for pod in cluster.pods:
            for container in pod.main[:1]:
                found = re.search(r"(?:^|/)rayproject/ray(?:-\w+)?:(\d+\.\d+\.\d+)", container.image)
                if said and found and found[1] != said and pod.role != "submitter":
                    reason = f"rayVersion is {said}, and the image holds Ray {found[1]}"
                    fix = "write the image's version: KubeRay decides by rayVersion what Ray can do"
                    yield Hit(on=cluster.owner, path=(*container.path, "image"), reason=reason, fix=fix)


def _neuron_cores(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        scaling = cluster.spec.get("enableInTreeAutoscaling") is True
        for group, path, pod in cluster.workers:
            asked = [name for name in _NEURON if pod is not None and name in pod.requests]
            stated = "neuron_cores" in text(get(group, "rayStartParams", "resources"))
            stated = stated or "neuron_cores" in mapping(group.get("resources"))
            if not asked or stated or (asked == [_NEURON[2]] and not scaling):
                continue
            who = "neither the operator nor the autoscaler" if asked[0] != _NEURON[2] else "the autoscaler does not"
            reason = (
                f"{asked[0]} becomes Ray's neuron_cores by {who}"
                if "neither" in who
                else (f"{who} count {asked[0]} as Ray's neuron_cores")
            )
            fix = 'write resources: {neuron_cores: "32"} on the group (the logical cores of the pod)'
            yield Hit(on=cluster.owner, path=path, reason=reason, fix=fix)


def _parameters(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        groups = [(mapping(cluster.spec.get("headGroupSpec")), (*cluster.path, "headGroupSpec"), cluster.head)]
        for group, path, pod in [*groups, *cluster.workers]:
            parameters = mapping(group.get("rayStartParams"))
            for name, value in parameters.items():
                if not isinstance(value, str):
                    reason = f"rayStartParams are texts, and {name}: {text(value)} is none"
                    place = (*path, "rayStartParams", name)
                    yield Hit(on=cluster.owner, path=place, reason=reason, fix=f'write "{text(value)}"')
            yield from _resources(cluster, parameters.get("resources"), (*path, "rayStartParams", "resources"))
            yield from _gpus(cluster, parameters.get("num-gpus"), (*path, "rayStartParams", "num-gpus"), pod)


def _resources(cluster: Cluster, value: object, path: Path) -> Iterator[Hit]:
    """`resources` is JSON in a word of a shell in a YAML text (kuberay#1758, #3756)."""
    if not isinstance(value, str):
        return
    inner = value[1:-1].replace('\\"', '"') if value[:1] == value[-1:] and value[:1] in "'\"" else None
    try:
        held = isinstance(json.loads(inner), dict) if inner is not None else False
    except ValueError:
        held = False
    if not held:
        reason = f"resources: {value} does not survive the shell that runs `ray start`"
        fix = 'write the group\'s field resources: {NAME: "1"} (KubeRay 1.4), or \'"{\\"NAME\\": 1}"\''
        yield Hit(on=cluster.owner, path=path, reason=reason, fix=fix)


def _gpus(cluster: Cluster, value: object, path: Path, pod: Pod | None) -> Iterator[Hit]:
    given = int(value) if isinstance(value, str) and value.isdigit() else None
    has = pod.devices.get("nvidia.com/gpu", 0) if pod else 0
    if given is not None and pod is not None and given != has and not (given == 0 and pod.head):
        reason = f"num-gpus says {given}, and the pod has {has}"
        yield Hit(on=cluster.owner, path=path, reason=reason, fix="leave num-gpus out: KubeRay takes the limit")


def _ports(bundle: Bundle, settings: Settings) -> Iterator[Hit]:
    for cluster in clusters(bundle):
        for container in cluster.head.main[:1] if cluster.head else ():
            for index, port in enumerate(items(container.data.get("ports"))):
                name = text(get(port, "name"))
                if get(port, "containerPort") == 6379 and name not in ("", "gcs-server"):
                    reason = f"port 6379 is named {name}, and KubeRay's name for the GCS is gcs-server"
                    path = (*container.path, "ports", index)
                    yield Hit(on=cluster.owner, path=path, reason=reason, fix="write name: gcs-server")


RULES = (
    Rule(
        id="RT810",
        severity="warning",
        title="The head on accelerator nodes, or on any",
        why="A head that sits on a GPU node keeps a node alive that trains nothing, and one on a spot node takes the "
        "whole cluster with it (kuberay#2098).",
        fix="Give the head a small on-demand node of its own.",
        check=_head_on_accelerators,
    ),
    Rule(
        id="RT811",
        severity="warning",
        title="The head's resources",
        why="Without requests Ray sees the node's CPUs and memory as its own. With num-cpus above 0 tasks run beside "
        "the GCS, and one that takes too much memory ends the cluster.",
        fix='Requests and limits on the head, and num-cpus: "0".',
        check=_head_resources,
    ),
    Rule(
        id="RT812",
        severity="warning",
        title="A range of workers without the autoscaler",
        why="minReplicas and maxReplicas are the autoscaler's bounds: without it the number of workers stays.",
        fix="Switch the autoscaler on, or write one number.",
        check=_fixed_range,
    ),
    Rule(
        id="RT813",
        severity="error",
        title="rayVersion is not the image's",
        why="The operator decides by rayVersion which features and commands it uses; the pods run the image's Ray.",
        fix="Write the same version in both places.",
        check=_versions,
    ),
    Rule(
        id="RT814",
        severity="error",
        title="Neuron devices that Ray does not see",
        why="KubeRay maps only aws.amazon.com/neuroncore to neuron_cores (controllers/ray/common/pod.go), and Ray's "
        "autoscaler none of Neuron's resources: jobs that ask for neuron_cores wait for ever (ray#44361).",
        fix="State neuron_cores in the group's resources.",
        check=_neuron_cores,
    ),
    Rule(
        id="RT815",
        severity="error",
        title="Ray start parameters that do not arrive",
        why="They become words of a shell command. Numbers are refused by the schema, bare JSON loses its quotes "
        "(kuberay#1758, #3756), and a num-gpus other than the pod's makes Ray use devices that are not there.",
        fix="Write texts; use the group's resources field for custom resources.",
        check=_parameters,
    ),
    Rule(
        id="RT816",
        severity="warning",
        title="The GCS port under another name",
        why="The head service takes the names of the container's ports (controllers/ray/common/service.go). KubeRay's "
        "name for the GCS is gcs-server (`GcsServerPortName`), and what looks for it by name does not find another.",
        fix="Write name: gcs-server, or leave the ports out.",
        check=_ports,
    ),
)
