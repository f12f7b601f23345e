"""The objects around Ray, rule by rule: literal cases of what is decided; an API server takes every variant."""

import base64

import pytest
from kube_schema import WITHOUT_SCHEMA, definitions_in

from raytrain_eks.cli import bundles
from raytrain_eks.manifests.bundle import build, explain_object, unfounded
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import SpecError

GROUP = {"name": "a100", "instance": "p4d.24xlarge", "nodes": {"min": 0, "max": 16}}
BASE = {"name": "llm", "region": "us-west-2", "zone": "us-west-2a", "workers": [GROUP]}
FSX = {"kind": "fsx-lustre", "subnet": "subnet-0123456789abcdef0", "security_groups": ["sg-0123456789abcdef0"]}


def planned(group=None, **fields):
    return resolve(Cluster.parse({**BASE, "workers": [{**GROUP, **(group or {})}], **fields}))


def bodies(plan, kind):
    return [each.body for each in build(plan).objects if each.kind == kind]


def one(plan, kind, name=None):
    [body] = [body for body in bodies(plan, kind) if name in (None, body["metadata"]["name"])]
    return body


def requirements(pool):
    return {entry["key"]: entry["values"] for entry in pool["spec"]["template"]["spec"]["requirements"]}


BLOCK = {"kind": "capacity-block", "reservations": ["cr-0123456789abcdef0"], "ends": "2026-12-24T11:30:00Z"}


@pytest.mark.parametrize(
    ("capacity", "types", "reservation", "grace"),
    [
        ("on-demand", ["on-demand"], None, None),
        ("spot", ["spot"], None, "2m"),
        ({"kind": "reserved", "tags": {"a": "b"}}, ["reserved"], ["default"], None),
        ({"kind": "reserved", "tags": {"a": "b"}, "fallback": True}, ["reserved", "on-demand"], None, None),
        (BLOCK, ["reserved"], ["capacity-block"], "10m"),
    ],
)
def test_capacity_is_a_type_a_requirement_and_a_grace_period(capacity, types, reservation, grace):
    pool = one(planned({"capacity": capacity, "nodes": 2}), "NodePool", "llm--a100")
    found = requirements(pool)
    assert found["karpenter.sh/capacity-type"] == types
    assert found.get("karpenter.k8s.aws/capacity-reservation-type") == reservation
    assert pool["spec"]["template"]["spec"].get("terminationGracePeriod") == grace


def test_reservations_are_selected_by_id_or_tag():
    held = one(planned({"capacity": BLOCK, "nodes": 2}), "EC2NodeClass", "llm--a100")["spec"]
    assert held["capacityReservationSelectorTerms"] == [{"id": "cr-0123456789abcdef0"}]
    tagged = planned({"capacity": {"kind": "reserved", "tags": {"team": "ml"}}})
    terms = one(tagged, "EC2NodeClass", "llm--a100")["spec"]["capacityReservationSelectorTerms"]
    assert terms == [{"tags": {"team": "ml"}}]


def test_a_training_node_is_never_ended_and_an_idle_one_always_is():
    spec = one(planned(), "NodePool", "llm--a100")["spec"]
    assert spec["disruption"]["budgets"] == [{"nodes": "0", "reasons": ["Drifted", "Underutilized"]}]
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"
    assert spec["template"]["spec"]["expireAfter"] == "Never"
    assert spec["limits"] == {"cpu": "1536", "nvidia.com/gpu": "128"}


def test_pods_and_pools_answer_each_other():
    plan = planned({"taints": [{"key": "team/only", "value": "ml"}], "labels": {"rack": "seven"}})
    pool = one(plan, "NodePool", "llm--a100")["spec"]["template"]
    pod = one(plan, "RayCluster")["spec"]["workerGroupSpecs"][0]["template"]["spec"]
    assert pool["spec"]["taints"] == [{"key": "team/only", "value": "ml", "effect": "NoSchedule"}]
    assert {"key": "team/only", "operator": "Equal", "value": "ml", "effect": "NoSchedule"} in pod["tolerations"]
    offered = pool["metadata"]["labels"] | {
        key: values[0] for key, values in requirements({"spec": {"template": pool}}).items()
    }
    assert pod["nodeSelector"].items() <= offered.items()


