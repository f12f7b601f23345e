"""Notebooks beside a cluster: every profile becomes, by the real KubeSpawner, a pod that the cluster's nodes take."""

import asyncio
import json
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from unittest import mock

import pytest
from kube_schema import definitions_in

from raytrain_eks.cli import bundles
from raytrain_eks.lint import lint_objects
from raytrain_eks.lint.of_cluster import settings
from raytrain_eks.manifests import jupyterhub, jupyterhub_values, text
from raytrain_eks.manifests.bundle import build
from raytrain_eks.plan import fit
from raytrain_eks.plan.cluster import ClusterPlan, resolve
from raytrain_eks.plan.notebooks import profiles
from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.load import load
from raytrain_eks.spec.problem import SpecError

ROOT = Path(__file__).resolve().parents[2]
HUB = {"image": "registry.local/lab:1", "neuron_image": "registry.local/neuron:1"}
EXAMPLES = ["mixed", "gpu-a100", "gpu-h100", "gpu-b200", "trn1", "trn2", "g6e-small", "cpu-kind"]


def planned(example: str, **changes: object) -> ClusterPlan:
    """The plan of an example with a hub; `changes` are fields of the hub."""
    cluster = load(ROOT / "cluster_specs" / f"{example}.yaml")
    return resolve(Cluster.parse(cluster.written() | {"jupyterhub": HUB | changes}))


def spawned(plan: ClusterPlan) -> dict[str, dict]:
    """Profile -> the pod that KubeSpawner makes of it, set up by the values as the chart sets it up."""
    pytest.importorskip("kubespawner")
    import kubespawner.spawner as module
    from jupyterhub.objects import Hub
    from jupyterhub.orm import Spawner as Record
    from kubespawner import KubeSpawner
    from traitlets.config import Config

    values = jupyterhub_values.values(plan)["singleuser"]
    home = {"name": "volume-{user_server}", "persistentVolumeClaim": {"claimName": "claim-{user_server}"}}
    config = Config()
    spawner = config.KubeSpawner
    spawner.namespace = plan.cluster.jupyterhub.namespace
    spawner.image = f"{values['image']['name']}:{values['image']['tag']}"
    spawner.image_pull_policy = values["image"]["pullPolicy"]
    spawner.service_account = values["serviceAccountName"]
    spawner.extra_annotations = values["extraAnnotations"]
    spawner.environment = values["extraEnv"]
    spawner.volumes = {"home": home} | values["storage"].get("extraVolumes", {})
    spawner.volume_mounts = {"home": {"name": home["name"], "mountPath": "/home/jovyan"}}
    spawner.volume_mounts |= values["storage"].get("extraVolumeMounts", {})
    spawner.uid, spawner.fs_gid = 1000, 100
    spawner.profile_list = values["profileList"]
    hub = Hub(ip="hub", port=8081, base_url="/hub/")
    hub.public_host = "http://hub"

    async def pods() -> dict[str, dict]:
        found = {}
        for profile in values["profileList"]:
            user = mock.MagicMock(id=1, url="/user/jo/", escaped_name="jo", spawners={})
            user.name = "jo"
            made = KubeSpawner(
                config=deepcopy(config), user=user, hub=hub, orm_spawner=Record(name=""), api_token="t", _mock=True
            )
            made.user_options = {"profile": profile["slug"]}
            await made.load_user_options()
            pod = await made.get_pod_manifest()
            found[profile["slug"]] = (
                module.ApiClient().sanitize_for_serialization(pod) if hasattr(module, "ApiClient") else serialized(pod)
            )
        return found

    nobody = {"shared_client": mock.MagicMock(), "load_config": mock.MagicMock()}
    with mock.patch.multiple(module, create=True, **nobody):
        return asyncio.run(pods())


def serialized(pod: object) -> dict:
    from kubernetes_asyncio.client import ApiClient

    body = ApiClient().sanitize_for_serialization(pod)
    return {"apiVersion": "v1", "kind": "Pod"} | body


@pytest.fixture(scope="module")
def definitions(shared):
    return definitions_in(shared / "crds")


def test_the_example_has_its_golden_values(golden):
    plan, _ = bundles.read(ROOT / "cluster_specs" / "mixed.yaml")
    golden("mixed.jupyterhub.yaml", text.yaml([jupyterhub_values.values(plan)]))


