"""From a cluster file to what each pod asks for and where it runs."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks import catalog
from raytrain_eks.plan import devices, fit
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import SpecError

TOP = {"kind": "Cluster", "name": "c", "region": "us-west-2", "zone": "us-west-2a", "ray": {"image": "r/i:1"}}

MANAGED = {
    "provisioner": {"kind": "managed", "role": "arn:aws:iam::123456789012:role/nodes"},
    "network": {"subnets": {"ids": ["subnet-01234567"]}, "security_groups": {"ids": ["sg-01234567"]}},
}


def plan(workers, **changes):
    rows = workers if isinstance(workers, list) else [workers]
    filled = [{"name": f"g{index}", "nodes": 2} | row for index, row in enumerate(rows)]
    return resolve(Cluster.parse(TOP | changes | {"workers": filled}))


def problems(workers, **changes):
    with pytest.raises(SpecError) as found:
        plan(workers, **changes)
    return {problem.path: f"{problem.rule} | {problem.fix}" for problem in found.value.problems}


@pytest.mark.parametrize(
    ("group", "resources"),
    [
        (
            {"instance": "p4d.24xlarge"},
            {"cpu": "95", "memory": "1055Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"},
        ),
        (
            {"instance": "p4d.24xlarge", "accelerators": 4},
            {"cpu": "47", "memory": "527Gi", "nvidia.com/gpu": "4", "vpc.amazonaws.com/efa": "2"},
        ),
        ({"instance": "p4d.24xlarge", "nodes": 1}, {"cpu": "95", "memory": "1055Gi", "nvidia.com/gpu": "8"}),
        (
            {"instance": "trn1.32xlarge"},
            {"cpu": "127", "memory": "468Gi", "aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"},
        ),
        (
            {"instance": "trn1.32xlarge", "neuron": "cores", "efa": "none"},
            {"cpu": "127", "memory": "468Gi", "aws.amazon.com/neuroncore": "32"},
        ),
        ({"instance": "g6e.xlarge"}, {"cpu": "3", "memory": "26Gi", "nvidia.com/gpu": "1"}),
        ({"instance": "m6i.2xlarge", "cpu": "500m", "memory": "1Gi"}, {"cpu": "500m", "memory": "1Gi"}),
        (
            {"gpus": "H100:8"},
            {"cpu": "190", "memory": "1890Gi", "nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"},
        ),
    ],
)
def test_a_pod_asks_for_what_fits(group, resources):
    assert plan(group).groups[0].resources == resources


def test_the_head_leaves_room_for_what_the_operator_adds():
    head = plan({"instance": "p4d.24xlarge"}).head
    assert head.resources == {"cpu": "6", "memory": "24Gi"}
    assert head.num_cpus == 0


@given(st.sampled_from([each for each in catalog.instances() if each.allocatable_cpu and each.vcpu > 1]), st.data())
def test_pods_and_daemon_sets_together_never_exceed_a_node(instance, data):
    pods = data.draw(st.sampled_from([1, 2, 4, 8]))
    share = fit.share(instance, pods)
    assert share.cpu * pods + fit.DAEMON_CPU <= instance.allocatable_cpu
    assert share.memory * pods + fit.daemon_memory(instance.allocatable_memory) <= instance.allocatable_memory
    assert quantity.parse(fit.cpu_text(share.cpu)) == share.cpu
    assert quantity.parse(quantity.gibibytes(share.memory)) == share.memory or not share.memory


@pytest.mark.parametrize(
    ("type", "accelerators", "expected"),
    [
        ("p4d.24xlarge", 8, 4),
        ("p4d.24xlarge", 4, 2),
        ("p4d.24xlarge", 1, 0),
        ("p5.48xlarge", 8, 32),
        ("p5.48xlarge", 1, 4),
        ("p5.4xlarge", 1, 1),
        ("g5.2xlarge", 1, 0),
        ("c6in.32xlarge", 0, 2),
    ],
)
def test_interfaces_follow_the_share_of_the_node(type, accelerators, expected):
    assert devices.interfaces(catalog.instance(type), accelerators) == expected


@pytest.mark.parametrize(
    ("group", "cores"),
    [
        ({"instance": "trn1.32xlarge"}, 32),
        ({"instance": "trn1.2xlarge"}, 2),
        ({"instance": "trn2.48xlarge"}, 64),
        ({"instance": "trn2.48xlarge", "logical_cores": 1}, 128),
        ({"instance": "trn1.32xlarge", "accelerators": 1, "efa": "none"}, 2),
    ],
)
def test_neuron_cores_are_counted_as_ray_counts_them(group, cores):
    assert plan(group).groups[0].devices.neuron_cores == cores


@pytest.mark.parametrize(
    ("group", "changes", "where", "words"),
    [
        ({"instance": "p4d.24xlarge", "memory": "1100Gi"}, {}, "workers.g0.memory", "write at most 1055Gi"),
        ({"instance": "p4d.24xlarge", "cpu": 96}, {}, "workers.g0.cpu", "write at most 95"),
        ({"instance": "p4d.23xlarge"}, {}, "workers.g0.instance", "p4d.24xlarge"),
        ({"gpus": "H101:8"}, {}, "workers.g0.gpus", "H10"),
        ({"gpus": "H100:16"}, {}, "workers.g0.gpus", "more nodes"),
        ({"instance": "p4d.24xlarge", "accelerators": 3}, {}, "workers.g0.accelerators", "1, 2, 4, 8"),
        ({"instance": "m6i.2xlarge", "accelerators": 1}, {}, "workers.g0.accelerators", "no accelerators"),
        ({"instance": "trn1.32xlarge", "accelerators": 4}, {}, "workers.g0.accelerators", "scheduler extension"),
        ({"instance": "trn1.32xlarge", "logical_cores": 2}, {}, "workers.g0.logical_cores", "LNC 1"),
        ({"instance": "g5.2xlarge", "efa": "required"}, {}, "workers.g0.efa", "no EFA"),
        ({"instance": "p4d.24xlarge", "accelerators": 1, "efa": "required"}, {}, "workers.g0.efa", "cannot be shared"),
        ({"instance": "p4d.24xlarge"}, {"zone": None}, "workers.g0.zone", "us-west-2a"),
        ({"instance": "trn1.32xlarge"}, {"ray": {}}, "workers.g0.image", "Neuron"),
        ({"instance": "p4d.24xlarge", "memory": "8Gi", "shm": "8Gi"}, {}, "workers.g0.shm", "part of the pod's memory"),
        ({"instance": "p4d.24xlarge", "shm": "1055Gi"}, {}, "workers.g0.shm", "memory, which is 1055Gi"),
        ({"instance": "p4d.24xlarge", "neuron": "cores"}, {}, "workers.g0.neuron", "no NeuronCores"),
        ({"instance": "p4d.24xlarge"}, {"region": "xx-new-1", "zone": "xx-new-1a"}, "region", "efa_image"),
        (
            {"instance": "p4d.24xlarge", "capacity": {"kind": "reserved", "tags": {"a": "b"}}},
            MANAGED,
            "workers.g0.capacity.tags",
            "reservations: [cr-0123456789abcdef0]",
        ),
        (
            {
                "instance": "p4d.24xlarge",
                "capacity": {"kind": "reserved", "reservations": ["cr-01234567", "cr-89abcdef"]},
            },
            MANAGED,
            "workers.g0.capacity.reservations",
            "one reservation, here are 2",
        ),
        (
            {
                "instance": "p4d.24xlarge",
                "capacity": {"kind": "reserved", "reservations": ["cr-01234567"], "fallback": True},
            },
            MANAGED,
            "workers.g0.capacity.fallback",
            "not at all",
        ),
        (
            {"instance": "p4d.24xlarge"},
            {"eks": "ml", "storage": {"shared": {"kind": "fsx-lustre"}}},
            "storage.shared.subnet",
            "aws ec2 describe-subnets --region us-west-2 --filters Name=tag:karpenter.sh/discovery,Values=ml "
            "Name=availability-zone,Values=us-west-2a",
        ),
        ({"instance": "m6i.2xlarge"}, {"head": {"instance": "t3.small"}}, "head.instance", "too small"),
        ({"instance": "m6i.2xlarge"}, {"head": {"instance": "g5.2xlarge"}}, "head.instance", "runs no training"),
        (
            {"instance": "p4d.24xlarge", "accelerators": 4},
            {"network": {"host_network": True}},
            "workers.g0.accelerators",
            "ports would collide",
        ),
    ],
)
def test_what_cannot_run_is_refused_with_what_would(group, changes, where, words):
    found = problems(group, **changes)
    assert words in found[where]


def test_an_unknown_head_is_one_problem():
    assert set(problems({"instance": "m6i.2xlarge"}, head={"instance": "m6i.2xlage"})) == {"head.instance"}


def test_all_groups_are_looked_at_in_one_run():
    found = problems([{"instance": "p4d.24xlarge", "cpu": 200}, {"instance": "p9.48xlarge"}], head={"cpu": 80})
    assert set(found) == {"head.cpu", "workers.g0.cpu", "workers.g1.instance"}


def test_nodes_and_pods_meet():
    for pod in plan([{"instance": "p4d.24xlarge", "labels": {"team": "a"}}, {"instance": "trn1.32xlarge"}]).pods:
        own = pod.node_labels | {"node.kubernetes.io/instance-type": pod.instance.type}
        own["topology.kubernetes.io/zone"] = "us-west-2a"
        assert pod.node_selector.items() <= own.items()
        assert {taint.key for taint in pod.taints} == {entry["key"] for entry in pod.tolerations}


def test_labels_of_other_owners_stay_with_the_pods():
    mine = {"team": "a", "example.com/x": "b", "app.kubernetes.io/name": "c", "eks.amazonaws.com/nodegroup": "d"}
    labels = plan({"instance": "p4d.24xlarge", "labels": mine}).groups[0].node_labels
    assert set(labels) == {"team", "example.com/x", "raytrain-eks/cluster", "raytrain-eks/group"}


def test_nodes_that_exist_already_are_not_selected_by_labels_that_nobody_gives():
    head = {"node_selector": {"pool": "cpu"}, "cpu": 2, "memory": "4Gi"}
    found = plan({"instance": "g5.2xlarge"}, provisioner="none", head=head, zone=None)
    assert found.head.node_selector == {"pool": "cpu"}
    assert not any("raytrain" in key for pod in found.pods for key in pod.node_selector)


@pytest.mark.parametrize(("cpu", "expected"), [("500m", 1), ("1", 1), ("1500m", 1), ("2", 2), ("95.9", 95)])
def test_a_fraction_of_a_cpu_is_rounded_down_but_never_to_nothing(cpu, expected):
    assert fit.num_cpus(quantity.parse(cpu)) == expected


def test_a_node_without_a_source_needs_numbers():
    assert "no source says" in problems({"instance": "p6e-gb200.36xlarge"})["workers.g0.cpu"]
    group = {"instance": "p6e-gb200.36xlarge", "cpu": 140, "memory": "900Gi"}
    assert plan(group).groups[0].resources["nvidia.com/gpu"] == "4"


def test_every_decision_has_its_reason():
    for pod in plan([{"instance": "p4d.24xlarge"}, {"instance": "trn1.32xlarge"}, {"gpus": "L40S:1"}]).pods:
        wanted = {"cpu", "memory", "shm", "num_cpus"}
        wanted |= {"accelerators"} if pod.devices.kind != "cpu" else set()
        wanted |= {"efa"} if pod.devices.efa else set()
        assert wanted <= set(pod.why)
    assert "L40S" in plan({"gpus": "L40S:1"}).groups[0].why["instance"]


def test_shm_is_a_part_of_the_memory():
    pod = plan({"instance": "p4d.24xlarge"}).groups[0]
    assert pod.memory * Decimal("0.3") < pod.shm < pod.memory / 2


@pytest.mark.parametrize(
    ("type", "image"),
    [
        ("m6i.2xlarge", "rayproject/ray:2.60.0-py311"),
        ("m7g.2xlarge", "rayproject/ray:2.60.0-py311-aarch64"),
        ("g6e.xlarge", "rayproject/ray:2.60.0-py311-gpu"),
        ("g5g.2xlarge", "rayproject/ray:2.60.0-py311-gpu-aarch64"),
    ],
)
def test_rays_own_image_is_of_the_nodes_architecture(type, image):
    assert plan({"instance": type}, ray={}).groups[0].image == image