@pytest.mark.parametrize(
    ("ami", "terms", "family", "devices"),
    [
        (None, [{"alias": "al2023@latest"}], None, ["/dev/xvda"]),
        ("al2023@v20260801", [{"alias": "al2023@v20260801"}], None, ["/dev/xvda"]),
        ("ami-0123456789abcdef0", [{"id": "ami-0123456789abcdef0"}], "AL2023", ["/dev/xvda"]),
        ("bottlerocket@latest", [{"alias": "bottlerocket@latest"}], None, ["/dev/xvda", "/dev/xvdb"]),
    ],
)
def test_images_and_their_disks(ami, terms, family, devices):
    spec = one(planned(provisioner={"ami": ami}), "EC2NodeClass", "llm--a100")["spec"]
    assert spec["amiSelectorTerms"] == terms
    assert spec.get("amiFamily") == family
    assert [entry["deviceName"] for entry in spec["blockDeviceMappings"]] == devices


def test_local_disks_only_where_the_type_has_them_and_scratch_asks():
    assert "instanceStorePolicy" not in one(planned(), "EC2NodeClass", "llm--a100")["spec"]
    plan = planned(storage={"scratch": {"kind": "nvme"}})
    assert one(plan, "EC2NodeClass", "llm--a100")["spec"]["instanceStorePolicy"] == "RAID0"
    assert "instanceStorePolicy" not in one(plan, "EC2NodeClass", "llm--head")["spec"]


def test_lnc_is_set_on_nodes_only_where_it_differs():
    group = {"instance": "trn2.48xlarge", "image": "neuron:1", "nodes": 2}
    assert "userData" not in one(planned(group), "EC2NodeClass", "llm--a100")["spec"]
    data = one(planned(group | {"logical_cores": 1}), "EC2NodeClass", "llm--a100")["spec"]["userData"]
    assert "NEURON_LOGICAL_NC_CONFIG=1 > /opt/aws/neuron/logical_nc_config" in data


@pytest.mark.parametrize(
    ("volume", "parameters"),
    [
        ({}, {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": "125"}),
        ({"throughput": 500}, {"deploymentType": "PERSISTENT_2", "perUnitStorageThroughput": "500"}),
        ({"deployment": "SCRATCH_2"}, {"deploymentType": "SCRATCH_2", "perUnitStorageThroughput": None}),
        ({"bucket": "s3://data/x"}, {"s3ImportPath": None}),
        ({"deployment": "SCRATCH_2", "bucket": "s3://data/x"}, {"s3ImportPath": "s3://data/x"}),
    ],
)
def test_fsx_parameters_are_legal_texts(volume, parameters):
    storage_class = one(planned(storage={"shared": FSX | volume}), "StorageClass")
    found = storage_class["parameters"]
    assert {key: found.get(key) for key in parameters} == parameters
    assert all(isinstance(value, str) for value in found.values())
    assert storage_class["reclaimPolicy"] == "Retain"
    assert storage_class["volumeBindingMode"] == "Immediate"


def test_a_persistent_2_file_system_says_how_it_is_linked_to_s3():
    notes = build(planned(storage={"shared": FSX | {"bucket": "s3://data/x"}})).notes
    assert any("create-data-repository-association" in note and "s3://data/x" in note for note in notes)


def test_an_existing_file_system_is_bound_to_this_claim_alone():
    volume = {"kind": "fsx-lustre", "filesystem": "fs-0123456789abcdef0", "mount_name": "abcd", "size": "2400Gi"}
    plan = planned(storage={"shared": volume})
    assert bodies(plan, "StorageClass") == []
    spec = one(plan, "PersistentVolume")["spec"]
    assert spec["csi"]["volumeAttributes"]["dnsname"] == "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com"
    assert spec["claimRef"] == {"namespace": "training", "name": "llm--shared"}
    claim = one(plan, "PersistentVolumeClaim")
    assert claim["metadata"]["namespace"] == "training"
    assert claim["spec"]["volumeName"] == one(plan, "PersistentVolume")["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == ""


def test_ack_makes_the_file_system_first_and_the_volume_once_it_has_an_id(shared):
    plan = planned(storage={"shared": FSX | {"provision": "ack"}})
    assert one(plan, "FileSystem")["spec"]["lustreConfiguration"]["perUnitStorageThroughput"] == 125
    assert bodies(plan, "PersistentVolume") == []
    assert bundles.refuse_what_cannot_run(plan, build(plan)) == []
    made = FSX | {"provision": "ack", "filesystem": "fs-0123456789abcdef0", "mount_name": "abcd"}
    assert len(bodies(planned(storage={"shared": made}), "PersistentVolume")) == 1


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"storage": {"shared": {"kind": "fsx-lustre", "security_groups": ["sg-0123456789abcdef0"]}}}, "subnet"),
        ({"storage": {"shared": {"kind": "fsx-lustre", "subnet": "subnet-0123456789abcdef0"}}}, "security_groups"),
        ({"provisioner": {"kind": "managed", "role": "arn:aws:iam::123456789012:role/x"}}, "network.subnets"),
    ],
)
def test_ids_that_nobody_can_search_for_are_asked_for(fields, path):
    with pytest.raises(SpecError) as error:
        planned(**fields)
    assert any(path in problem.path for problem in error.value.problems)


