"""The RayCluster: valid, accepted by the operator's rules, and every reason belongs to a field."""

import json

import pytest
from cluster_file import one_group, plan
from kube_schema import Definitions

from raytrain_eks.manifests import kuberay
from raytrain_eks.manifests.object import at
from raytrain_eks.manifests.rules import Operator, breaches
from raytrain_eks.spec.problem import SpecError

VARIANTS = {
    "base": {},
    "fixed": {"autoscaling": "off", **one_group()},
    "volcano": {"queue": {"kind": "volcano", "name": "q", "priority": "high", "topology": {"mode": "hard", "tier": 2}}},
    "kueue": {"queue": {"kind": "kueue", "name": "q", "priority": "high"}, **one_group()},
    "redis": {
        "head": {
            "fault_tolerance": {
                "kind": "redis",
                "address": "redis:6379",
                "password": {"name": "redis", "key": "password"},
                "username": {"name": "redis", "key": "user"},
            }
        }
    },
    "rocksdb": {
        "head": {"fault_tolerance": {"kind": "rocksdb", "size": "20Gi", "storage_class": "gp3", "keep": True}},
        "operator": {"feature_gates": {"GCSFaultToleranceEmbeddedStorage": True}},
    },
    "rocksdb-claim": {
        "head": {"fault_tolerance": {"kind": "rocksdb", "claim": "gcs"}},
        "operator": {"feature_gates": {"GCSFaultToleranceEmbeddedStorage": True}},
    },
    "no-auth": {"auth": "disabled", "autoscaling": {"version": "v1"}},
    "secret-auth": {"auth": {"secret": "my-token"}},
    "host-network": {"network": {"host_network": True}},
    "split": one_group(instance="g6e.48xlarge", accelerators=2, efa="none"),
    "cores": one_group(instance="trn2.48xlarge", neuron="cores", image="r/i:n"),
    "labels": one_group(labels={"team": "nlp"}, annotations={"a/b": "c"}, environment={"A": "$(B) $$ é"}),
    "pull": {
        "ray": {"image": "r/i:1", "pull_secrets": ["regcred"]},
        "secrets": {"HF_TOKEN": {"name": "hf", "key": "t"}},
    },
    "scratch": {
        "storage": {"scratch": {"size": "1Ti"}, "claims": [{"claim": "data", "mount": "/d", "read_only": True}]}
    },
    "plain-nodes": {
        "provisioner": "none",
        "head": {"instance": None, "cpu": 1, "memory": "2Gi"},
        "workers": [{"name": "cpu", "nodes": 2, "cpu": "1500m", "memory": "3Gi"}],
        "zone": None,
    },
    "overlay": one_group(
        pod={"spec": {"hostIPC": True, "containers": [{"name": "ray-worker", "env": [{"name": "X", "value": "1"}]}]}}
    ),
}


@pytest.fixture(scope="session")
def definitions(shared):
    return Definitions(shared / "crds")


def cluster(**changes):
    (found,) = kuberay.objects(plan(**changes))
    return found


@pytest.mark.parametrize("name", VARIANTS)
def test_an_api_server_takes_it_and_the_operator_too(name, definitions):
    found = cluster(**VARIANTS[name])
    assert definitions.findings(found.body) == []
    gates = VARIANTS[name].get("operator", {}).get("feature_gates", {})
    assert breaches(found.body, Operator(gates=gates)) == []


@pytest.mark.parametrize("name", VARIANTS)
def test_every_reason_belongs_to_a_field(name):
    found = cluster(**VARIANTS[name])
    assert found.whys
    for path, why in found.whys.items():
        at(found.body, path)
        assert why
        assert not why.endswith(".")


def group(body, name):
    return next(each for each in body["spec"]["workerGroupSpecs"] if each["groupName"] == name)


def container(each):
    return each["template"]["spec"]["containers"][0]


def test_the_head_offers_nothing_and_keeps_off_accelerators():
    head = cluster().body["spec"]["headGroupSpec"]
    assert head["rayStartParams"] == {"num-cpus": "0", "num-gpus": "0"}
    assert "tolerations" not in head["template"]["spec"]
    assert set(container(head)["resources"]["limits"]) == {"cpu", "memory"}


@pytest.mark.parametrize(
    ("changes", "group_name", "params", "devices"),
    [
        ({}, "h100", {"num-gpus": "8"}, {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "32"}),
        ({}, "trn", {"neuron_cores": 32}, {"aws.amazon.com/neuron": "16", "vpc.amazonaws.com/efa": "8"}),
        (
            VARIANTS["cores"],
            "g",
            {"neuron_cores": 64},
            {"aws.amazon.com/neuroncore": "64", "vpc.amazonaws.com/efa": "16"},
        ),
        (VARIANTS["split"], "g", {"num-gpus": "2"}, {"nvidia.com/gpu": "2"}),
    ],
)
def test_devices_are_stated_to_kubernetes_and_to_ray(changes, group_name, params, devices):
    each = group(cluster(**changes).body, group_name)
    resources = container(each)["resources"]
    for side in ("requests", "limits"):
        assert {key: value for key, value in resources[side].items() if "/" in key} == devices
    told = dict(each["rayStartParams"])
    told |= json.loads(told.pop("resources", "'{}'").strip("'"))
    assert params.items() <= told.items()


