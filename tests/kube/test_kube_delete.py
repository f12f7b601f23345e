"""Deleting: reverse order, storage and other people's things stay, twice is once, what is stuck says why."""

from functools import cache
from pathlib import Path

import pytest

from raytrain_eks.cli import bundles
from raytrain_eks.kube import apply as applying
from raytrain_eks.kube import delete as deleting
from raytrain_eks.kube import order, owned, removal

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "cluster_specs").glob("*.yaml"))
QUICK = "gpu-h100"
"""The example with the most kinds; the others take their time."""
NAMES = [pytest.param(file.stem, marks=[] if file.stem == QUICK else pytest.mark.slow) for file in EXAMPLES]
LASTING = {"PersistentVolume", "PersistentVolumeClaim", "StorageClass", "FileSystem"}


@cache
def bodies_of(name):
    return bundles.read(ROOT / "cluster_specs" / f"{name}.yaml")[1].bodies


@pytest.fixture(autouse=True)
def no_long_pauses(monkeypatch):
    monkeypatch.setattr(deleting, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(deleting, "LONGEST_PAUSE_S", 0.01)


def put(client, name="gpu-a100", kinds=None):
    bodies = [body for body in bodies_of(name) if kinds is None or body["kind"] in kinds]
    results = list(applying.apply(client, bodies))
    assert not [each for each in results if each.outcome == "failed"]


def planned(client, name="gpu-a100", *, storage=False):
    return removal.plan(client, bodies_of(name), name, storage=storage, say=pytest.fail)


def gone(client, steps, seconds=10.0):
    return list(deleting.delete(client, steps, seconds=seconds, say=lambda text: None))


def by_outcome(results, outcome):
    return [each.step.key for each in results if each.outcome == outcome]


def test_storage_stays_and_its_namespace_with_it(kube_api, kube_client):
    put(kube_client)
    results = gone(kube_client, planned(kube_client))
    kept = {each.step.key: each.reason for each in results if each.outcome == "kept"}
    assert {key.split("/")[0] for key in kept} == {"PersistentVolumeClaim", "StorageClass", "Namespace"}
    assert kept["PersistentVolumeClaim/gpu-a100--shared"] == "storage stays unless --storage"
    assert "PersistentVolumeClaim/gpu-a100--" in kept["Namespace/training"]
    assert len(by_outcome(results, "deleted")) == len(bodies_of("gpu-a100")) - len(kept)
    again = gone(kube_client, planned(kube_client))
    assert by_outcome(again, "deleted") == []
    assert len(by_outcome(again, "absent")) == len(bodies_of("gpu-a100")) - len(kept)
    assert set(by_outcome(again, "kept")) == set(kept)


def test_the_cluster_goes_before_the_nodes_under_it(kube_api, kube_client):
    put(kube_client)
    start = len(kube_api.requests)
    gone(kube_client, planned(kube_client, storage=True))
    deleted = [each.resource for each in kube_api.requests[start:] if each.verb == "delete"]
    assert deleted[0] == "rayclusters"
    assert deleted[-1] == "namespaces"
    for later, earlier in [
        ("ec2nodeclasses", "nodepools"),
        ("storageclasses", "persistentvolumeclaims"),
        ("serviceaccounts", "daemonsets"),
    ]:
        assert deleted.index(later) > len(deleted) - 1 - deleted[::-1].index(earlier)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_example_goes_and_comes_again(kube_api, kube_client, name):
    put(kube_client, name)
    results = gone(kube_client, planned(kube_client, name, storage=True))
    assert {each.outcome for each in results} == {"deleted"}
    assert len(results) == len(bodies_of(name))
    assert removal.plan(kube_client, [], name, storage=True, say=pytest.fail) == []
    put(kube_client, name)


def test_every_kind_that_an_example_renders_to_is_found_by_its_label():
    kinds = {(body["apiVersion"], body["kind"]) for file in EXAMPLES for body in bodies_of(file.stem)}
    assert kinds - {("v1", "Namespace")} <= set(owned.KINDS)


def test_by_name_alone_everything_with_its_label_goes(kube_api, kube_client):
    put(kube_client)
    # A worker group that the file no longer has.
    extra = next(body for body in bodies_of("gpu-a100") if body["kind"] == "NodePool")
    kube_client.apply(extra | {"metadata": extra["metadata"] | {"name": "gpu-a100--former"}})
    steps = removal.plan(kube_client, [], "gpu-a100", storage=False, say=pytest.fail)
    assert "NodePool/gpu-a100--former" in [step.key for step in steps]
    assert "Namespace/training" not in [step.key for step in steps]
    assert {step.verb for step in steps if step.body["kind"] not in LASTING} == {"delete"}
    with_file = planned(kube_client)
    assert "NodePool/gpu-a100--former" in [step.key for step in with_file]


def test_what_is_not_ours_stays(kube_api, kube_client):
    put(kube_client)
    plugin = kube_api.objects.get("daemonsets", "nvidia-device-plugin-daemonset", "kube-system")
    labels = {"app.kubernetes.io/part-of": "gpu-h100"}
    kube_api.objects.patch(plugin, {"metadata": {"labels": labels}})
    efa = kube_api.objects.get("daemonsets", "aws-efa-k8s-device-plugin", "kube-system")
    kube_api.objects.patch(efa, {"metadata": {"labels": {"app.kubernetes.io/managed-by": "Helm"}}})
    reasons = {step.key: step.reason for step in planned(kube_client) if step.verb == "keep"}
    assert "it belongs to the cluster file of gpu-h100" in reasons["DaemonSet/nvidia-device-plugin-daemonset"]
    assert "was not made by raytrain-eks" in reasons["DaemonSet/aws-efa-k8s-device-plugin"]


@pytest.mark.parametrize(
    ("body", "lives"),
    [
        ({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "hf-token"}}, "Secret/hf-token lives in it"),
        ({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "hub"}}, "ServiceAccount/hub lives in it"),
        ({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-root-ca.crt"}}, None),
        (
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "head", "labels": {"ray.io/cluster": "gpu-a100"}},
                "spec": {"containers": [{"name": "c", "image": "i"}]},
            },
            None,
        ),
    ],
)
def test_a_namespace_goes_only_when_nobody_would_miss_anything(kube_api, kube_client, body, lives):
    put(kube_client, kinds=("Namespace", "PersistentVolumeClaim", "RayCluster"))
    kube_client.create(body)
    step = planned(kube_client, storage=True)[-1]
    assert step.key == "Namespace/training"
    assert (step.verb, step.reason) == (("keep", lives) if lives else ("delete", ""))