def test_kueue_covers_every_resource_in_every_flavor():
    plan = planned({"nodes": 4}, queue={"kind": "kueue", "name": "training"})
    [group] = one(plan, "ClusterQueue")["spec"]["resourceGroups"]
    assert group["coveredResources"] == ["cpu", "memory", "nvidia.com/gpu", "vpc.amazonaws.com/efa"]
    quotas = {
        flavor["name"]: {entry["name"]: entry["nominalQuota"] for entry in flavor["resources"]}
        for flavor in group["flavors"]
    }
    assert quotas["training--llm--a100"] == {
        "cpu": "380",
        "memory": "4220Gi",
        "nvidia.com/gpu": "32",
        "vpc.amazonaws.com/efa": "16",
    }
    assert quotas["training--llm--anywhere"]["cpu"] == "1"
    assert quotas["training--llm--head"]["nvidia.com/gpu"] == "0"
    flavors = {body["metadata"]["name"]: body["spec"] for body in bodies(plan, "ResourceFlavor")}
    assert flavors["training--llm--a100"]["nodeTaints"][0]["key"] == "nvidia.com/gpu"
    assert flavors["training--llm--anywhere"] == {}


def test_volcano_limits_accelerators_and_leaves_room_for_the_submitter():
    spec = one(planned(queue={"kind": "volcano", "name": "q"}), "Queue")["spec"]
    assert spec["capability"] == {"nvidia.com/gpu": "128", "vpc.amazonaws.com/efa": "64"}
    assert spec["reclaimable"] is False


def test_the_disruption_budget_is_a_whole_number_of_all_pods():
    assert one(planned(), "PodDisruptionBudget")["spec"]["minAvailable"] == 17


def test_no_network_policy_for_the_hosts_network():
    assert len(bodies(planned(), "NetworkPolicy")) == 1
    plan = planned(network={"host_network": True})
    assert bodies(plan, "NetworkPolicy") == []
    assert any("NetworkPolicy" in note for note in build(plan).notes)


def test_a_quota_comes_with_defaults_for_who_asks_for_nothing():
    plan = planned(ground={"resource_quota": True})
    hard = one(plan, "ResourceQuota")["spec"]["hard"]
    assert hard["requests.nvidia.com/gpu"] == "128"
    assert hard["pods"] == "21"
    assert len(bodies(plan, "LimitRange")) == 1


def test_plugins_run_on_the_tainted_nodes_and_their_images_are_the_regions():
    plan = planned({"taints": [{"key": "team/only", "value": "ml"}]}, region="cn-north-1", zone="cn-north-1a")
    efa = one(plan, "DaemonSet", "aws-efa-k8s-device-plugin")["spec"]["template"]["spec"]
    assert {"key": "team/only", "operator": "Exists", "effect": "NoSchedule"} in efa["tolerations"]
    assert efa["containers"][0]["image"].startswith("918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn/")
    assert bodies(planned(plugins={"nvidia": False, "efa": False}), "DaemonSet") == []