def test_a_node_that_is_shared_holds_more_pods():
    each = group(cluster(**VARIANTS["split"]).body, "g")
    assert (each["replicas"], each["minReplicas"], each["maxReplicas"]) == (8, 8, 8)


def test_a_fraction_of_a_cpu_becomes_a_whole_number_for_ray():
    each = group(cluster(**VARIANTS["plain-nodes"]).body, "cpu")
    assert each["rayStartParams"]["num-cpus"] == "1"
    assert container(each)["resources"]["limits"]["cpu"] == "1500m"
    small = {"workers": [{"name": "cpu", "nodes": 1, "cpu": "500m", "memory": "2Gi"}]}
    each = group(cluster(**(VARIANTS["plain-nodes"] | small)).body, "cpu")
    assert each["rayStartParams"]["num-cpus"] == "1"


def env(each):
    return {row["name"]: row.get("value") for row in container(each)["env"]}


def test_each_network_library_gets_its_own_syntax():
    pods = env(group(cluster().body, "h100"))
    assert (pods["NCCL_SOCKET_IFNAME"], pods["GLOO_SOCKET_IFNAME"]) == ("eth0", "eth0")
    assert (pods["FI_PROVIDER"], pods["FI_EFA_USE_HUGE_PAGE"]) == ("efa", "0")
    hosts = env(group(cluster(**VARIANTS["host-network"]).body, "h100"))
    assert hosts["NCCL_SOCKET_IFNAME"].startswith("^")
    assert "GLOO_SOCKET_IFNAME" not in hosts
    assert "FI_PROVIDER" not in env(group(cluster(**VARIANTS["split"]).body, "g"))


def test_neuron_compiles_once_for_all_pods():
    found = env(group(cluster().body, "trn"))
    assert found["NEURON_COMPILE_CACHE_URL"].startswith("/shared/")
    assert "NEURON_LOGICAL_NC_CONFIG" not in found
    assert env(group(cluster(**VARIANTS["cores"]).body, "g"))["NEURON_LOGICAL_NC_CONFIG"] == "2"


def test_what_the_file_says_wins_and_stays_literal():
    found = env(group(cluster(**one_group(environment={"FI_PROVIDER": "tcp", "A": "$(FI_PROVIDER)"})).body, "g"))
    assert found["FI_PROVIDER"] == "tcp"
    assert found["A"] == "$$(FI_PROVIDER)"


def test_a_piece_of_a_pod_is_merged_by_keys():
    each = group(cluster(**VARIANTS["overlay"]).body, "g")
    assert each["template"]["spec"]["hostIPC"] is True
    assert env(each)["X"] == "1"
    assert env(each)["FI_PROVIDER"] == "efa"
    assert len(each["template"]["spec"]["containers"]) == 1


def test_a_reason_goes_with_what_the_file_has_changed():
    row = {
        "name": "ray-worker",
        "env": [{"name": "FI_PROVIDER", "$patch": "delete"}],
        "resources": {"limits": {"cpu": 9}},
    }
    found = cluster(**one_group(pod={"spec": {"containers": [row]}}))
    base = "spec.workerGroupSpecs.g.template.spec.containers.ray-worker"
    assert f"{base}.env.FI_PROVIDER" not in found.whys
    assert found.whys[f"{base}.resources.limits.cpu"] == "as `pod` in the file says"
    assert "p5.48xlarge" in found.whys[f"{base}.resources.requests.cpu"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"head": {"fault_tolerance": {"kind": "rocksdb"}}}, "GCSFaultToleranceEmbeddedStorage"),
        ({"ray": {"version": "2.51.0", "image": "r/i:1"}}, "2.52.0"),
        ({"operator": {"version": "1.5.0"}}, "1.5.1"),
    ],
)
def test_what_the_operator_would_refuse_is_refused_here(changes, words):
    with pytest.raises(SpecError, match=words):
        list(kuberay.objects(plan(**changes)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "name", "expected"),
    [
        ({}, "h100", {"CPU": 190, "GPU": 8}),
        ({}, "trn", {"CPU": 127, "GPU": 0, "neuron_cores": 32}),
        (VARIANTS["cores"], "g", {"CPU": 190, "GPU": 0, "neuron_cores": 64}),
        (VARIANTS["split"], "g", {"CPU": 47, "GPU": 2}),
        (VARIANTS["plain-nodes"], "cpu", {"CPU": 1, "GPU": 0}),
    ],
)
def test_rays_autoscaler_counts_the_same(changes, name, expected):
    from ray.autoscaler._private.kuberay import autoscaling_config as parser

    body = cluster(**changes).body
    assert expected.items() <= parser._get_ray_resources_from_group_spec(group(body, name), False).items()
    head = parser._get_ray_resources_from_group_spec(body["spec"]["headGroupSpec"], True)
    assert (head["CPU"], head["GPU"]) == (0, 0)
