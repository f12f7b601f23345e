"""The Cluster model: what may be written, what it means, and each mistake with its place."""

import copy

import pytest

from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.fields import all_models, field_docs
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.schema import json_schema

SKETCH = """\
kind: Cluster
name: llm-train
namespace: training
region: us-west-2
zone: us-west-2a
kubernetes: "1.33"
ray: {version: 2.60.0, image: 123456789012.dkr.ecr.us-west-2.amazonaws.com/raytrain:gpu}
head: {instance: m6i.2xlarge}
workers:
  - name: a100
    instance: p4d.24xlarge
    nodes: {min: 0, max: 16}
    capacity: on-demand            # spot, reserved, capacity-block: the same key
    efa: required                  # auto by default
  - name: trn
    instance: trn1.32xlarge
    nodes: {min: 0, max: 4}
    image: 123456789012.dkr.ecr.us-west-2.amazonaws.com/raytrain:neuron
storage:
  shared: {kind: fsx-lustre, size: 4800Gi, throughput: 250, bucket: s3://my-data/training, mount: /shared}
  models: {kind: efs, filesystem: fs-0123456789abcdef0, size: 1Ti, mount: /models}
queue: {kind: volcano, name: ml-training}
"""
SMALL = {"kind": "Cluster", "name": "c", "region": "us-west-2"}
SMALL |= {"workers": [{"name": "g", "instance": "p5.48xlarge", "nodes": 2}]}


def changed(path: str, value):
    data = copy.deepcopy(SMALL)
    place, *steps = data, *path.split(".")
    for step in steps[:-1]:
        place = place[int(step)] if isinstance(place, list) else place.setdefault(step, {})
    place[steps[-1]] = value
    return data


def problems(data) -> dict[str, str]:
    with pytest.raises(SpecError) as found:
        Cluster.parse(data)
    return {problem.path: f"{problem.rule} | {problem.fix}" for problem in found.value.problems}


def test_the_sketch_reads_and_comes_back_the_same():
    cluster = Cluster.read(SKETCH, "c.yaml")
    assert [group.name for group in cluster.workers] == ["a100", "trn"]
    assert cluster.autoscales
    assert Cluster.parse(cluster.written()) == cluster


def test_only_name_region_and_workers_are_required():
    assert set(problems({"kind": "Cluster"})) == {"name", "region", "workers"}
    assert not Cluster.parse(SMALL).autoscales


@pytest.mark.parametrize(
    ("path", "short", "long"),
    [
        ("workers.0.nodes", 4, {"min": 4, "max": 4}),
        ("workers.0.capacity", "spot", {"kind": "spot"}),
        ("autoscaling", "on", {"enabled": True}),
        ("autoscaling", False, {"enabled": False}),
        ("provisioner", "karpenter", {"kind": "karpenter"}),
        ("auth", "disabled", {"mode": "disabled"}),
        ("monitoring", True, {"enabled": True}),
        ("service_account", "train", {"name": "train"}),
    ],
)
def test_a_word_stands_for_a_mapping(path, short, long):
    assert Cluster.parse(changed(path, short)) == Cluster.parse(changed(path, long))


