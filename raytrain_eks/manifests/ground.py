"""What lies under the pods: Namespace, ServiceAccount, NetworkPolicy, ResourceQuota, PodDisruptionBudget, PodMonitor.

Rules that are easy to get wrong:
- A budget over pods whose controller has no scale subresource, as a RayCluster's, may only say `minAvailable` as a
  whole number; anything else is an error in the budget's status, and an eviction passes or not by chance
  (kubernetes.io, "Specifying a Disruption Budget", arbitrary workloads).
- A NetworkPolicy never applies to pods on the host's network, and sees their traffic as the node's, so that a policy
  by pod labels would cut the head off from such workers: none is rendered with `host_network`.
- A quota on CPU or memory refuses every pod that asks for none, such as the operator's init container: a LimitRange
  gives those a small request.
"""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from raytrain_eks.manifests.kuberay_cluster import AUTOSCALER
from raytrain_eks.manifests.metadata import labels, metadata
from raytrain_eks.manifests.object import Object
from raytrain_eks.plan import fit
from raytrain_eks.plan.cluster import ClusterPlan
from raytrain_eks.spec import quantity

SYSTEM = "ground"
CLUSTER_LABEL = "ray.io/cluster"
"""Set by the operator on every pod of a cluster."""
SUBMITTER_CPU, SUBMITTER_MEMORY = Decimal(1), Decimal(2**30)
"""The most that KubeRay's own submitter pod of one job may use (its limits)."""
SUBMITTERS = 4
"""Submitter pods that a quota leaves room for."""


def objects(plan: ClusterPlan) -> Iterator[Object]:
    """Everything under the pods, in the order of applying."""
    cluster = plan.cluster
    if cluster.ground.namespace:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": cluster.namespace}}
        yield Object(SYSTEM, body, {"": "everything of this cluster that has a namespace lives in this one"})
    if cluster.service_account.create:
        yield service_account(plan)
    if cluster.ground.network_policy and not cluster.network.host_network:
        yield network_policy(plan)
    if cluster.ground.resource_quota:
        yield from quota(plan)
    if cluster.ground.disruption_budget:
        yield disruption_budget(plan)
    if cluster.monitoring.enabled:
        yield pod_monitor(plan)


def notes(plan: ClusterPlan) -> Iterator[str]:
    """What Kubernetes objects cannot do, and what was left out with a reason."""
    cluster = plan.cluster
    account = cluster.service_account
    if account.pod_identity:
        yield (
            f"EKS Pod Identity is associated in EKS: aws eks create-pod-identity-association --cluster-name {plan.eks}"
            f" --namespace {cluster.namespace} --service-account {plan.service_account}"
            f" --role-arn {account.pod_identity}"
        )
    if cluster.ground.network_policy and cluster.network.host_network:
        yield "no NetworkPolicy: it does not apply to pods on the host's network; use the nodes' security groups"


def service_account(plan: ClusterPlan) -> Object:
    """Who the pods are."""
    account = plan.cluster.service_account
    annotations = {"eks.amazonaws.com/role-arn": account.irsa} if account.irsa else None
    body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(plan, plan.service_account, annotations)}
    whys = {"": "head and workers run as this account, towards Kubernetes and AWS alike"}
    if account.irsa:
        whys["metadata.annotations.eks.amazonaws.com/role-arn"] = "IRSA: EKS gives pods a token for this role"
    elif account.pod_identity:
        whys[""] += f"; EKS Pod Identity gives it the role {account.pod_identity}, by an association in EKS"
    return Object(SYSTEM, body, whys)


