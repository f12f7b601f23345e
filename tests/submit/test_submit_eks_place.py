"""Where a job runs: groups, nodes and workers out of a cluster file or a RayCluster, and where its runs may lie."""

import copy
from typing import Any

import pytest

from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.submit.eks_place import existing, own

CLUSTER: dict[str, Any] = {
    "kind": "Cluster",
    "name": "llm",
    "region": "us-west-2",
    "zone": "us-west-2a",
    "ray": {"image": "registry/raytrain:gpu"},
    "workers": [
        {"name": "a100", "instance": "p4d.24xlarge", "nodes": {"min": 0, "max": 16}},
        {"name": "half", "instance": "p4d.24xlarge", "nodes": {"min": 0, "max": 4}, "accelerators": 4, "efa": "none"},
        {
            "name": "trn",
            "instance": "trn1.32xlarge",
            "nodes": {"min": 0, "max": 4},
            "image": "registry/raytrain:neuron",
        },
    ],
    "storage": {"shared": {"kind": "claim", "claim": "shared", "mount": "/shared"}},
}
CPUS = CLUSTER | {
    "workers": [{"name": "cpu", "nodes": 4, "cpu": 8, "memory": "8Gi"}],
    "head": {"instance": None, "cpu": 1, "memory": "2Gi"},
    "provisioner": "none",
}


def job(**workers: Any) -> Job:
    fields = {
        "name": "j",
        "cluster": "c.yaml",
        "workers": workers,
        "model": {"name": "m"},
        "data": {"train": "x", "sequence_length": 64},
        "batch": {"sequences": 8},
        "optimizer": {"learning_rate": 1e-3},
        "stop": {"steps": 10},
    }
    return Job.parse(fields)


def plan(data: dict[str, Any] = CLUSTER, **changes: Any):
    return resolve(Cluster.parse(copy.deepcopy(data) | changes))


@pytest.mark.parametrize(
    ("data", "workers", "nodes", "planned"),
    [
        (CLUSTER, {"group": "a100", "nodes": 4}, {"a100": 4}, "32xGPU"),
        (CLUSTER, {"group": "a100"}, {"a100": 1}, "8xGPU"),
        (CLUSTER, {"group": "a100", "count": 12}, {"a100": 2}, "12xGPU"),
        (CLUSTER, {"group": "half", "nodes": 2}, {"half": 2}, "16xGPU"),
        (CLUSTER, {"group": "trn", "nodes": 2}, {"trn": 2}, "64xneuron_cores"),
        (CPUS, {}, {"cpu": 1}, "1xCPU"),
        (CPUS, {"nodes": 4}, {"cpu": 4}, "4xCPU"),
        (CPUS, {"count": 9}, {"cpu": 2}, "9xCPU"),
    ],
)
def test_the_cluster_file_counts_the_workers(data, workers, nodes, planned):
    found = own(job(**workers), plan(data))
    assert (dict(found.nodes), str(found.workers)) == (nodes, planned)
    assert found.default_storage == "/shared/runs"


@pytest.mark.parametrize(
    ("workers", "path", "words"),
    [
        ({"nodes": 1}, "workers.group", "has 3 worker groups: a100, half, trn"),
        ({"group": "a10"}, "workers.group", "did you mean `a100`?"),
        ({"group": "a100", "nodes": 17}, "workers.nodes", "at most 16 nodes of 8 GPUs"),
        ({"group": "a100", "count": 129}, "workers.count", "at most 16 nodes"),
        ({"group": "a100", "nodes": 1, "count": 9}, "workers.count", "1 node of the group a100 have 8 GPUs"),
    ],
)
def test_what_the_file_cannot_give_is_refused(workers, path, words):
    with pytest.raises(SpecError, match=words) as caught:
        own(job(**workers), plan())
    assert caught.value.problems[0].path == path


def ray_cluster(**group: Any) -> dict[str, Any]:
    container = {"name": "ray", "image": "registry/ray:2.60.0-py311"}
    mounts = [{"name": "s", "mountPath": "/shared"}, {"name": "m", "mountPath": "/models", "readOnly": True}]
    volumes = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in ("s", "m")]
    pod = {"containers": [container | {"volumeMounts": mounts}], "volumes": volumes}
    worker = {"containers": [container | {"resources": {"limits": group.pop("limits", {"cpu": "4"})}}]}
    groups = [{"groupName": "w", "maxReplicas": 3, "replicas": 0, "template": {"spec": worker}} | group]
    spec = {"rayVersion": "2.60.0", "headGroupSpec": {"template": {"spec": pod}}, "workerGroupSpecs": groups}
    return {"metadata": {"name": "there", "namespace": "training"}, "spec": spec}


@pytest.mark.parametrize(
    ("group", "workers", "planned"),
    [
        ({}, {}, "1xCPU"),
        ({}, {"count": 5}, "5xCPU"),
        ({"limits": {"nvidia.com/gpu": "8", "cpu": "90"}}, {"nodes": 3}, "24xGPU"),
        ({"rayStartParams": {"num-gpus": "2"}, "limits": {}}, {}, "2xGPU"),
        ({"limits": {"aws.amazon.com/neuron": "16"}, "resources": {"neuron_cores": "32"}}, {}, "32xneuron_cores"),
        ({"limits": {"aws.amazon.com/neuroncore": "2"}}, {"nodes": 2}, "4xneuron_cores"),
    ],
)
def test_a_raycluster_counts_them_while_it_is_scaled_to_zero(group, workers, planned):
    found = existing(job(**workers), ray_cluster(**group))
    assert str(found.workers) == planned
    assert (found.cluster, found.namespace, found.image) == ("there", "training", "registry/ray:2.60.0-py311")
    assert found.mounts == ("/shared",)


@pytest.mark.parametrize(
    ("storage", "right"),
    [
        ("/shared/runs", True),
        ("/shared", True),
        ("s3://bucket/runs", True),
        ("/shared/../tmp/runs", False),
        ("/sharedx/runs", False),
        ("/home/ray/runs", False),
    ],
)
def test_runs_lie_where_they_outlive_their_pods(storage, right):
    assert (list(own(job(group="a100"), plan()).storage_problems(storage)) == []) is right