@pytest.mark.parametrize(
    ("path", "value", "where", "words"),
    [
        ("name", "Has-Capitals", "name", "lower-case"),
        ("name", "x" * 54, "name", "53"),
        ("region", "us-west", "region", "region such as"),
        ("zone", "us-east-1a", "zone", "us-west-2"),
        ("kubernetes", 1.33, "kubernetes", "quotes"),
        ("workers", [], "workers", ""),
        ("workers.0.instance", "p5", "workers.g.instance", "EC2 type"),
        ("workers.0.gpus", "H100:8", "workers.g.gpus", "not both"),
        ("workers.0.instance", None, "workers.g", "needs `instance` or `gpus`"),
        ("workers.0.nodes", "lots", "workers.g.nodes", "{min: 0, max: 16}"),
        ("workers.0.capacity", ["spot"], "workers.g.capacity", "a word, or a mapping"),
        ("autoscaling", "maybe", "autoscaling", "on, off"),
        ("monitoring", "maybe", "monitoring", "true, false"),
        ("workers.0.nodes", {"min": 3, "max": 2}, "workers.g.nodes.min", "more than `max`"),
        ("workers.0.nodes", {"max": 2, "start": 3}, "workers.g.nodes.start", "0 to 2"),
        ("workers.0.nodes", 0, "workers.g.nodes", "1"),
        ("workers.0.capacity", "reserved", "workers.g.capacity", "reservations"),
        ("workers.0.capacity", {"kind": "spot", "tags": {"a": "b"}}, "workers.g.capacity.tags", "reserved"),
        ("workers.0.capacity", {"kind": "spot", "fallback": True}, "workers.g.capacity.fallback", "reserved"),
        (
            "workers.0.capacity",
            {"kind": "capacity-block", "reservations": ["cr-0123456789abcdef0"]},
            "workers.g.capacity.ends",
            "outlive",
        ),
        (
            "workers.0.capacity",
            {"kind": "capacity-block", "tags": {"a": "b"}, "ends": "2026-12-24T11:30:00"},
            "workers.g.capacity.ends",
            "UTC",
        ),
        ("workers.0.memory", "64", "workers.g.memory", "64Gi"),
        ("workers.0.pod", {"spec": {"containers": [None]}}, "workers.g.pod.spec.containers.0", "is empty"),
        ("workers.0.pod", {"spec": {"tolerations": [None]}}, "workers.g.pod.spec.tolerations.0", "is empty"),
        (
            "workers.0.pod",
            {"spec": {"containers": [{"name": "ray-worker", "image": 1.5}]}},
            "workers.g.pod.spec.containers.ray-worker.image",
            'put quotes around it: "1.5"',
        ),
        ("secrets", {"A": {"name": "b", "key": ""}}, "secrets.A.key", "a Secret's key has letters"),
        ("secrets", {"A": {"name": "b", "key": "a b"}}, "secrets.A.key", "a Secret's key has letters"),
        ("kubernetes", 1.33, "kubernetes", "put quotes around it"),
        ("ray", {"version": 2.6}, "ray.version", "must be a version such as 2.60.0"),
        ("workers.0.capcity", "spot", "workers.g.capcity", "`capacity`"),
        ("workers.0.environment", {"1A": "x"}, "workers.g.environment", ""),
        ("workers.0.name", "headgroup", "workers.headgroup.name", "another"),
        ("workers.0.taints", [{"key": "a b"}], "workers.g.taints.0.key", "label's key"),
        ("workers.0.tolerations", [{"key": "a", "value": "b"}], "workers.g.tolerations.0.value", "Equal"),
        ("workers.0.pod", {"spec": {"contaners": []}}, "workers.g.pod.spec.contaners", "containers"),
        ("workers.0.labels", {"ray.io/zone": "a"}, "workers.g.labels", "belong to Ray"),
        ("head.labels", {"raytrain-eks/group": "a"}, "head.labels", "choose the nodes"),
        ("head.instance", None, "head.instance", "provisioner"),
        ("head.pod", {"spec": {"hostIPC": "yes"}}, "head.pod.spec.hostIPC", "true or false"),
        ("provisioner", "managed", "provisioner.role", "role"),
        ("provisioner", "terraform", "provisioner", "karpenter"),
        ("service_account", {"irsa": "nonsense"}, "service_account.irsa", "arn:aws"),
        ("queue", {"kind": "slurm", "name": "q"}, "queue.kind", "kueue"),
        ("queue", {"kind": "volcano", "name": "default"}, "queue.name", "create: false"),
        ("queue", {"kind": "kueue", "name": "q", "borrow_nodes": 1}, "queue.borrow_nodes", "cohort"),
        ("storage", {"shared": {"kind": "fsx-lustre", "size": "1000Gi"}}, "storage.shared.size", "1200Gi"),
        ("storage", {"shared": {"kind": "fsx-lustre", "size": 0}}, "storage.shared.size", "write 1200Gi"),
        ("storage", {"shared": {"kind": "fsx-lustre", "size": "0Gi"}}, "storage.shared.size", "write 1200Gi"),
        ("storage", {"shared": {"kind": "fsx-lustre", "size": 5000}}, "storage.shared.size", "write 7200Gi"),
        (
            "storage",
            {"models": {"kind": "efs", "filesystem": "fs-0123456789abcdef0", "size": 0}},
            "storage.models.size",
            "such as 64Gi",
        ),
        ("storage", {"scratch": {"size": "0"}}, "storage.scratch.size", "such as 64Gi"),
        ("provisioner", {"disk": 0}, "provisioner.disk", "write 200Gi"),
        ("provisioner", {"disk": 5}, "provisioner.disk", "write 20Gi"),
        ("storage", {"shared": {"kind": "fsx-lustre", "size": "5000Gi"}}, "storage.shared.size", "7200Gi"),
        (
            "storage",
            {"shared": {"kind": "fsx-lustre", "deployment": "SCRATCH_2", "throughput": 200}},
            "storage.shared.throughput",
            "leave it out",
        ),
        ("storage", {"shared": {"kind": "fsx-lustre", "throughput": 200}}, "storage.shared.throughput", "125, 250"),
        (
            "storage",
            {"shared": {"kind": "fsx-lustre", "filesystem": "fs-0123456789abcdef0"}},
            "storage.shared.mount_name",
            "together",
        ),
        (
            "storage",
            {"scratch": {"mount": "/s"}, "claims": [{"claim": "a", "mount": "/s/x"}]},
            "storage.scratch",
            "cover each other",
        ),
        ("storage", {"claims": [{"claim": "a", "mount": "/"}]}, "storage.claims.0.mount", "absolute path"),
        ("network", {"subnets": {}}, "network.subnets", "needs `ids` or `tags`"),
        (
            "network",
            {"subnets": {"ids": ["vpc-0123456789abcdef0"]}},
            "network.subnets.ids.0",
            "subnet-0123456789abcdef0",
        ),
        ("network", {"security_groups": {"ids": ["x"]}}, "network.security_groups.ids.0", "sg-0123456789abcdef0"),
        ("gitops", {"repository": "https://a/r", "path": "/abs"}, "gitops.path", "relative"),
        ("gitops", {"repository": "r"}, "gitops.repository", "URL"),
        ("external", ["x"], "external.0", "Kind/name"),
        ("region", "us-west", "region", "such as us-west-2"),
        ("workers.0.ami", "ami-123", "workers.g.ami", "ami-0123456789abcdef0"),
        ("workers.0.ami", "ubuntu@latest", "workers.g.ami", "al2023@v20260801"),
        ("provisioner", {"ami": "@"}, "provisioner.ami", "al2023@v20260801"),
        ("workers.0.disk", "10Gi", "workers.g.disk", "between 20Gi"),
        ("provisioner", {"disk": "65Ti"}, "provisioner.disk", "64Ti"),
        ("provisioner", {"tags": {"kubernetes.io/cluster/x": "owned"}}, "provisioner.tags", "Karpenter sets this tag"),
        ("workers.0.placement_group", "", "workers.g.placement_group", "placement group's name"),
        (
            "head.fault_tolerance",
            {"kind": "redis", "address": ""},
            "head.fault_tolerance.address",
            "redis.data.svc:6379",
        ),
        ("storage", {"claims": [{"claim": "a", "mount": "/dev/shm"}]}, "storage.claims.0.mount", "would hide"),
        ("storage", {"claims": [{"claim": "a", "mount": "/home/ray"}]}, "storage.claims.0.mount", "would hide"),
        ("storage", {"claims": [{"claim": "a", "mount": "/usr"}]}, "storage.claims.0.mount", "would hide"),
        ("storage", {"claims": [{"claim": "a", "mount": "/a/../b"}]}, "storage.claims.0.mount", "plainly"),
        ("storage", {"claims": [{"claim": "a", "mount": "/a\nb"}]}, "storage.claims.0.mount", "plainly"),
        ("storage", {"claims": [{"claim": "a", "mount": "/tmp"}]}, "storage.claims", "/tmp/ray"),
        ("storage", {"shared": {"kind": "fsx-lustre", "backup_days": 91}}, "storage.shared.backup_days", "90"),
        ("storage", {"shared": {"kind": "fsx-lustre", "kms_key": "a b"}}, "storage.shared.kms_key", "ARN"),
        ("storage", {"shared": {"kind": "fsx-lustre", "mount_name": "a b"}}, "storage.shared.mount_name", "at most 8"),
        ("storage", {"shared": {"kind": "fsx-lustre", "dns": "a b"}}, "storage.shared.dns", "DNS name"),
        ("auth", {"mode": "disabled", "secret": "x"}, "auth.secret", "token"),
        ("operator", {"version": "latest"}, "operator.version", "version"),
    ],
)
def test_a_mistake_is_named_with_its_rule_and_fix(path, value, where, words):
    found = problems(changed(path, value))
    assert [place for place in found if place.startswith(where)], found
    assert any(words in text for place, text in found.items() if place.startswith(where)), found


