"""The checks of a Kubernetes cluster against the API's double: what is as it should be, and each thing that is not."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from double.api import ApiDouble

from raytrain_eks.kube.connect import connect
from raytrain_eks.kube.doctor import examine as examining
from raytrain_eks.kube.doctor import operators
from raytrain_eks.kube.doctor.examine import CHECKS, examine
from raytrain_eks.kube.doctor.look import Look, version_of
from raytrain_eks.kube.errors import Unauthorized
from raytrain_eks.manifests.bundle import build
from raytrain_eks.plan.cluster import ClusterPlan, resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.diagnosis import Diagnosis

FILE = """\
kind: Cluster
name: llm
region: us-west-2
zone: us-west-2a
kubernetes: "{kubernetes}"
ray: {{image: "123456789012.dkr.ecr.us-west-2.amazonaws.com/raytrain:gpu"}}
workers: [{{name: a100, instance: p4d.24xlarge, nodes: 2}}]
"""
Body = dict[str, Any]


def plan_of(more: str = "", kubernetes: str = "1.33") -> ClusterPlan:
    return resolve(Cluster.read(FILE.format(kubernetes=kubernetes) + more, "llm.yaml"))


def workload(kind: str, name: str, image: str, *, ready: bool = True, arguments: list[str] | None = None) -> Body:
    """A Deployment or DaemonSet of one pod."""
    labels = {"app": name}
    container = {"name": name, "image": image, "args": arguments or []}
    spec: Body = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    }
    counts = {
        "desiredNumberScheduled": 1,
        "numberReady": int(ready),
        "currentNumberScheduled": 1,
        "numberMisscheduled": 0,
    }
    status: Body = counts if kind == "DaemonSet" else {"replicas": 1, "readyReplicas": int(ready)}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": spec | ({} if kind == "DaemonSet" else {"replicas": 1}),
        "status": status,
    }


OPERATOR = "quay.io/kuberay/operator:v1.7.0"
NVIDIA = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0"
EFA = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20"


def healthy(api: ApiDouble) -> None:
    """Everything that the file needs, ready."""
    for name, image in (("kuberay-operator", OPERATOR), ("karpenter", "public.ecr.aws/karpenter/controller:1.14.1")):
        api.objects.put(workload("Deployment", name, image))
    for name, image in (("nvidia", NVIDIA), ("efa", EFA)):
        api.objects.put(workload("DaemonSet", name, image))


@pytest.fixture(scope="module")
def server(shared: Path) -> Iterator[ApiDouble]:
    """One API for the module; installing the definitions is most of the time of a test."""
    with ApiDouble(crds=shared / "crds") as api:
        yield api


@pytest.fixture
def kube_api(server: ApiDouble) -> Iterator[ApiDouble]:
    """The same, empty: what a test put there is removed after it."""
    before = {place(body) for _, body in server.store.everything()}
    yield server
    server.rbac.allow()
    for body in [body for _, body in server.store.everything() if place(body) not in before]:
        server.objects.delete(body)
    namespace = server.objects.get("namespaces", "training", "")
    server.objects.patch(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}})


def place(body: Body) -> tuple[str, str, str]:
    return body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"]


@pytest.fixture
def doctor(kube_api: ApiDouble, tmp_path: Path) -> Callable[..., dict[str, list[Diagnosis]]]:
    """Findings of some checks, or of all, by their ids."""

    def run(plan: ClusterPlan | None = None, *checks: str) -> dict[str, list[Diagnosis]]:
        found: dict[str, list[Diagnosis]] = {}
        with connect(kubeconfig=str(kube_api.kubeconfig(tmp_path)), tries=1) as client:
            look = Look(client, plan)
            some = (each for name in checks for each in CHECKS[name](look))
            for each in some if checks else examine(client, plan):
                found.setdefault(each.id, []).append(each)
        return found

    return run


def the_version(api: ApiDouble, tmp_path: Path) -> str:
    with connect(kubeconfig=str(api.kubeconfig(tmp_path))) as client:
        return ".".join(map(str, client.version()))


def reds(found: dict[str, list[Diagnosis]]) -> set[str]:
    return {each.id for group in found.values() for each in group if each.level == "red"}


def yellows(found: dict[str, list[Diagnosis]]) -> set[str]:
    return {each.id for group in found.values() for each in group if each.level == "yellow"}


def test_a_cluster_that_has_everything_is_green(kube_api, doctor, tmp_path):
    healthy(kube_api)
    found = doctor(plan_of(kubernetes=the_version(kube_api, tmp_path)))
    assert reds(found) == yellows(found) == set()
    assert {"api.reach", "rights.apply", "operators.kuberay", "karpenter.nodepool", "images.name"} <= set(found)


@pytest.mark.parametrize(("ahead", "level"), [(0.0, "green"), (20.0, "yellow"), (-400.0, "red")])
def test_the_clock_is_held_against_the_apis(kube_api, tmp_path, monkeypatch, ahead, level):
    now = time.time
    monkeypatch.setattr(examining, "time", SimpleNamespace(time=lambda: now() + ahead))
    with connect(kubeconfig=str(kube_api.kubeconfig(tmp_path)), tries=1) as client:
        assert [each.level for each in examining.clock(client)] == [level]


def test_every_finding_that_is_not_green_has_a_fix(kube_api, doctor):
    found = doctor(plan_of("queue: {kind: volcano, name: ml}\nsecrets: {HF_TOKEN: {name: hf, key: token}}\n"))
    bad = [each for group in found.values() for each in group if each.level != "green"]
    assert len(bad) > 3
    assert all(each.fix for each in bad)


def test_without_operators_their_kinds_are_missing(tmp_path):
    with (
        ApiDouble() as api,
        connect(kubeconfig=str(api.kubeconfig(tmp_path)), tries=1) as client,
    ):
        found = {each.id: each for each in examine(client, plan_of())}
    assert {"kinds.ray.io", "kinds.karpenter.sh", "kinds.karpenter.k8s.aws"} <= {
        id for id, each in found.items() if each.level == "red"
    }
    assert "helm install kuberay-operator" in (found["kinds.ray.io"].fix or "")


@pytest.mark.parametrize(
    ("more", "change", "id", "words"),
    [
        ("", {"image": OPERATOR, "ready": False}, "operators.kuberay", "0 of 1 pods are ready"),
        ("", {"image": "quay.io/kuberay/operator:v1.3.2"}, "operators.kuberay", "KubeRay 1.3.2 is too old"),
        (
            "",
            {"arguments": ["--watch-namespace=team-a,team-b"]},
            "operators.kuberay.namespaces",
            "watches team-a,team-b",
        ),
        ("operator: {feature_gates: {RayCronJob: true}}\n", {}, "operators.kuberay.gates", "RayCronJob is off"),
        ("queue: {kind: volcano, name: ml}\n", {}, "operators.kuberay.scheduler", "batch scheduler is none"),
    ],
    ids=["not ready", "too old", "another namespace", "gate", "batch scheduler"],
)
def test_the_operator_is_held_against_the_file(kube_api, doctor, more, change, id, words):
    kube_api.objects.put(workload("Deployment", "kuberay-operator", **({"image": OPERATOR} | change)))
    found = doctor(plan_of(more), "operators")
    assert id in reds(found)
    assert words in found[id][0].what


@pytest.mark.parametrize(
    "arguments",
    [
        ["--feature-gates=RayCronJob=true", "--batch-scheduler=volcano"],
        ["-feature-gates", "RayCronJob=true", "--batch-scheduler", "volcano"],
    ],
)
def test_an_operator_with_the_right_switches_is_fine(kube_api, doctor, arguments):
    kube_api.objects.put(workload("Deployment", "kuberay-operator", OPERATOR, arguments=arguments))
    found = doctor(
        plan_of("operator: {feature_gates: {RayCronJob: true}}\nqueue: {kind: volcano, name: ml}\n"), "operators"
    )
    assert not {id for id in reds(found) if id.startswith("operators.kuberay")}


def test_rights_are_asked_of_the_api_and_named_with_the_rule_that_grants_them(kube_api, doctor):
    kube_api.rbac.deny(verb="create", resource="rayjobs")
    kube_api.rbac.deny(verb="get", resource="pods/log")
    found = doctor(None, "rights")
    assert {"rights.submit", "rights.status"} <= reds(found)
    assert "create RayJob" in found["rights.submit"][0].what
    assert 'apiGroups: ["ray.io"], resources: [rayjobs], verbs: [create]' in (found["rights.submit"][0].fix or "")
    assert "get Pod/log" in found["rights.status"][0].what


def test_what_may_not_be_looked_at_is_said_and_the_rest_goes_on(kube_api, doctor):
    kube_api.rbac.deny(verb="list", resource="daemonsets")
    found = doctor(plan_of())
    assert found["devices.unseen"][0].level == "yellow"
    assert "images.name" in found


def test_who_is_not_known_gets_an_error_and_no_findings(kube_api, tmp_path):
    file = kube_api.kubeconfig(tmp_path)
    file.write_text(file.read_text().replace("token: ", "token: not-"))
    with connect(kubeconfig=str(file), tries=1) as client, pytest.raises(Unauthorized) as caught:
        list(examine(client))
    assert caught.value.code == 4


def test_a_device_plugin_that_is_not_ready_is_red_and_two_are_told(kube_api, doctor):
    healthy(kube_api)
    kube_api.objects.put(workload("DaemonSet", "nvidia-2", NVIDIA))
    kube_api.objects.put(
        workload("DaemonSet", "neuron", "public.ecr.aws/neuron/neuron-device-plugin:2.32.0.0", ready=False)
    )
    found = doctor(plan_of(), "devices")
    assert "devices.nvidia-gpu" in yellows(found)
    assert "devices.aws-neuron" in reds(found)


def test_a_plugin_that_nobody_brings_is_missed(kube_api, doctor):
    found = doctor(plan_of("plugins: {efa: false}\n"), "devices")
    assert "devices.vpc-efa" in reds(found)
    assert "`apply` makes it" in found["devices.nvidia-gpu"][0].what


def test_a_node_that_offers_less_than_its_type_has_is_named(kube_api, doctor):
    labels = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    status = {"allocatable": {"cpu": "95", "nvidia.com/gpu": "7"}, "capacity": {"cpu": "96"}}
    kube_api.objects.put(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "ip-1", "labels": labels}, "status": status}
    )
    assert "ip-1 (p4d.24xlarge) 7 of 8 nvidia.com/gpu" in doctor(None, "devices")["devices.nodes"][0].what


def test_a_node_class_that_is_not_ready_says_which_part(kube_api, doctor):
    plan = plan_of()
    made = next(each.body for each in build(plan).objects if each.kind == "EC2NodeClass" and each.name.endswith("a100"))
    at = "2026-11-30T12:00:00Z"
    conditions = [
        {
            "type": "SubnetsReady",
            "status": "False",
            "reason": "SubnetsNotFound",
            "message": "no subnet has the tags",
            "lastTransitionTime": at,
        },
        {
            "type": "Ready",
            "status": "False",
            "reason": "UnhealthyDependents",
            "message": "SubnetsReady=False",
            "lastTransitionTime": at,
        },
    ]
    kube_api.objects.put(made | {"status": {"conditions": conditions}})
    found = doctor(plan, "nodes")
    assert "karpenter.ec2nodeclass" in reds(found)
    assert any("SubnetsReady (no subnet has the tags)" in each.what for each in found["karpenter.ec2nodeclass"])


def test_nodes_that_must_be_there_are_looked_for(kube_api, doctor):
    more = "provisioner: none\nhead: {cpu: '4', memory: 8Gi, node_selector: {pool: head}}\n"
    assert "nodes.existing" in reds(doctor(plan_of(more), "nodes"))


KUEUE = "queue: {kind: kueue, name: training}\n"


def kueue(api: ApiDouble, plan: ClusterPlan, *, gpus: str, active: str = "True") -> None:
    for each in build(plan).objects:
        if each.system == "queues":
            body = json.loads(json.dumps(each.body))
            if each.kind == "ClusterQueue":
                for resource in (one for f in body["spec"]["resourceGroups"][0]["flavors"] for one in f["resources"]):
                    resource["nominalQuota"] = (
                        gpus if resource["name"] == "nvidia.com/gpu" else resource["nominalQuota"]
                    )
                condition = {"type": "Active", "status": active, "reason": "FlavorNotFound", "message": "no flavor x"}
                body["status"] = {"conditions": [condition | {"lastTransitionTime": "2026-11-30T12:00:00Z"}]}
            api.objects.put(body)


@pytest.mark.parametrize(
    ("gpus", "active", "level", "words"),
    [
        ("16", "True", "green", "has room for all accelerators"),
        ("1", "True", "yellow", "3 of 16 nvidia.com/gpu"),
        ("0", "True", "red", "0 of 16 nvidia.com/gpu: the job is never admitted"),
        ("16", "False", "red", "is not active: FlavorNotFound: no flavor x"),
    ],
)
def test_a_kueue_queue_is_held_against_the_groups(kube_api, doctor, gpus, active, level, words):
    plan = plan_of(KUEUE)
    kueue(kube_api, plan, gpus=gpus, active=active)
    found = doctor(plan, "queues")["queues.kueue"][0]
    assert found.level == level
    assert words in found.what


def test_a_queue_that_nobody_makes_is_missed(kube_api, doctor):
    found = doctor(plan_of("queue: {kind: kueue, name: training, create: false}\n"), "queues")
    assert "queues.kueue" in reds(found)


def test_a_closed_volcano_queue_is_red(kube_api, doctor):
    queue = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": "ml"}, "spec": {}}
    kube_api.objects.put(queue | {"status": {"state": "Closed"}})
    assert "is Closed" in doctor(plan_of("queue: {kind: volcano, name: ml}\n"), "queues")["queues.volcano"][0].what


LUSTRE = "storage: {shared: {kind: fsx-lustre, filesystem: fs-0123456789abcdef0, mount_name: abcdefgh}}\n"


def test_a_missing_csi_driver_is_red_and_a_claim_that_waits_tells_why(kube_api, doctor):
    plan = plan_of(LUSTRE)
    claim = next(each.body for each in build(plan).objects if each.kind == "PersistentVolumeClaim")
    made = kube_api.objects.put(claim | {"status": {"phase": "Pending"}})
    kube_api.event(made, "ProvisioningFailed", "no subnet")
    found = doctor(plan, "storage")
    assert "storage.fsx" in reds(found)
    assert "is Pending: no subnet" in found["storage.claim"][0].what


def test_a_claim_for_one_node_only_is_told(kube_api, doctor):
    plan = plan_of("storage: {shared: {kind: claim, claim: mine, mount: /shared}}\n")
    assert "storage.claim" in reds(doctor(plan, "storage"))
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    body = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "mine", "namespace": "training"}}
    kube_api.objects.put(body | {"spec": spec, "status": {"phase": "Bound"}})
    assert "for one node at a time" in doctor(plan, "storage")["storage.claim"][0].what


def test_a_quota_without_defaults_refuses_the_operators_init_container(kube_api, doctor):
    meta = {"name": "q", "namespace": "training"}
    kube_api.objects.put(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {"hard": {"requests.cpu": "8"}}}
    )
    assert "namespace.quota" in reds(doctor(plan_of(), "namespace"))
    assert "namespace.quota" not in reds(doctor(plan_of("ground: {resource_quota: true}\n"), "namespace"))


@pytest.mark.parametrize(("level", "host", "red"), [("baseline", "true", True), ("baseline", "false", False)])
def test_pod_security_is_held_against_the_pods(kube_api, doctor, level, host, red):
    namespace = kube_api.objects.get("namespaces", "training", "")
    kube_api.objects.patch(namespace, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": level}}})
    assert ("namespace.security" in reds(doctor(plan_of(f"network: {{host_network: {host}}}\n"), "namespace"))) is red


def test_secrets_are_looked_at_by_their_keys_and_never_shown(kube_api, doctor):
    plan = plan_of("secrets: {HF_TOKEN: {name: hf, key: token}}\n")
    assert "does not exist" in doctor(plan, "namespace")["namespace.secret"][0].what
    meta = {"name": "hf", "namespace": "training"}
    kube_api.objects.put(
        {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": {"other": "c2VjcmV0LXZhbHVl"}}
    )
    found = doctor(plan, "namespace")
    assert "has no key token; it has other" in found["namespace.secret"][0].what
    assert "c2VjcmV0LXZhbHVl" not in str(found)
    kube_api.rbac.deny(verb="get", resource="secrets")
    assert doctor(plan, "namespace")["namespace.secret"][0].level == "yellow"


def test_the_accounts_role_and_what_gives_it(kube_api, doctor):
    arn = "arn:aws:iam::123456789012:role/train"
    plan = plan_of(f"service_account: {{name: me, create: false, irsa: '{arn}'}}\n")
    assert {"identity.account", "identity.irsa"} <= reds(doctor(plan, "identity"))
    meta = {"name": "me", "namespace": "training", "annotations": {"eks.amazonaws.com/role-arn": arn + "-other"}}
    kube_api.objects.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    assert f"the file says {arn}" in doctor(plan, "identity")["identity.account"][0].what


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/raytrain:gpu", "lies in eu-west-1"),
        ("123456789012.dkr.ecr.us-west-2.amazonaws.com/raytrain:latest", "no fixed tag"),
        ("example.org:5000/raytrain", "no fixed tag"),
        ("rayproject/ray:2.60.0-py311-gpu", "has no torch"),
    ],
)
def test_an_image_is_judged_by_its_name(kube_api, doctor, image, words):
    plan = resolve(
        Cluster.read(
            FILE.format(kubernetes="1.33").replace("123456789012.dkr.ecr.us-west-2.amazonaws.com/raytrain:gpu", image),
            "x",
        )
    )
    found = [each for each in doctor(plan, "images")["images.name"] if each.where == image]
    assert [each.level for each in found] == ["yellow"]
    assert words in found[0].what


def test_an_image_that_is_not_pulled_now_is_red(kube_api, doctor):
    waiting = {"reason": "ImagePullBackOff", "message": "pull access denied"}
    status = {
        "name": "c",
        "image": "x:1",
        "imageID": "",
        "ready": False,
        "restartCount": 0,
        "state": {"waiting": waiting},
    }
    meta = {"name": "p", "namespace": "training"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": {"containers": [{"name": "c", "image": "x:1"}]}}
    kube_api.objects.put(pod | {"status": {"phase": "Pending", "containerStatuses": [status]}})
    assert "pull access denied" in doctor(None, "namespace")["images.pull"][0].what


@pytest.mark.parametrize(
    ("image", "expected"),
    [(OPERATOR, "1.7.0"), ("host:5000/a/b:nightly", None), ("a/b@sha256:00", None), ("a/b:v1.2@sha256:00", "1.2")],
)
def test_a_version_is_read_from_a_tag(image, expected):
    assert version_of(image) == expected


def test_gates_are_read_from_arguments():
    assert operators.gates(["--feature-gates=A=true, B=false", "x"]) == {"A": True, "B": False}


@pytest.mark.slow
def test_the_verb_ends_with_3_for_red_and_4_when_nobody_answers(kube_api, tmp_path):
    program = [sys.executable, "-m", "raytrain_eks", "doctor", "--on", "eks", "-o", "json", "--kubeconfig"]
    done = subprocess.run([*program, str(kube_api.kubeconfig(tmp_path))], capture_output=True, text=True, timeout=300)
    assert done.returncode == 3, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert {each["id"] for each in found if each["level"] == "red"} == {"operators.kuberay"}
    nobody = tmp_path / "nobody.yaml"
    nobody.write_text((tmp_path / "kubeconfig-admin.yaml").read_text().replace(kube_api.url, "https://127.0.0.1:1"))
    done = subprocess.run([*program, str(nobody)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 4
    assert "cannot be reached" in done.stderr
    assert "Traceback" not in done.stderr