def test_a_namespace_that_cannot_be_looked_into_stays(kube_api, kube_client):
    put(kube_client, kinds=("Namespace", "RayCluster"))
    kube_api.rbac.deny(verb="list", resource="secrets")
    assert planned(kube_client, storage=True)[-1].verb == "keep"


def test_data_that_is_lost_and_data_that_is_not(kube_api, kube_client):
    put(kube_client, "gpu-b200")
    reasons = {step.body["kind"]: step.reason for step in planned(kube_client, "gpu-b200", storage=True)}
    assert "stays in AWS" in reasons["FileSystem"]
    assert "the data itself stays" in reasons["PersistentVolume"]
    assert "training--gpu-b200--shared stays (Retain)" in reasons["PersistentVolumeClaim"]


# Jobs


def job(name, status=None, **spec):
    body = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name, "namespace": "training"}}
    body |= {"spec": {"entrypoint": "python jobs/train.py", **spec}}
    return body | ({"status": status} if status else {})


def on_nodes_of(name):
    template = {"spec": {"nodeSelector": {"raytrain-eks/cluster": name}, "containers": [{"name": "h", "image": "i"}]}}
    return {"rayClusterSpec": {"headGroupSpec": {"rayStartParams": {}, "template": template}}}


@pytest.mark.parametrize(
    ("body", "stands"),
    [
        (job("selected", clusterSelector={"ray.io/cluster": "gpu-a100"}), True),
        (job("running", {"jobDeploymentStatus": "Running"}, clusterSelector={"ray.io/cluster": "gpu-a100"}), True),
        (job("own", {"jobDeploymentStatus": "Running"}, **on_nodes_of("gpu-a100")), True),
        (job("over", {"jobDeploymentStatus": "Complete"}, clusterSelector={"ray.io/cluster": "gpu-a100"}), False),
        (job("other", {"jobDeploymentStatus": "Running"}, **on_nodes_of("gpu-h100")), False),
    ],
    ids=lambda value: value["metadata"]["name"] if isinstance(value, dict) else "",
)
def test_jobs_that_run_on_it_are_named(kube_api, kube_client, body, stands):
    put(kube_client, kinds=("Namespace", "NodePool", "RayCluster"))
    kube_api.objects.put(body)
    found = removal.running_jobs(kube_client, planned(kube_client))
    assert found == ([f"training/{body['metadata']['name']}"] if stands else [])


