"""Applying: twice is once, whatever was interrupted goes on, others' fields and the autoscaler's numbers are left."""

import copy
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.cli import bundles
from raytrain_eks.kube import apply as applying
from raytrain_eks.kube import errors, order, presence, transport
from raytrain_eks.kube.apply import apply, raise_for

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "cluster_specs").glob("*.yaml"))
QUICK = "gpu-h100"
"""The example with the most kinds; the others take their time."""
NAMES = [pytest.param(file.stem, marks=[] if file.stem == QUICK else pytest.mark.slow) for file in EXAMPLES]
RAY = "ray.io/v1"


@cache
def bodies_of(name):
    return bundles.read(ROOT / "cluster_specs" / f"{name}.yaml")[1].bodies


def outcomes(results):
    return [each.outcome for each in results]


def done(client, bodies, **how):
    return list(apply(client, bodies, **how))


def cluster_of(api, name="gpu-a100"):
    return api.objects.get("rayclusters", name)


def everything(api):
    return {each["metadata"]["uid"]: copy.deepcopy(each) for _, each in api.store.everything()}


SOME = ("Namespace", "Queue", "NodePool", "StorageClass", "DaemonSet", "RayCluster")


@pytest.fixture
def applied(kube_api, kube_client):
    """Some objects of an example, applied."""
    bodies = [body for body in bodies_of("gpu-a100") if body["kind"] in SOME]
    done(kube_client, bodies)
    return bodies


# Twice is once


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_twice_is_once_for_every_example(kube_api, kube_client, name):
    bodies = bodies_of(name)
    presence.require(kube_client, bodies)
    assert set(outcomes(done(kube_client, bodies, dry_run=True))) <= {"created", "unchanged"}
    first = done(kube_client, bodies)
    # `training` is there from the start, and belongs to nobody.
    assert set(outcomes(first)) <= {"created", "unchanged"}
    assert outcomes(first).count("unchanged") <= 1
    assert [each.key for each in first] == [f"{b['kind']}/{b['metadata']['name']}" for b in order.in_order(bodies)]
    before = everything(kube_api)
    assert set(outcomes(done(kube_client, bodies))) == {"unchanged"}
    assert set(outcomes(done(kube_client, bodies, dry_run=True))) == {"unchanged"}
    assert everything(kube_api) == before


def test_a_dry_run_changes_nothing(kube_api, kube_client):
    before = everything(kube_api)
    done(kube_client, bodies_of("cpu-kind"), dry_run=True)
    assert everything(kube_api) == before


def test_a_change_is_configured_and_the_rest_is_not_touched(kube_api, kube_client, applied):
    queue = next(body for body in applied if body["kind"] == "Queue")
    changed = [body if body is not queue else queue | {"spec": queue["spec"] | {"weight": 3}} for body in applied]
    for how in ({"dry_run": True}, {}):
        results = done(kube_client, changed, **how)
        assert [each.key for each in results if each.outcome != "unchanged"] == ["Queue/ml-training"]
        assert outcomes(results).count("configured") == 1


@settings(max_examples=15)
@given(shuffled=st.deferred(lambda: st.permutations(bodies_of("gpu-a100"))))
def test_the_order_of_the_file_does_not_matter(shuffled):
    kinds = [body["kind"] for body in order.in_order(shuffled)]
    assert kinds[0] == "Namespace"
    assert kinds[-1] == "RayCluster"
    for earlier, later in [
        ("EC2NodeClass", "NodePool"),
        ("StorageClass", "PersistentVolumeClaim"),
        ("ServiceAccount", "DaemonSet"),
    ]:
        assert kinds.index(later) > max(n for n, kind in enumerate(kinds) if kind == earlier)


# What is missing


def test_missing_operators_and_namespaces_are_named_together(shared, tmp_path):
    from double import ApiDouble

    from raytrain_eks.kube.connect import connect

    with ApiDouble(namespaces=()) as bare, connect(kubeconfig=str(bare.kubeconfig(tmp_path))) as client:
        bodies = [body for body in bodies_of("gpu-a100") if body["kind"] != "Namespace"]
        with pytest.raises(presence.Missing) as caught:
            presence.require(client, bodies)
    text = str(caught.value)
    assert caught.value.code == 4
    for part in ("helm install kuberay-operator", "Karpenter", "Volcano", "no namespace training", "nothing applied"):
        assert part in text
    assert text.count("Karpenter's AWS provider") == 1


def test_every_group_of_the_examples_has_an_operator_to_name():
    groups = {body["apiVersion"].rpartition("/")[0] for file in EXAMPLES for body in bodies_of(file.stem)}
    builtin = {"", "apps", "policy", "networking.k8s.io", "rbac.authorization.k8s.io", "storage.k8s.io"}
    assert groups - builtin <= set(presence.operators())


