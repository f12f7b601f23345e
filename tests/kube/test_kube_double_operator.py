"""The scripted operator: RayClusters and RayJobs through their phases, and what keeps them from going on."""

import time
from pathlib import Path

import pytest
from double import Operator, happenings
from double.bodies import config_map, pod, ray_cluster, ray_job
from double.entrypoint import submitted
from double.volumes import Volumes

JOB = "llm-1"


@pytest.fixture
def operator(kube_api):
    return Operator(kube_api)


def status(api, name=JOB):
    return api.objects.get("rayjobs", name)["status"]


def reasons(api):
    return [event["reason"] for event in api.objects.all("events")]


def messages(api):
    return [event["message"] for event in api.objects.all("events")]


def test_a_cluster_gets_a_service_pods_and_a_status(kube_api, operator):
    kube_api.objects.put(ray_cluster(workers=2))
    operator.settle()
    pods = operator.clusters.pods(kube_api.objects.get("rayclusters", "llm"))
    assert [each["metadata"]["labels"]["ray.io/node-type"] for each in pods] == ["head", "worker", "worker"]
    assert kube_api.objects.names("services") == ["llm-head-svc"]
    status = kube_api.objects.get("rayclusters", "llm")["status"]
    assert status["state"] == "ready"
    assert status["head"]["podName"] == pods[0]["metadata"]["name"]
    assert (status["availableWorkerReplicas"], status["desiredGPU"], status["desiredCPU"]) == (2, "16", "12")
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions["HeadPodReady"] == conditions["RayClusterProvisioned"] == "True"


def test_a_job_runs_through_its_phases(kube_api, operator):
    kube_api.objects.put(ray_job(JOB))
    seen = []
    for _ in range(6):
        before = kube_api.store.version
        operator.reconcile(kube_api.objects.get("rayjobs", JOB))
        for cluster in kube_api.objects.all("rayclusters"):
            operator.clusters.reconcile(cluster)
        seen.append(status(kube_api)["jobDeploymentStatus"])
        if kube_api.store.version == before:
            break
    assert list(dict.fromkeys(seen)) == ["Initializing", "Running"]
    assert status(kube_api)["jobStatus"] == "RUNNING"
    assert status(kube_api)["dashboardURL"].endswith("-head-svc.training.svc.cluster.local:8265")
    [submitter] = operator.submitters(JOB)
    operator.entry(JOB).say("step 1/2", "step 2/2")
    operator.entry(JOB).finish()
    operator.settle()
    assert (status(kube_api)["jobStatus"], status(kube_api)["jobDeploymentStatus"]) == ("SUCCEEDED", "Complete")
    log = kube_api.logs[f"training/{submitter['metadata']['name']}"]
    assert [text for _, text in log.lines(0)] == ["step 1/2", "step 2/2"]
    assert log.ended


def test_a_failed_entrypoint_fails_the_job(kube_api, operator):
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    operator.entry(JOB).finish("FAILED")
    operator.settle()
    found = status(kube_api)
    assert (found["jobDeploymentStatus"], found["reason"], found["failed"]) == ("Failed", "AppFailed", 1)
    assert "exit code 1" in found["message"]


def test_a_job_is_tried_again_with_another_cluster(kube_api, operator):
    kube_api.objects.put(ray_job(JOB, spec={"backoffLimit": 1}))
    operator.settle()
    first = status(kube_api)["rayClusterName"]
    operator.entry(JOB).finish("FAILED")
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "Running"
    assert status(kube_api)["rayClusterName"] != first
    assert kube_api.objects.names("rayclusters") == [status(kube_api)["rayClusterName"]]


def test_what_validation_finds_is_in_the_status_of_a_job(kube_api, operator):
    operator.invalid[JOB] = "a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended"
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "ValidationFailed"
    assert "not allowed to be suspended" in status(kube_api)["message"]
    assert reasons(kube_api) == ["InvalidRayJobSpec"]


def test_of_a_cluster_only_an_event_tells(kube_api, operator):
    operator.clusters.invalid["llm"] = "headGroupSpec should have at least one container"
    kube_api.objects.put(ray_cluster())
    operator.settle()
    assert "status" not in kube_api.objects.get("rayclusters", "llm")
    assert reasons(kube_api) == ["InvalidRayClusterSpec"]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (happenings.insufficient(), "3 Insufficient nvidia.com/gpu"),
        (happenings.untolerated("nvidia.com/gpu: true"), "untolerated taint(s) {nvidia.com/gpu: true}"),
        (happenings.unbound(), "unbound immediate PersistentVolumeClaims"),
        (happenings.karpenter_incompatible("a100"), 'incompatible with nodepool "a100"'),
    ],
)
def test_pods_that_find_no_node_keep_a_job_from_starting(kube_api, operator, message, says):
    operator.clusters.blocked["a100"] = message
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "Initializing"
    pending = [each for each in kube_api.objects.all("pods") if each["status"]["phase"] == "Pending"]
    assert len(pending) == 2
    assert all(says in each["status"]["conditions"][0]["message"] for each in pending)
    assert sum(says in message for message in messages(kube_api)) == 2
    operator.clusters.blocked.clear()
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "Running"


def test_a_quota_that_is_used_up_is_a_condition_of_the_cluster(kube_api, operator):
    operator.clusters.refused["a100"] = happenings.over_quota("llm-a100-worker-x")
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    [cluster] = kube_api.objects.all("rayclusters")
    failure = {each["type"]: each for each in cluster["status"]["conditions"]}["ReplicaFailure"]
    assert failure["reason"] == "FailedCreateWorkerPod"
    assert "exceeded quota" in failure["message"]
    assert "FailedToCreateWorkerPod" in reasons(kube_api)


