"""When objects are ready, and the sentence while they are not."""

import pytest
from double import bodies

from raytrain_eks.kube import pods, readiness
from raytrain_eks.kube.apply import Result

GENERATION = {"observedGeneration": 1}


def body(api_version, kind, status=None, *, namespace="training", **spec):
    metadata = {"name": "x", "generation": 1} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec, "status": status or {}}


def condition(type, status, reason="", message=""):
    return {"conditions": [{"type": type, "status": status, "reason": reason, "message": message}]}


NODE_CLASS = ("karpenter.k8s.aws/v1", "EC2NodeClass")
CASES = [
    (body("v1", "ServiceAccount"), True, ""),
    (body("v1", "Namespace", {"phase": "Active"}), True, ""),
    (body("v1", "Namespace", {"phase": "Terminating"}), False, "it is Terminating"),
    (body("apps/v1", "DaemonSet", GENERATION | {"desiredNumberScheduled": 0}), True, ""),
    (body("apps/v1", "DaemonSet", GENERATION | {"desiredNumberScheduled": 3, "numberReady": 1}), False, "1 of 3 nodes"),
    (body("apps/v1", "DaemonSet", {}), False, "has not seen it"),
    (body(*NODE_CLASS, {}), False, "Karpenter has not looked at it yet"),
    (body(*NODE_CLASS, condition("Ready", "True")), True, ""),
    (body(*NODE_CLASS, condition("Ready", "False", "SubnetsNotFound")), False, "selects no subnet"),
    (
        body("kueue.x-k8s.io/v1beta2", "ClusterQueue", condition("Active", "False", "FlavorNotFound")),
        False,
        "not active",
    ),
    (body("scheduling.volcano.sh/v1beta1", "Queue", {"state": "Open"}), True, ""),
    (body("scheduling.volcano.sh/v1beta1", "Queue", {"state": "Closed"}), False, "Volcano has it as Closed"),
    (body("v1", "PersistentVolume", {"phase": "Available"}), True, ""),
    (body("v1", "PersistentVolume", {"phase": "Failed", "message": "gone"}), False, "it is Failed: gone"),
    (body("v1", "PersistentVolumeClaim", {"phase": "Bound"}), True, ""),
    (body("fsx.services.k8s.aws/v1alpha1", "FileSystem", condition("ACK.ResourceSynced", "True")), True, ""),
    (
        body("fsx.services.k8s.aws/v1alpha1", "FileSystem", condition("ACK.Terminal", "True", "", "bad subnet")),
        False,
        "AWS refuses it: bad subnet",
    ),
    (body("ray.io/v1", "RayCluster", GENERATION | {"state": "ready"}), True, ""),
    (body("ray.io/v1", "RayCluster", {}), False, "the KubeRay operator has not taken it up yet"),
    (body("ray.io/v1", "RayCluster", GENERATION, suspend=True), False, "is suspended"),
    (body("ray.io/v1", "RayJob", {"jobDeploymentStatus": "Initializing"}), True, ""),
    (
        body("ray.io/v1", "RayJob", {"jobDeploymentStatus": "ValidationFailed", "message": "bad"}),
        False,
        "KubeRay refuses the RayJob: bad",
    ),
]


@pytest.mark.parametrize(("live", "ready", "says"), CASES, ids=[f"{n}-{c[0]['kind']}" for n, c in enumerate(CASES)])
def test_each_kind_has_its_own_way_of_being_ready(api, api_client, live, ready, says):
    found = readiness.state(api_client, live)
    assert found.ready is ready
    assert says in found.text


@pytest.fixture
def api_client(api, tmp_path):
    from raytrain_eks.kube.connect import connect

    with connect(kubeconfig=str(api.kubeconfig(tmp_path))) as client:
        yield client


def claim(**spec):
    metadata = {"name": "data", "namespace": "training"}
    spec |= {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("reason", "message", "ready", "says"),
    [
        ("WaitForFirstConsumer", "waiting for first consumer to be created", True, ""),
        ("ProvisioningFailed", 'storageclass.storage.k8s.io "fast" not found', False, "there is no StorageClass fast"),
        ("ExternalProvisioning", "Waiting for a volume to be created", False, "the volume is being made"),
    ],
)
def test_a_claim_that_is_not_bound_tells_why(api, api_client, reason, message, ready, says):
    made = api.objects.put(claim())
    api.event(made, reason, message)
    found = readiness.state(api_client, made)
    assert (found.ready, says in found.text) == (ready, True)


def ray_cluster():
    spec = {
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "h", "image": "i"}]}}}
    }
    metadata = {"name": "llm", "namespace": "training"}
    return {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}