@pytest.mark.slow
@pytest.mark.parametrize("namespace", ["jupyter", "the cluster's"])
@pytest.mark.parametrize("example", EXAMPLES)
def test_every_profile_becomes_a_pod_that_its_nodes_take(example, namespace, definitions):
    own = load(ROOT / "cluster_specs" / f"{example}.yaml").namespace
    plan = planned(example, namespace=own if namespace != "jupyter" else namespace)
    pods, known = spawned(plan), {profile.slug: profile for profile in profiles(plan)}
    assert list(pods) == list(known)
    for slug, pod in pods.items():
        spec, profile = pod["spec"], known[slug]
        container = spec["containers"][0]
        assert definitions.findings(pod) == []
        assert container["image"] == profile.image
        assert spec["serviceAccountName"] == jupyterhub.account(plan)
        assert spec.get("automountServiceAccountToken") is not False
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
        assert set(mounts.values()) <= volumes
        assert {"/home/jovyan", "/dev/shm", *(folder.mount for folder in jupyterhub.folders(plan))} <= set(mounts)
        asked = container["resources"]["requests"]
        assert container["resources"]["limits"] == asked
        if profile.resource is not None:
            assert asked[profile.resource[0]] == str(profile.resource[1])
        if profile.group is not None:
            fits(plan, profile.group, spec, asked)


def fits(plan: ClusterPlan, group_name: str, spec: dict, asked: dict) -> None:
    """The node has what is asked for beside daemon sets, carries the labels, and its taints are tolerated."""
    group = plan.group(group_name)
    instance = group.instance
    assert Decimal(asked["cpu"]) <= instance.allocatable_cpu - fit.DAEMON_CPU
    assert Decimal(asked["memory"]) <= instance.allocatable_memory - fit.daemon_memory(instance.allocatable_memory)
    labels = group.node_labels | {"node.kubernetes.io/instance-type": instance.type}
    labels |= {"topology.kubernetes.io/zone": group.zone} if group.zone else {}
    assert spec["nodeSelector"].items() <= labels.items()
    tolerated = {(each["key"], each.get("value", ""), each["effect"]) for each in spec.get("tolerations", [])}
    assert {(taint.key, taint.value, taint.effect) for taint in group.taints} <= tolerated


@pytest.mark.slow
def test_lint_finds_nothing_in_the_pods_beside_their_bundle():
    plan, bundle = bundles.read(ROOT / "cluster_specs" / "mixed.yaml")
    pods = list(spawned(plan).values())
    homes = [{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim-jo"}}]
    homes[0]["metadata"]["namespace"] = plan.cluster.namespace
    homes[0]["spec"] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
    found = [each for each in lint_objects([*bundle.bodies, *homes, *pods], settings(plan)) if each.severity == "error"]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES)
def test_profiles_hold_no_word_that_kubespawner_does_not_know(example):
    pytest.importorskip("kubespawner")
    from kubespawner import KubeSpawner

    for profile in jupyterhub_values.profile_list(planned(example)):
        assert set(profile) <= {"slug", "display_name", "description", "default", "kubespawner_override"}
        assert set(profile["kubespawner_override"]) <= set(KubeSpawner.class_trait_names())


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        ("mixed", ["cpu", "a100-1", "a100-node", "trn-1", "trn-node"]),
        ("g6e-small", ["cpu", "l40s-1", "l40s-node"]),
        ("cpu-kind", ["cpu"]),
    ],
)
def test_what_a_user_may_choose(example, expected):
    assert [profile.slug for profile in profiles(planned(example))] == expected


def test_groups_may_be_left_out():
    assert [profile.slug for profile in profiles(planned("mixed", groups=["a100"], neuron_image=None))] == [
        "cpu",
        "a100-1",
        "a100-node",
    ]


@pytest.mark.parametrize(
    ("changes", "path", "words"),
    [
        ({"groups": ["a10"]}, "jupyterhub.groups.0", "there is no such worker group"),
        ({"neuron_image": None}, "jupyterhub.neuron_image", "nodes of trn need an image"),
        ({"memory": "100Gi"}, "jupyterhub.memory", "c7i.8xlarge can give pods"),
        ({"cpu": "32"}, "jupyterhub.cpu", "c7i.8xlarge can give pods"),
        ({"idle": "10s"}, "jupyterhub.idle", "less than a minute"),
        ({"idle": "2h", "longest": "1h"}, "jupyterhub.longest", "less than `idle`"),
        ({"home": "ten"}, "jupyterhub.home", ""),
        ({"imag": "x"}, "jupyterhub.imag", "did you mean `image`?"),
    ],
)
def test_what_is_wrong_is_told_at_its_place(changes, path, words):
    with pytest.raises(SpecError) as raised:
        planned("mixed", **changes)
    assert path in [problem.path for problem in raised.value.problems]
    assert words in str(raised.value)


def rights(plan: ClusterPlan) -> set[tuple[str, str, str, str]]:
    """(namespace, resource, verb, name or *) of everything that the notebooks' account may do."""
    found = set()
    for each in jupyterhub.objects(plan):
        assert not each.kind.startswith("Cluster")
        for rule in each.body.get("rules", []):
            names = rule.get("resourceNames", ["*"])
            found |= {
                (each.namespace, resource, verb, name)
                for resource in rule["resources"]
                for verb in rule["verbs"]
                for name in names
            }
    return found