def test_group_names_differ():
    data = copy.deepcopy(SMALL)
    data["workers"] = data["workers"] * 2
    assert any("another group" in text for text in problems(data).values())


@pytest.mark.parametrize("nodes", [{"min": 0, "max": 2}])
def test_a_fixed_number_of_nodes_is_said(nodes):
    kueue = changed("workers.0.nodes", nodes) | {"queue": {"kind": "kueue", "name": "q"}}
    assert "Kueue excludes autoscaling" in problems(kueue)["workers.g.nodes"]
    off = changed("workers.0.nodes", nodes) | {"autoscaling": "off"}
    assert "start" in problems(off)["workers.g.nodes"]
    assert not Cluster.parse(changed("workers.0.nodes", nodes | {"start": 1})).autoscales
    both = changed("workers.0.nodes", nodes) | {"queue": {"kind": "kueue", "name": "q"}, "autoscaling": "on"}
    assert "must be off" in problems(both)["autoscaling"]


def test_kueue_admits_seventeen_groups():
    group = SMALL["workers"][0]
    data = SMALL | {"queue": {"kind": "kueue", "name": "q"}}
    assert Cluster.parse(data | {"workers": [group | {"name": f"g{n}"} for n in range(17)]})
    assert "workers" in problems(data | {"workers": [group | {"name": f"g{n}"} for n in range(18)]})