def test_a_queue_without_quota_keeps_a_job_suspended(kube_api, operator):
    operator.kueue.full = happenings.kueue_no_quota()
    labels = {"kueue.x-k8s.io/queue-name": "ml"}
    kube_api.objects.put(ray_job(JOB, labels=labels, spec={"shutdownAfterJobFinishes": True}))
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "Suspended"
    [workload] = kube_api.objects.all("workloads")
    assert "insufficient unused quota" in workload["status"]["conditions"][0]["message"]
    operator.kueue.full = None
    operator.settle()
    assert status(kube_api)["jobDeploymentStatus"] == "Running"


def test_an_image_that_is_not_there(kube_api, operator):
    made = kube_api.objects.put(pod("worker"))
    operator.kubelet.waiting(made, "ImagePullBackOff", happenings.image_not_found("registry.example/ray:2.60.0"))
    state = kube_api.objects.get("pods", "worker")["status"]["containerStatuses"][0]["state"]
    assert state["waiting"]["reason"] == "ImagePullBackOff"
    assert sorted(reasons(kube_api)) == ["BackOff", "Failed", "Failed", "Failed", "Pulling", "Scheduled"]


def test_a_lost_worker_is_made_anew(kube_api, operator):
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    [cluster] = kube_api.objects.all("rayclusters")
    lost = operator.clusters.pods(cluster)[-1]
    operator.lose(lost)
    operator.settle()
    names = [each["metadata"]["name"] for each in operator.clusters.pods(cluster)]
    assert len(names) == 3
    assert lost["metadata"]["name"] not in names


def test_a_lost_cluster_fails_the_submitter(kube_api, operator):
    kube_api.objects.put(ray_job(JOB, spec={"shutdownAfterJobFinishes": True}))
    operator.settle()
    operator.lose_cluster(JOB)
    operator.settle()
    assert (status(kube_api)["jobDeploymentStatus"], status(kube_api)["reason"]) == ("Failed", "SubmissionFailed")
    assert kube_api.objects.names("rayclusters") == []


def test_a_job_is_lost_with_its_head(kube_api, operator):
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    head = next(each for each in kube_api.objects.all("pods") if "-head-" in each["metadata"]["name"])
    kube_api.objects.delete(head)
    operator.settle()
    assert (status(kube_api)["jobDeploymentStatus"], status(kube_api)["reason"]) == ("Failed", "SubmissionFailed")


def test_a_deleted_job_takes_everything_with_it_and_stops_first(kube_api, operator):
    kube_api.objects.put(ray_job(JOB))
    operator.settle()
    entry = operator.entry(JOB)
    kube_api.objects.delete(kube_api.objects.get("rayjobs", JOB))
    assert kube_api.objects.get("rayjobs", JOB)["metadata"]["deletionTimestamp"], "the operator's finalizer holds it"
    operator.settle()
    assert entry.state().status == "STOPPED"
    for resource in ("rayjobs", "rayclusters", "pods", "services", "jobs.batch"):
        assert kube_api.objects.names(resource) == [], resource


def test_it_works_by_itself(kube_api, operator):
    with operator:
        kube_api.objects.put(ray_job(JOB))
        until = time.monotonic() + 600
        while status_or_none(kube_api) != "Running":
            assert time.monotonic() < until
            time.sleep(0.02)
    operator.settle()
    assert status(kube_api)["jobStatus"] == "RUNNING"


def status_or_none(api):
    return (api.objects.get("rayjobs", JOB).get("status") or {}).get("jobDeploymentStatus")


def test_what_is_submitted_has_gone_through_the_shell(kube_api, operator):
    spec = {"runtimeEnvYAML": "env_vars: {A: 'b c'}", "metadata": {"run": "llm"}, "jobId": "llm-1"}
    entrypoint = "bash -c 'python train.py \"a b\" $$HOME'"
    kube_api.objects.put(ray_job(JOB, entrypoint=entrypoint, spec=spec))
    operator.settle()
    assert submitted(kube_api.objects.get("rayjobs", JOB)) == {
        "entrypoint": entrypoint.replace("$$", "$"),
        "runtime_env": {"env_vars": {"A": "b c"}},
        "metadata": {"run": "llm"},
        "submission_id": "llm-1",
    }


def test_init_containers_of_the_submitter_are_run(kube_api, operator, tmp_path):
    kube_api.objects.put(config_map("code", **{"train.py": "print('step 1/1')"}))
    copy = "import shutil; shutil.copy('/double/packed/train.py', '/double/unpacked/train.py')"
    packed, unpacked = (
        {"name": name, "mountPath": f"/double/{path}"} for name, path in (("code", "packed"), ("empty", "unpacked"))
    )
    init = {"name": "unpack", "command": ["python", "-c", copy], "volumeMounts": [packed, unpacked]}
    pod = {
        "initContainers": [init],
        "containers": [{"name": "ray-job-submitter", "image": "x", "volumeMounts": [unpacked]}],
        "volumes": [{"name": "code", "configMap": {"name": "code"}}, {"name": "empty", "emptyDir": {}}],
        "restartPolicy": "Never",
    }
    job = kube_api.objects.put(ray_job(JOB, spec={"submitterPodTemplate": {"spec": pod}}))
    placed = Volumes(kube_api, tmp_path)(job, {"working_dir": "/double/unpacked"})
    assert placed["working_dir"].startswith(str(tmp_path))
    assert [file.name for file in Path(placed["working_dir"]).iterdir()] == ["train.py"]