MANAGED = {
    "provisioner": {"kind": "managed", "role": "arn:aws:iam::123456789012:role/nodes"},
    "network": {"subnets": {"ids": ["subnet-0123456789abcdef0"]}, "security_groups": {"ids": ["sg-0123456789abcdef0"]}},
}


def test_managed_node_groups_have_an_interface_on_each_network_card():
    plan = planned({"instance": "p5.48xlarge"}, **MANAGED)
    data = one(plan, "LaunchTemplate", "llm--a100")["spec"]["data"]
    kinds = [entry["interfaceType"] for entry in data["networkInterfaces"]]
    assert (len(kinds), kinds[0], set(kinds[1:])) == (32, "efa", {"efa-only"})
    assert [entry["networkCardIndex"] for entry in data["networkInterfaces"]] == list(range(32))
    spec = one(plan, "Nodegroup", "llm--a100")["spec"]
    assert spec["amiType"] == "AL2023_x86_64_NVIDIA"
    assert spec["scalingConfig"] == {"minSize": 0, "maxSize": 16, "desiredSize": 0}
    assert spec["taints"] == [{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE", "value": "true"}]


def test_a_managed_capacity_block_names_market_type_and_reservation():
    plan = planned({"capacity": BLOCK, "nodes": 2}, **MANAGED)
    data = one(plan, "LaunchTemplate", "llm--a100")["spec"]["data"]
    assert data["instanceMarketOptions"] == {"marketType": "capacity-block"}
    assert data["instanceType"] == "p4d.24xlarge"
    spec = one(plan, "Nodegroup", "llm--a100")["spec"]
    assert (spec["capacityType"], "instanceTypes" in spec) == ("CAPACITY_BLOCK", False)


def test_managed_nodes_get_their_lnc_as_a_mime_part():
    group = {"instance": "trn2.48xlarge", "image": "neuron:1", "nodes": 2, "logical_cores": 1}
    data = one(planned(group, **MANAGED), "LaunchTemplate", "llm--a100")["spec"]["data"]["userData"]
    text = base64.b64decode(data).decode()
    assert text.startswith("MIME-Version: 1.0")
    assert "NEURON_LOGICAL_NC_CONFIG=1" in text


def test_managed_nodes_make_one_disk_of_their_nvme_where_scratch_asks():
    def launch(**fields):
        return one(planned(**MANAGED, **fields), "LaunchTemplate", "llm--a100")["spec"]["data"]

    text = base64.b64decode(launch(storage={"scratch": {"kind": "nvme"}})["userData"]).decode()
    assert "Content-Type: application/node.eks.aws" in text
    assert "localStorage:\n      strategy: RAID0" in text
    assert "userData" not in launch()


def test_the_first_card_of_some_types_carries_no_efa():
    data = one(planned({"instance": "p6-b300.48xlarge"}, **MANAGED), "LaunchTemplate", "llm--a100")["spec"]["data"]
    kinds = [(entry["networkCardIndex"], entry["interfaceType"]) for entry in data["networkInterfaces"]]
    assert kinds == [(0, "interface"), *((card, "efa-only") for card in range(1, 17))]


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-west-2", "602401143452.dkr.ecr.us-west-2.amazonaws.com"),
        ("me-south-1", "558608220178.dkr.ecr.me-south-1.amazonaws.com"),
        ("eu-south-1", "590381155156.dkr.ecr.eu-south-1.amazonaws.com"),
        ("il-central-1", "066635153087.dkr.ecr.il-central-1.amazonaws.com"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("cn-north-1", "918309763551.dkr.ecr.cn-north-1.amazonaws.com.cn"),
    ],
)
def test_each_region_has_its_registry(region, registry):
    body = one(planned(region=region, zone=f"{region}a"), "DaemonSet", "aws-efa-k8s-device-plugin")
    assert (
        body["spec"]["template"]["spec"]["containers"][0]["image"]
        == f"{registry}/eks/aws-efa-k8s-device-plugin:v0.5.20"
    )


def test_a_region_that_no_source_knows_takes_the_image_of_the_file():
    plan = planned(region="xx-new-1", zone="xx-new-1a", plugins={"efa_image": "mirror/efa:1"})
    body = one(plan, "DaemonSet", "aws-efa-k8s-device-plugin")
    assert body["spec"]["template"]["spec"]["containers"][0]["image"] == "mirror/efa:1"


def test_notes_tell_what_full_bandwidth_needs():
    notes = " ".join(build(planned()).notes)
    assert "must allow all traffic from and to itself" in notes
    assert "a100: Ray's public image has no torch, and no OFI plugin" in notes
    without = " ".join(build(planned(zone=None, workers=[{"name": "g", "instance": "g6e.4xlarge", "nodes": 1}])).notes)
    assert "g: Ray's public image has no torch; write" in without
    assert "EFA" not in without
    assert "the EKS cluster is taken to be called llm" in notes
    quiet = " ".join(build(planned({"nodes": 1}, ray={"image": "r/i:1"}, eks="ml")).notes)
    assert not [word for word in ("EFA", "public image", "taken to be") if word in quiet]
    assert "clusterSecurityGroupId" in " ".join(build(planned(**MANAGED)).notes)


VARIANTS = [
    {"provisioner": "none", "head": {"instance": "m6i.2xlarge"}},
    MANAGED,
    {"provisioner": {"ami": "bottlerocket@latest", "tags": {"team": "ml"}}},
    {"storage": {"shared": FSX | {"deployment": "PERSISTENT_1", "bucket": "s3://data/x", "backup_days": 7}}},
    {"storage": {"shared": FSX | {"provision": "ack", "deployment": "SCRATCH_2", "bucket": "s3://data/x"}}},
    {"storage": {"models": {"kind": "efs", "filesystem": "fs-0123456789abcdef0", "dynamic": False}}},
    {"queue": {"kind": "volcano", "name": "q", "topology": {"mode": "soft"}}},
    {
        "queue": {"kind": "kueue", "name": "q", "cohort": "all", "borrow_nodes": 1, "preempt": True},
        "group": {"nodes": 2},
    },
    {
        "queue": {"kind": "kueue", "name": "q", "topology": "topology.k8s.aws/network-node-layer-2"},
        "group": {"nodes": 2},
    },
    {"ground": {"resource_quota": True}, "monitoring": True},
    {"group": {"capacity": "spot", "placement_group": "pg", "disk": "1Ti"}},
    MANAGED | {"storage": {"scratch": {"kind": "nvme"}}, "group": {"instance": "p6-b300.48xlarge", "nodes": 2}},
]


@pytest.mark.parametrize("fields", VARIANTS, ids=lambda fields: ",".join(fields))
def test_an_api_server_takes_every_variant_and_lint_too(fields, shared):
    definitions = definitions_in(shared / "crds")
    plan = planned(**fields)
    bundle = build(plan)
    found = {
        each.key: wrong
        for each in bundle.objects
        if each.kind not in WITHOUT_SCHEMA and (wrong := definitions.findings(each.body))
    }
    assert found == {}
    assert bundles.refuse_what_cannot_run(plan, bundle) == []
    assert list(unfounded(bundle)) == []


def test_explain_tells_the_reasons_of_a_part_and_of_what_it_stands_in():
    bundle = build(planned())
    lines = explain_object(bundle, "NodePool/llm--a100.spec.disruption.budgets")
    assert lines[0] == "NodePool/llm--a100 (karpenter)"
    assert any("empty nodes for ever" in line for line in lines)
    efa = explain_object(
        bundle, "RayCluster/llm.spec.workerGroupSpecs.a100.template.spec.containers.ray-worker.env.FI_PROVIDER"
    )
    assert any("libfabric" in line for line in efa)


def test_explain_names_what_there_is():
    bundle = build(planned())
    with pytest.raises(KeyError, match="NodePool/llm--a100"):
        explain_object(bundle, "NodePool/llm--h100")
    with pytest.raises(KeyError, match="budgets"):
        explain_object(bundle, "NodePool/llm--a100.spec.disruption.budget")