def test_nodes_of_unknown_type_need_a_size():
    data = SMALL | {"provisioner": "none", "workers": [{"name": "g", "nodes": 1}], "head": {"instance": None}}
    assert "cpu" in problems(data)["workers.g"]


def test_every_field_has_a_sentence_and_the_schema_holds_it():
    for model in all_models(Cluster):
        assert set(model.model_fields) <= set(field_docs(model)), model
    schema = json_schema(Cluster)
    assert schema["properties"]["zone"]["description"].startswith("The availability zone")
    nodes = schema["$defs"]["WorkerGroup"]["properties"]["nodes"]
    assert {"type": "integer"} in [{"type": each.get("type")} for each in nodes["anyOf"]]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("region", "eusc-de-east-1"),
        ("queue", {"kind": "volcano", "name": "default", "create": False}),
        ("workers.0.ami", "ami-0123456789abcdef0"),
        ("workers.0.ami", "bottlerocket@v1.50.0"),
        ("workers.0.disk", "20Gi"),
        ("storage", {"scratch": {"kind": "nvme", "mount": "/tmp"}}),
        ("storage", {"claims": [{"claim": "a", "mount": "/home/ray/data"}]}),
        ("gitops", {"repository": "git@github.com:me/clusters.git"}),
        ("provisioner", {"kind": "none", "tags": {"kubernetes.io/cluster/x": "owned"}}),
    ],
)
def test_what_is_unusual_and_right_is_taken(path, value):
    assert Cluster.parse(changed(path, value))