def network_policy(plan: ClusterPlan) -> Object:
    """Who may reach the cluster's pods."""
    cluster = plan.cluster
    own = {"podSelector": {"matchLabels": {CLUSTER_LABEL: cluster.name}}}
    operator = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "kuberay-operator"}},
    }
    ports = [{"protocol": "TCP", "port": port} for port in (8265, 10001)]
    rules: list[dict[str, Any]] = [
        {"from": [own]},
        {"from": [{"podSelector": {}}], "ports": ports},
        {"from": [operator]},
    ]
    whys = {
        "spec.ingress.0": "Ray's processes talk on ports that they choose themselves, so all of them are open to it",
        "spec.ingress.1": "jobs are submitted from pods of the namespace: dashboard and Jobs API 8265, client 10001",
        "spec.ingress.2": "the operator asks the head for the state of jobs and the pods for their health",
        "spec.podSelector": "the label that the operator puts on every pod of the cluster",
    }
    if cluster.monitoring.enabled:
        rules.append({"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 8080}]})
        whys["spec.ingress.3"] = "Prometheus reads Ray's metrics on 8080"
    spec = {
        "podSelector": {"matchLabels": {CLUSTER_LABEL: cluster.name}},
        "policyTypes": ["Ingress"],
        "ingress": rules,
    }
    whys[""] = "EFA does not pass through it: that traffic is ruled by the nodes' security groups"
    body = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": metadata(plan, cluster.name)}
    return Object(SYSTEM, body | {"spec": spec}, whys)


def totals(plan: ClusterPlan) -> dict[str, Decimal]:
    """Resource -> the most that head, its autoscaler and all groups can ask for together; memory in bytes."""
    found = {"cpu": plan.head.cpu, "memory": plan.head.memory}
    if plan.autoscales:
        found = {name: amount + quantity.parse(AUTOSCALER["requests"][name]) for name, amount in found.items()}
    for group in plan.groups:
        found["cpu"] += group.cpu * group.max_pods
        found["memory"] += group.memory * group.max_pods
        for name, count in group.devices.resources:
            found[name] = found.get(name, Decimal(0)) + count * group.max_pods
    return found


def pods(plan: ClusterPlan) -> int:
    """The most pods that the cluster can have, its head included."""
    return 1 + sum(group.max_pods for group in plan.groups)


def written(resource: str, amount: Decimal) -> str:
    """An amount as Kubernetes writes it."""
    if resource == "memory":
        return quantity.gibibytes(amount)
    return fit.cpu_text(amount) if resource == "cpu" else str(int(amount))


def quota(plan: ClusterPlan) -> Iterator[Object]:
    """The most that the namespace may use, and a small request for whoever states none."""
    most = totals(plan)
    most["cpu"] += SUBMITTER_CPU * SUBMITTERS
    most["memory"] += SUBMITTER_MEMORY * SUBMITTERS
    hard = {f"requests.{name}": written(name, amount) for name, amount in most.items()}
    hard["pods"] = str(pods(plan) + SUBMITTERS)
    room = f"head and all groups at their most, and {SUBMITTERS} submitter pods"
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata(plan, plan.cluster.name)}
    yield Object(SYSTEM, body | {"spec": {"hard": hard}}, {"spec.hard": room})
    default = {"type": "Container", "defaultRequest": {"cpu": "100m", "memory": "256Mi"}}
    body = {"apiVersion": "v1", "kind": "LimitRange", "metadata": metadata(plan, plan.cluster.name)}
    why = "a quota refuses pods without requests, and the operator's init container has none of its own"
    yield Object(SYSTEM, body | {"spec": {"limits": [default]}}, {"spec.limits": why})


def disruption_budget(plan: ClusterPlan) -> Object:
    """No voluntary eviction of a training pod."""
    spec = {"minAvailable": pods(plan), "selector": {"matchLabels": {CLUSTER_LABEL: plan.cluster.name}}}
    why = (
        "as many as the cluster can ever have, so that drains and upgrades wait; a whole number, because nothing else "
        "is allowed over pods whose controller cannot be scaled"
    )
    body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(plan, plan.cluster.name)}
    return Object(SYSTEM, body | {"spec": spec}, {"spec.minAvailable": why})


def pod_monitor(plan: ClusterPlan) -> Object:
    """Metrics of head and workers, by the Prometheus operator."""
    relabel = [{"sourceLabels": ["__meta_kubernetes_pod_label_ray_io_cluster"], "targetLabel": "ray_io_cluster"}]
    endpoints = [{"port": port, "relabelings": relabel} for port in ("metrics", "as-metrics", "dash-metrics")]
    head = metadata(plan, plan.cluster.name)
    head["labels"] = labels(plan) | dict(plan.cluster.monitoring.labels)
    spec = {
        "namespaceSelector": {"matchNames": [plan.cluster.namespace]},
        "selector": {"matchLabels": {CLUSTER_LABEL: plan.cluster.name}},
        "podMetricsEndpoints": endpoints,
    }
    whys = {
        "spec.podMetricsEndpoints": "the ports that KubeRay names: Ray's metrics, the autoscaler's, the dashboard's",
        "metadata.labels": "a Prometheus finds the monitor by the labels of `monitoring.labels`",
    }
    body = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": head, "spec": spec}
    return Object(SYSTEM, body, whys)
