"""RayJob and RayCronJob: valid in every mode, accepted by the operator's rules, refused with a reason."""

from datetime import UTC, datetime, timedelta

import pytest
from cluster_file import data, one_group, plan
from kube_schema import Definitions

from raytrain_eks.manifests.kuberay_job import Deletion, Schedule, Work, ray_cron_job, ray_job
from raytrain_eks.manifests.object import at
from raytrain_eks.manifests.rules import Operator, breaches
from raytrain_eks.spec.problem import SpecError

KUEUE = {"queue": {"kind": "kueue", "name": "q"}} | one_group()
WORKS = {
    "plain": {"nodes": {"h100": 4}},
    "autoscaled": {},
    "http": {"mode": "HTTPMode", "runtime_env": {"env_vars": {"A": "$HOME"}}},
    "sidecar": {"mode": "SidecarMode", "retries": 2},
    "interactive": {"mode": "InteractiveMode", "command": ""},
    "existing": {"cluster": "other", "submit_retries": 3},
    "rules": {
        "deletions": (
            Deletion(when="SUCCEEDED", policy="DeleteCluster", after=60),
            Deletion(when="SUCCEEDED", policy="DeleteSelf", after=3600),
            Deletion(when="Failed", policy="DeleteNone"),
        )
    },
    "everything": {
        "deadline": 3600,
        "start_deadline": 600,
        "keep": 60,
        "suspend": True,
        "runtime_env": {"working_dir": "s3://b/c.zip"},
        "metadata": {"owner": "me"},
        "job_id": "run-1",
        "cpus": 1.5,
        "gpus": 1,
        "resources": {"neuron_cores": 1},
        "labels": {"team": "nlp"},
        "retries": 1,
        "submit_retries": 0,
    },
    "keeps": {"shutdown": False},
}


@pytest.fixture(scope="session")
def definitions(shared):
    return Definitions(shared / "crds")


def work(**fields):
    return Work(**({"name": "sft", "command": 'python train.py "a b" && echo $HOME'} | fields))


@pytest.mark.parametrize("name", WORKS)
def test_an_api_server_takes_it_and_the_operator_too(name, definitions):
    found = ray_job(plan(), work(**WORKS[name]))
    assert definitions.findings(found.body) == []
    assert breaches(found.body) == []
    for path in found.whys:
        at(found.body, path)


@pytest.mark.parametrize("name", WORKS)
def test_so_is_the_same_on_a_schedule(name, definitions):
    gates = {"RayCronJob": True}
    found = ray_cron_job(
        plan(operator={"feature_gates": gates}), work(**WORKS[name]), Schedule(cron="0 3 * * *", zone="Europe/Madrid")
    )
    assert definitions.findings(found.body) == []
    assert breaches(found.body, Operator(gates=gates)) == []
    for path in found.whys:
        at(found.body, path)


def test_a_job_takes_its_nodes_and_no_other_group():
    spec = ray_job(plan(), work(nodes={"h100": 3})).body["spec"]["rayClusterSpec"]
    assert [each["groupName"] for each in spec["workerGroupSpecs"]] == ["h100"]
    each = spec["workerGroupSpecs"][0]
    assert (each["replicas"], each["minReplicas"], each["maxReplicas"]) == (3, 3, 3)
    assert "enableInTreeAutoscaling" not in spec


def test_a_long_name_is_shortened_for_good():
    long, other = "x" * 60, "x" * 59 + "y"
    names = [ray_job(plan(), work(name=name)).name for name in (long, long, other)]
    assert names[0] == names[1] != names[2]
    assert all(len(name) <= 47 for name in names)


def test_queues_take_the_job_by_its_labels():
    volcano = plan(queue={"kind": "volcano", "name": "q"})
    assert ray_job(volcano, work()).body["metadata"]["labels"]["volcano.sh/queue-name"] == "q"
    found = ray_job(plan(**KUEUE), work(nodes={"g": 2})).body
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "q"
    assert found["spec"]["shutdownAfterJobFinishes"] is True
    assert "enableInTreeAutoscaling" not in found["spec"]["rayClusterSpec"]


def test_the_submitter_can_pull_a_private_image():
    private = data()["ray"] | {"pull_secrets": ["regcred"]}
    pod = ray_job(plan(ray=private), work()).body["spec"]["submitterPodTemplate"]["spec"]
    assert pod["imagePullSecrets"] == [{"name": "regcred"}]
    assert "submitterPodTemplate" not in ray_job(plan(ray=private), work(mode="HTTPMode")).body["spec"]


@pytest.mark.parametrize(
    ("changes", "fields", "words"),
    [
        ({}, {"nodes": {"b200": 1}}, "no such group"),
        ({}, {"nodes": {"h100": 5}}, "at most 4 nodes"),
        ({}, {"nodes": {"h100": 0}}, "at most 4 nodes"),
        ({}, {"runtime_env": {"env_vars": {"A": "$HOME"}}}, "HTTPMode"),
        ({}, {"metadata": {"a": "`id`"}}, "HTTPMode"),
        (KUEUE, {"cluster": "other"}, "Kueue cannot"),
        ({"queue": {"kind": "volcano", "name": "q"}}, {"cluster": "other"}, "Volcano cannot"),
        (KUEUE, {"shutdown": False}, "quota"),
        ({}, {"suspend": True, "shutdown": False}, "J1"),
        ({}, {"deadline": 0}, "J13"),
        ({}, {"mode": "SidecarMode", "submit_retries": 1}, "J9"),
        ({}, {"cluster": "other", "mode": "SidecarMode"}, "J7"),
        ({}, {"deletions": (Deletion(when="FAILED", policy="DeleteWorkers"),)}, "autoscaler"),
    ],
)
def test_what_cannot_work_is_refused_with_its_reason(changes, fields, words):
    with pytest.raises(SpecError, match=words):
        ray_job(plan(**changes), work(**fields))


BLOCK = {"kind": "capacity-block", "reservations": ["cr-0123456789abcdef0"], "ends": "2026-12-24T11:30:00Z"}
NOW = datetime(2026, 12, 24, 1, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("now", "deadline", "words"),
    [
        (NOW, 10 * 3600, None),
        (None, None, None),
        (NOW, 10 * 3600 + 1, "at most 600 minutes"),
        (NOW, None, "at most 600 minutes"),
        (NOW + timedelta(hours=10), 60, "is over at 2026-12-24 11:00"),
    ],
)
def test_a_job_does_not_outlive_its_capacity_block(now, deadline, words):
    made = plan(**one_group(capacity=BLOCK))
    fields = {"nodes": {"g": 2}, "deadline": deadline, "submitted": now}
    if words is None:
        assert ray_job(made, work(**fields))
    else:
        with pytest.raises(SpecError, match=words):
            ray_job(made, work(**fields))


def test_a_schedule_needs_the_operators_gate():
    with pytest.raises(SpecError, match="RayCronJob"):
        ray_cron_job(plan(), work(), Schedule(cron="@daily"))