def test_kinds_that_the_file_defines_itself(kube_api, kube_client):
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "names": {"kind": "Thing", "plural": "things", "singular": "thing", "listKind": "ThingList"},
            "scope": "Namespaced",
            "versions": [
                {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
            ],
        },
    }
    thing = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}
    presence.require(kube_client, [thing, definition])
    dry = done(kube_client, [thing, definition], dry_run=True)
    assert outcomes(dry) == ["created", "created"]
    assert "is not there yet" in dry[1].reason


# Others


def test_fields_of_others_are_named_with_their_owner_and_taken_by_force_alone(kube_api, kube_client, applied):
    kube_api.objects.patch(cluster_of(kube_api), {"spec": {"rayVersion": "2.99.0"}}, manager="kubectl-edit")
    results = done(kube_client, applied)
    assert outcomes(results).count("failed") == 1
    failed = results[-1]
    assert failed.key == "RayCluster/gpu-a100"
    assert ".spec.rayVersion is kubectl-edit" in failed.reason
    assert "--force-conflicts" in failed.reason
    with pytest.raises(errors.KubeError, match=r"1 of \d+ objects failed; repeat the command"):
        raise_for(results)
    assert cluster_of(kube_api)["spec"]["rayVersion"] == "2.99.0"
    assert done(kube_client, applied, force=True)[-1].outcome == "configured"
    assert cluster_of(kube_api)["spec"]["rayVersion"] == "2.60.0"
    assert set(outcomes(done(kube_client, applied))) == {"unchanged"}


@pytest.mark.slow
def test_what_somebody_else_applied_in_the_same_form_is_no_conflict(kube_api, kube_client):
    for body in bodies_of("gpu-a100"):
        kube_client.apply(body, manager="kubectl")
    before = everything(kube_api)
    assert set(outcomes(done(kube_client, bodies_of("gpu-a100"), dry_run=True))) == {"unchanged"}
    assert set(outcomes(done(kube_client, bodies_of("gpu-a100")))) == {"unchanged"}
    assert {uid: applying.meaning(body) for uid, body in everything(kube_api).items()} == {
        uid: applying.meaning(body) for uid, body in before.items()
    }
    assert set(outcomes(done(kube_client, bodies_of("gpu-a100")))) == {"unchanged"}


def test_what_the_autoscaler_wrote_stays(kube_api, kube_client, applied):
    live = cluster_of(kube_api)
    groups = live["spec"]["workerGroupSpecs"]
    groups[0] |= {"replicas": 7, "scaleStrategy": {"workersToDelete": ["worker-3"]}}
    kube_api.objects.patch(live, {"spec": {"workerGroupSpecs": groups}}, manager="python-requests")
    changed = [
        body if body["kind"] != "RayCluster" else body | {"spec": body["spec"] | {"rayVersion": "2.60.1"}}
        for body in applied
    ]
    for bodies in (applied, changed, changed):
        results = done(kube_client, bodies)
        assert "failed" not in outcomes(results), results[-1].reason
        group = cluster_of(kube_api)["spec"]["workerGroupSpecs"][0]
        assert group["replicas"] == 7
        assert group["scaleStrategy"]["workersToDelete"] == ["worker-3"]
    assert set(outcomes(done(kube_client, changed))) == {"unchanged"}
    # A person who edited the same list is no autoscaler.
    groups[0]["maxReplicas"] = 99
    kube_api.objects.patch(cluster_of(kube_api), {"spec": {"workerGroupSpecs": groups}}, manager="kubectl-edit")
    assert "kubectl-edit" in done(kube_client, changed)[-1].reason


def test_a_smaller_cluster_takes_the_number_of_workers_with_it(kube_api, kube_client, applied):
    live = cluster_of(kube_api)
    groups = live["spec"]["workerGroupSpecs"]
    groups[0]["replicas"] = 7
    kube_api.objects.patch(live, {"spec": {"workerGroupSpecs": groups}}, manager="python-requests")
    body = next(body for body in applied if body["kind"] == "RayCluster")
    smaller = body["spec"]["workerGroupSpecs"][0] | {"maxReplicas": 4}
    done(kube_client, [body | {"spec": body["spec"] | {"workerGroupSpecs": [smaller]}}])
    assert cluster_of(kube_api)["spec"]["workerGroupSpecs"][0]["replicas"] == 4