def pod(name, node_type, **status):
    labels = {"ray.io/cluster": "llm", "ray.io/node-type": node_type}
    metadata = {"name": name, "namespace": "training", "labels": labels}
    containers = [{"name": "c", "image": "i"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": containers},
        "status": status,
    }


def unschedulable(message):
    return {"phase": "Pending"} | condition("PodScheduled", "False", "Unschedulable", message)


def test_a_spec_that_the_operator_refuses_is_hopeless_as_long_as_it_stands(api, api_client):
    made = api.objects.put(ray_cluster())
    api.event(made, "InvalidRayClusterSpec", "headGroupSpec should have at least one container")
    found = readiness.state(api_client, made)
    assert found.hopeless
    assert "headGroupSpec should have at least one container" in found.text
    # The Event is of a former form: it is over once the operator has taken up this one.
    seen = api.objects.set_status(made, {"observedGeneration": 1, "state": "ready"})
    assert readiness.state(api_client, seen).ready


def test_a_change_that_changes_no_status_is_taken_up(api, api_client):
    """KubeRay writes the generation it has seen only together with something else."""
    made = api.objects.put(bodies.ray_cluster(workers=2))
    status = {"observedGeneration": 1, "state": "ready", "desiredWorkerReplicas": 2}
    api.objects.set_status(made, status)
    changed = api.objects.patch(made, {"spec": {"rayVersion": "2.61.0"}})
    assert changed["metadata"]["generation"] == 2
    assert readiness.state(api_client, changed).ready
    group = changed["spec"]["workerGroupSpecs"][0] | {"replicas": 3, "maxReplicas": 3}
    larger = api.objects.patch(changed, {"spec": {"workerGroupSpecs": [group]}})
    assert "has not taken it up yet" in readiness.state(api_client, larger).text


def test_a_cluster_without_its_pods_tells_the_heads_reason_first(api, api_client):
    made = api.objects.set_status(api.objects.put(ray_cluster()), {"observedGeneration": 1})
    assert "its head is not there yet" in readiness.state(api_client, made).text
    api.objects.put(
        pod("a-worker", "worker", **unschedulable("0/1 nodes are available: 1 Insufficient nvidia.com/gpu."))
    )
    head = api.objects.put(pod("head", "head", **unschedulable("0/1 nodes are available: 1 Insufficient cpu.")))
    found = readiness.state(api_client, made)
    assert found.text == "pod head: no node of 1 takes it: 1 have too little cpu free"
    api.event(
        head, "FailedScheduling", 'all available instance types exceed limits for nodepool: "p"', source="karpenter"
    )
    assert "NodePool p is at its limits" in readiness.state(api_client, made).text


def test_a_cluster_that_kueue_holds_tells_why(api, api_client):
    body = ray_cluster()
    body["spec"]["suspend"] = True
    made = api.objects.set_status(api.objects.put(body), {"observedGeneration": 1, "state": "suspended"})
    assert "is suspended" in readiness.state(api_client, made).text
    owner = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "llm", "uid": made["metadata"]["uid"]}
    template = body["spec"]["headGroupSpec"]["template"]
    sets = [{"name": "head", "count": 1, "template": template}]
    metadata = {"name": "raycluster-llm", "namespace": "training", "ownerReferences": [owner]}
    workload = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": metadata}
    held = condition("QuotaReserved", "False", "WaitingForQuota", "insufficient unused quota for nvidia.com/gpu")
    held["conditions"][0]["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    api.objects.put(workload | {"spec": {"queueName": "training", "podSets": sets}, "status": held})
    found = readiness.state(api_client, made)
    assert found.text == "Kueue holds it until there is quota: insufficient unused quota for nvidia.com/gpu"


WAITING = {"phase": "Pending"} | {"conditions": [{"type": "PodScheduled", "status": "True"}]}


def container(**state):
    return {
        "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 1, **state}]
    }


@pytest.mark.parametrize(
    ("status", "event", "says"),
    [
        (
            WAITING | container(state={"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            None,
            "does not exist",
        ),
        (WAITING | container(state={"waiting": {"reason": "ContainerCreating"}}), None, "is being made"),
        (
            WAITING | container(state={"waiting": {"reason": "ContainerCreating"}}),
            ("FailedMount", 'secret "s" not found'),
            "the secret s, which is mounted",
        ),
        (
            WAITING
            | container(
                state={"waiting": {"reason": "CrashLoopBackOff"}},
                lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            ),
            None,
            "more memory",
        ),
        (
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: ephemeral-storage."},
            None,
            "ran out of ephemeral-storage",
        ),
        (container(state={"terminated": {"exitCode": 2, "reason": "Error"}}), None, "ended with exit code 2"),
    ],
)
def test_why_a_pod_does_not_run(status, event, says):
    events = [{"reason": event[0], "message": event[1]}] if event else []
    found = pods.trouble({"kind": "Pod", "status": status}, events)
    assert found is not None
    assert says in found.text


def test_a_pod_that_runs_has_no_trouble():
    assert pods.trouble({"status": {"phase": "Running"} | condition("Ready", "True")}) is None


def result(made):
    metadata = made["metadata"]
    return Result(made["apiVersion"], made["kind"], metadata.get("namespace"), metadata["name"], "created")


def test_waiting_ends_with_what_is_ready_and_tells_each_reason_once(api, api_client, monkeypatch):
    made = api.objects.put(ray_cluster())
    said = []
    rounds = iter([{"observedGeneration": 1}, None, {"observedGeneration": 1, "state": "ready"}])

    def sleep(seconds):
        if (status := next(rounds)) is not None:
            api.objects.set_status(made, status)

    monkeypatch.setattr(readiness.time, "sleep", sleep)
    assert readiness.wait(api_client, [result(made)], 60, said.append) == []
    assert said == [
        "waiting for RayCluster/llm: the KubeRay operator has not taken it up yet; does it run?",
        "waiting for RayCluster/llm: its head is not there yet",
        "RayCluster/llm is ready",
    ]


def test_waiting_ends_at_once_where_it_is_hopeless(api, api_client):
    made = api.objects.put(ray_cluster())
    api.event(made, "InvalidRayClusterMetadata", "name too long")
    left = readiness.wait(api_client, [result(made)], 60)
    assert [(each.key, state.hopeless) for each, state in left] == [("RayCluster/llm", True)]
    gone = Result("ray.io/v1", "RayCluster", "training", "gone", "created")
    assert "somebody deleted it" in readiness.wait(api_client, [gone], 60)[0][1].text


def test_waiting_ends_in_time(api, api_client):
    made = api.objects.put(ray_cluster())
    left = readiness.wait(api_client, [result(made)], 0.1)
    assert "does it run?" in left[0][1].text
    assert not left[0][1].hopeless