# What does not go


@pytest.mark.parametrize(
    ("kind", "finalizer", "says"),
    [
        ("NodePool", "karpenter.sh/termination", "Karpenter still ends nodes of it"),
        ("RayCluster", "ray.io/gcs-ft-redis-cleanup-finalizer", "clears the cluster's data out of Redis"),
        ("Queue", "example.com/mine", "whoever set it must take it away"),
    ],
)
def test_what_is_stuck_says_why_and_holds_what_it_stands_on(kube_api, kube_client, kind, finalizer, says):
    put(kube_client, kinds=("Namespace", "EC2NodeClass", "NodePool", "Queue", "RayCluster"))
    body = next(step.body for step in planned(kube_client) if step.body["kind"] == kind)
    kube_api.objects.patch(body, {"metadata": {"finalizers": [finalizer]}})
    results = gone(kube_client, planned(kube_client, storage=True), seconds=0.1)
    stuck = next(each for each in results if each.outcome == "stuck")
    assert stuck.step.body["kind"] == kind
    assert says in stuck.reason
    assert stuck.code == 5
    skipped = [each for each in results if each.outcome == "skipped"]
    assert skipped
    assert all(order.rank(each.step.body["kind"]) < order.rank(kind) for each in skipped)
    kube_api.objects.patch(body, {"metadata": {"finalizers": []}})
    assert not by_outcome(gone(kube_client, planned(kube_client, storage=True)), "stuck")


def test_what_was_made_anew_meanwhile_is_not_deleted(kube_api, kube_client):
    put(kube_client, kinds=("Namespace", "RayCluster"))
    steps = planned(kube_client)
    old = kube_api.objects.get("rayclusters", "gpu-a100")
    kube_api.objects.delete(old)
    put(kube_client, kinds=("RayCluster",))
    results = gone(kube_client, steps)
    assert by_outcome(results, "failed") == ["RayCluster/gpu-a100"]
    assert {each.step.key: each.reason for each in results}["Namespace/training"] == "RayCluster/gpu-a100 lives in it"
    assert kube_api.objects.get("rayclusters", "gpu-a100")


def test_a_refusal_is_told_and_the_rest_goes_on(kube_api, kube_client):
    put(kube_client)
    steps = planned(kube_client)
    kube_api.rbac.deny(verb="delete", resource="queues")
    results = gone(kube_client, steps)
    failed = [each for each in results if each.outcome == "failed"]
    assert [(each.step.key, each.code) for each in failed] == [("Queue/ml-training", 4)]
    assert "not allowed (403): delete queues.scheduling.volcano.sh" in failed[0].reason