def test_an_object_of_another_cluster_file_is_left_to_it(kube_api, kube_client, applied):
    results = done(kube_client, bodies_of("gpu-b200"))
    failed = {each.key: each.reason for each in results if each.outcome == "failed"}
    assert set(failed) == {"DaemonSet/nvidia-device-plugin-daemonset", "DaemonSet/aws-efa-k8s-device-plugin"}
    assert all("belongs to the cluster file of gpu-a100" in reason for reason in failed.values())
    skipped = [each for each in results if each.outcome == "skipped"]
    assert [each.key for each in skipped] == ["RayCluster/gpu-b200"]
    assert "waits for DaemonSet/nvidia-device-plugin-daemonset" in skipped[0].reason
    assert set(outcomes(done(kube_client, applied))) == {"unchanged"}


def test_nothing_is_put_into_a_namespace_that_failed(kube_api, kube_client):
    kube_api.rbac.deny(verb="patch", resource="namespaces")
    results = done(kube_client, bodies_of("cpu-kind"))
    assert outcomes(results) == ["failed", *["skipped"] * 5]
    assert "patch namespaces cpu-kind" not in results[0].reason
    assert "patch namespaces raytrain" in results[0].reason
    assert results[0].code == 4
    assert all(each.reason == "waits for namespace raytrain" for each in results[1:5])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rayVersoin": "2.60.0"}, "field not declared in schema"),
        ({"enableInTreeAutoscaling": "yes"}, "enableInTreeAutoscaling"),
    ],
)
def test_what_the_api_refuses_is_told_with_its_words(kube_api, kube_client, change, says):
    body = next(body for body in bodies_of("gpu-a100") if body["kind"] == "RayCluster")
    results = done(kube_client, [body | {"spec": body["spec"] | change}])
    assert outcomes(results) == ["failed"]
    assert says in results[0].reason
    assert results[0].code == 3


def test_a_field_that_never_changes_says_so(kube_api, kube_client, applied):
    plugin = next(body for body in applied if body["kind"] == "StorageClass")
    results = done(kube_client, [plugin | {"provisioner": "ebs.csi.aws.com"}])
    assert outcomes(results) == ["failed"]
    assert "Kubernetes never changes this field" in results[0].reason


def test_a_namespace_that_is_going_is_named(kube_api, kube_client):
    namespace = kube_api.objects.get("namespaces", "training", "")
    kube_api.objects.set_status(namespace, {"phase": "Terminating"})
    with pytest.raises(presence.Missing, match="namespace training is being deleted"):
        presence.require(kube_client, bodies_of("gpu-a100"))


# Interruptions


@pytest.mark.slow
def test_trouble_on_the_way_is_overcome(kube_api, kube_client, monkeypatch):
    monkeypatch.setattr(transport.time, "sleep", lambda seconds: None)
    for verb in ("get", "patch"):
        kube_api.faults.respond(503, times=2, verb=verb, resource="nodepools")
        kube_api.faults.drop(times=2, after=True, verb=verb, resource="rayclusters")
        kube_api.faults.respond(429, times=2, verb=verb, resource="queues", retry_after=1)
    assert "failed" not in outcomes(done(kube_client, bodies_of("gpu-a100")))
    assert set(outcomes(done(kube_client, bodies_of("gpu-a100")))) == {"unchanged"}


def test_an_object_that_changes_under_our_hands_is_read_anew(kube_api, kube_client, applied, monkeypatch):
    calls = []
    real = applying.scaled.carried

    def meddled(body, live):
        if body["kind"] == "RayCluster" and not calls:
            calls.append(1)
            groups = cluster_of(kube_api)["spec"]["workerGroupSpecs"]
            groups[0]["replicas"] = 5
            kube_api.objects.patch(cluster_of(kube_api), {"spec": {"workerGroupSpecs": groups}}, manager="manager")
        return real(body, live)

    monkeypatch.setattr(applying.scaled, "carried", meddled)
    assert "failed" not in outcomes(done(kube_client, applied))
    assert calls
    assert cluster_of(kube_api)["spec"]["workerGroupSpecs"][0]["replicas"] == 5


@pytest.mark.slow
@pytest.mark.parametrize("at", ["networkpolicies", "nodepools", "rayclusters"])
def test_killed_in_the_middle_and_said_again(kube_api, kubectl_config, kube_client, at):
    fault = kube_api.faults.delay(60, times=1, verb="patch", resource=at)
    command = [sys.executable, "-m", "raytrain_eks", "apply", "cluster_specs/gpu-a100.yaml", "--no-wait", "-y"]
    environment = os.environ | {"KUBECONFIG": str(kubectl_config)}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    end = time.monotonic() + 600
    while not fault.hits and process.poll() is None and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    stderr = process.communicate(timeout=300)[1]
    assert fault.hits == 1, stderr.decode()
    results = done(kube_client, bodies_of("gpu-a100"))
    assert set(outcomes(results)) == {"unchanged", "created"}
    assert outcomes(results)[-1] == "created"
    assert set(outcomes(done(kube_client, bodies_of("gpu-a100")))) == {"unchanged"}