@pytest.mark.parametrize("connect", [False, True])
def test_notebooks_may_submit_jobs_in_the_cluster_s_namespace_and_nothing_else(connect):
    found = rights(planned("gpu-h100", connect=connect))
    assert {namespace for namespace, *_ in found} == {"training"}
    assert ("training", "rayjobs", "create", "*") in found
    changed = {(resource, name) for _, resource, verb, name in found if verb not in ("get", "list", "watch")}
    assert changed == {("rayjobs", "*"), ("configmaps", "*")} | ({("services/proxy", "*")} if connect else set())
    secrets = {name for _, resource, _, name in found if resource == "secrets"}
    assert secrets == ({"gpu-h100"} if connect else set())
    assert not any("*" in (resource, verb) for _, resource, verb, _ in found)


def test_notebooks_of_another_namespace_see_what_exists():
    plan = planned("gpu-h100")
    objects = {(each.kind, each.namespace): each.body for each in build(plan).objects if each.system == "jupyterhub"}
    claim, volume = objects[("PersistentVolumeClaim", "jupyter")], objects[("PersistentVolume", None)]
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["claimRef"] == {"namespace": "jupyter", "name": claim["metadata"]["name"]}
    assert volume["spec"]["csi"]["volumeHandle"] == "fs-0123456789abcdef0"
    (folder,) = jupyterhub.folders(plan)
    assert (folder.claim, folder.mount, folder.read_only) == (claim["metadata"]["name"], "/shared", False)
    assert jupyterhub_values.values(plan)["singleuser"]["extraEnv"] == {"RAYTRAIN_STORAGE": "/shared/runs"}


def test_an_access_point_s_folder_can_only_be_read():
    plan = planned("g6e-small")
    (folder,) = jupyterhub.folders(plan)
    assert folder.read_only
    volume = next(each.body for each in jupyterhub.objects(plan) if each.kind == "PersistentVolume")
    assert volume["spec"]["csi"]["volumeHandle"] == "fs-0123456789abcdef0:/raytrain-eks/training/g6e-small--shared"
    mounts = jupyterhub_values.values(plan)["singleuser"]["storage"]["extraVolumeMounts"]
    assert mounts["shared"]["readOnly"] is True


@pytest.mark.parametrize(
    ("example", "words"),
    [
        ("gpu-a100", "write its id and mount name as `filesystem` and `mount_name`"),
        ("trn2", "`jupyterhub: {namespace: training}`"),
        ("cpu-kind", "only one node can mount it"),
    ],
)
def test_what_notebooks_do_not_see_is_told(example, words):
    plan = planned(example)
    assert "shared" not in [folder.name for folder in jupyterhub.folders(plan)]
    assert any(words in note for note in jupyterhub.notes(plan))
    assert "RAYTRAIN_STORAGE" not in json.dumps(jupyterhub_values.values(plan))


def test_nothing_is_published():
    for example in EXAMPLES:
        values = jupyterhub_values.values(planned(example, connect=True))
        assert values["proxy"]["service"]["type"] == "ClusterIP"
        kinds = {each.kind for each in jupyterhub.objects(planned(example, connect=True))}
        assert not kinds & {"Service", "Ingress", "ClusterRole", "ClusterRoleBinding"}


def test_only_who_may_connect_is_let_in():
    policies = [each.body for each in jupyterhub.objects(planned("gpu-h100", connect=True)) if "Policy" in each.kind]
    (policy,) = policies
    (rule,) = policy["spec"]["ingress"]
    assert rule["from"][0]["podSelector"] == {"matchLabels": {"component": "singleuser-server"}}
    assert [port["port"] for port in rule["ports"]] == [8265, 10001]
    assert not any("Policy" in each.kind for each in jupyterhub.objects(planned("gpu-h100")))
    assert len(jupyterhub_values.values(planned("gpu-h100"))["singleuser"]["networkPolicy"]["egress"]) == 1


def test_a_bundle_with_a_hub_is_sound(definitions):
    for example in EXAMPLES:
        plan = planned(example, connect=True, irsa="arn:aws:iam::123456789012:role/notebooks")
        bundle = build(plan)
        assert [wrong for each in bundle.objects if (wrong := definitions.findings(each.body))] == []
        assert bundles.refuse_what_cannot_run(plan, bundle) == []


def test_memory_in_the_values_is_what_the_plan_says():
    plan = planned("mixed")
    for profile, written in zip(profiles(plan), jupyterhub_values.profile_list(plan), strict=True):
        override = written["kubespawner_override"]
        assert override["mem_limit"] == profile.memory
        assert quantity.parse(override["volumes"]["shm"]["emptyDir"]["sizeLimit"]) == profile.shm < profile.memory
