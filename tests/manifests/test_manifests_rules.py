"""Each rule of the operator: an object that is fine, one change, and the rule that finds it."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.manifests.rules import Operator, breaches
from raytrain_eks.manifests.rules.cron import schedule_error


def template(name):
    return {"spec": {"containers": [{"name": name, "image": "r/i:1", "env": [], "volumeMounts": []}], "volumes": []}}


def group(name, **fields):
    sizes = {"replicas": 1, "minReplicas": 0, "maxReplicas": 2}
    return {"groupName": name, **sizes, "rayStartParams": {}, "template": template("ray-worker")} | fields


CLUSTER = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCluster",
    "metadata": {"name": "c", "annotations": {}, "labels": {}},
    "spec": {
        "rayVersion": "2.60.0",
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {"version": "v2", "idleTimeoutSeconds": 60},
        "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": template("ray-head")},
        "workerGroupSpecs": [group("a"), group("b")],
    },
}
JOB = {
    "apiVersion": "ray.io/v1",
    "kind": "RayJob",
    "metadata": {"name": "j"},
    "spec": {"entrypoint": "true", "shutdownAfterJobFinishes": True, "rayClusterSpec": CLUSTER["spec"]},
}
CRON = {
    "apiVersion": "ray.io/v1",
    "kind": "RayCronJob",
    "metadata": {"name": "n"},
    "spec": {"schedule": "0 3 * * *", "timeZone": "Europe/Madrid", "jobTemplate": JOB["spec"]},
}
ALL_GATES = dict.fromkeys(
    ["RayCronJob", "RayClusterNetworkPolicy", "GCSFaultToleranceEmbeddedStorage", "RayClusterMTLS"], True
) | {"RayClusterHistoryServer": True}
MISSING = object()
HEAD = "headGroupSpec.template.spec"
ENV = f"{HEAD}.containers.0.env"
ROCKS = {"gcsFaultToleranceOptions": {"backend": "rocksdb"}}
COLLECTOR = {"image": "c", "env": [{"name": "STORAGE_BACKEND", "value": "S3"}, {"name": "S3_REGION", "value": "x"}]}
HISTORY = {"historyServerOptions": {"collectorOptions": COLLECTOR}}
V1 = {"rayClusterSpec.autoscalerOptions.version": "v1"}
V2 = {"name": "RAY_enable_autoscaler_v2", "value": "1"}


def variable(name, value="x"):
    return {ENV: [{"name": name, "value": value}]}


def rule(condition, policy="DeleteCluster", ttl=0, key="jobStatus"):
    return {"policy": policy, "condition": {key: condition, "ttlSeconds": ttl}}


def rules(*entries):
    return {"shutdownAfterJobFinishes": False, "deletionStrategy": {"deletionRules": list(entries)}}


def legacy(success, failure):
    return {"deletionStrategy": {"onSuccess": {"policy": success}, "onFailure": {"policy": failure}}}


SELECT = {"rayClusterSpec": MISSING, "clusterSelector": {"ray.io/cluster": "c"}, "shutdownAfterJobFinishes": False}

CLUSTER_CASES = [
    ({"workerGroupSpecs.1.groupName": "a"}, "W1"),
    ({"^metadata.name": "x" * 54}, "M1"),
    ({"^metadata.name": "1a"}, "M2"),
    ({"upgradeStrategy": {"type": "Rolling"}}, "U1"),
    ({"upgradeStrategy": {"type": "None"}, "^metadata.labels": {"ray.io/originated-from-crd": "RayJob"}}, "U2"),
    ({f"{HEAD}.containers": []}, "C1"),
    ({"headGroupSpec.resources": {"CPU": "1"}}, "C2"),
    ({"workerGroupSpecs.0.rayStartParams": {"memory": "1"}, "workerGroupSpecs.0.resources": {"CPU": "1"}}, "C2"),
    ({"headGroupSpec.rayStartParams.labels": "a=b"}, "C3"),
    ({"workerGroupSpecs.0.labels": {"a b": "c"}}, "C3"),
    ({"workerGroupSpecs.0.labels": {"a": "c d"}}, "C3"),
    ({"workerGroupSpecs.0.template.spec.containers": []}, "C4"),
    ({"enableInTreeAutoscaling": False, "workerGroupSpecs.0.minReplicas": MISSING}, "C4"),
    ({"workerGroupSpecs.0.minReplicas": -1}, "C4"),
    ({"workerGroupSpecs.0.maxReplicas": -1}, "C4"),
    ({"workerGroupSpecs.0.minReplicas": 3}, "C4"),
    ({"workerGroupSpecs.0.idleTimeoutSeconds": -1}, "C5"),
    ({"workerGroupSpecs.0.idleTimeoutSeconds": 1, "autoscalerOptions.version": "v1"}, "C5"),
    ({"workerGroupSpecs.0.priority": 1, "rayVersion": "2.55.0"}, "C6"),
    ({"workerGroupSpecs.0.priority": 1, "rayVersion": MISSING}, "C6"),
    ({"workerGroupSpecs.0.priority": 1, "rayVersion": "nightly"}, "C6"),
    ({"workerGroupSpecs.0.priority": 1, "autoscalerOptions.version": "v1"}, "C6"),
    ({"^metadata.annotations": {"ray.io/ft-enabled": "false"}, "gcsFaultToleranceOptions": {}}, "C7"),
    (variable("RAY_REDIS_ADDRESS"), "C8"),
    (variable("RAY_REDIS_ADDRESS") | {"gcsFaultToleranceOptions": {}}, "C9"),
    (variable("REDIS_PASSWORD") | {"gcsFaultToleranceOptions": {}}, "C9"),
    ({"headGroupSpec.rayStartParams.redis-password": "x", "gcsFaultToleranceOptions": {}}, "C9"),
    ({"^metadata.annotations": {"ray.io/external-storage-namespace": "x"}, "gcsFaultToleranceOptions": {}}, "C9"),
    (ROCKS | {"@": {"GCSFaultToleranceEmbeddedStorage": False}}, "C10"),
    ({"gcsFaultToleranceOptions": {"backend": "rocksdb", "redisAddress": "x"}}, "C10"),
    ({"gcsFaultToleranceOptions": {"backend": "rocksdb", "storage": {"claimName": "a", "size": "1Gi"}}}, "C10"),
    ({"gcsFaultToleranceOptions": {"storage": {"size": "1Gi"}}}, "C10"),
    (ROCKS | variable("RAY_gcs_storage"), "C10"),
    (ROCKS | {f"{HEAD}.containers.0.volumeMounts": [{"name": "x", "mountPath": "/data/gcs"}]}, "C10"),
    (ROCKS | {f"{HEAD}.volumes": [{"name": "gcs-storage"}]}, "C10"),
    (variable("REDIS_USERNAME"), "C11"),
    ({"headGroupSpec.rayStartParams.redis-username": "x"}, "C11"),
    ({"workerGroupSpecs.0.suspend": True}, "C12"),
    (
        {"workerGroupSpecs.0.suspend": True, "enableInTreeAutoscaling": False, "@": {"RayJobDeletionPolicy": False}},
        "C12",
    ),
    ({ENV: [V2], "enableInTreeAutoscaling": False}, "C13"),
    ({ENV: [V2]}, "C14"),
    ({f"{HEAD}.restartPolicy": "Always"}, "C15"),
    ({"workerGroupSpecs.1.template.spec.restartPolicy": "OnFailure"}, "C15"),
    ({"autoscalerOptions.idleTimeoutSeconds": -1}, "C16"),
    ({"autoscalerOptions.env": [{"name": "KUBERAY_GEN_AUTOSCALER_START_CMD", "value": "x"}]}, "C17"),
    (HISTORY | {"@": {"RayClusterHistoryServer": False}}, "C18"),
    ({"historyServerOptions": {}}, "C18"),
    ({"historyServerOptions": {"collectorOptions": {"env": COLLECTOR["env"]}}}, "C18"),
    ({"historyServerOptions": {"collectorOptions": {"image": "c"}}}, "C18"),
    ({"historyServerOptions": {"collectorOptions": {"image": "c", "env": COLLECTOR["env"][:1]}}}, "C18"),
    (
        {"historyServerOptions": {"collectorOptions": {"image": "c", "env": [{"name": "POD_IP"}, *COLLECTOR["env"]]}}},
        "C18",
    ),
    (HISTORY | {"workerGroupSpecs.0.template.spec.containers.0.name": "ray-history-collector"}, "C18"),
    ({"authOptions": {"mode": "token"}, "rayVersion": "2.51.9"}, "C19"),
    ({"authOptions": {"mode": "token"}, "rayVersion": MISSING}, "C19"),
    ({"authOptions": {"enableK8sTokenAuth": True}}, "C19"),
    ({"authOptions": {"mode": "token", "enableK8sTokenAuth": True}, "rayVersion": "2.54.0"}, "C19"),
    ({"authOptions": {"mode": "token", "enableK8sTokenAuth": True, "secretName": "x"}}, "C19"),
    ({"networkPolicy": {}, "@": {"RayClusterNetworkPolicy": False}}, "C20"),
    ({"networkPolicy": {"mode": "DenyAllEgress", "head": {"ingressRules": [{}]}}}, "C20"),
    ({"networkPolicy": {"mode": "DenyAllIngress", "workerGroups": [{"groupName": "a", "egressRules": [{}]}]}}, "C20"),
    ({"networkPolicy": {"workerGroups": [{"groupName": "z"}]}}, "C20"),
    ({"networkPolicy": {}, "workerGroupSpecs.0.groupName": "A"}, "C20"),
    ({"tlsOptions": {}, "@": {"RayClusterMTLS": False}}, "C21"),
    ({"tlsOptions": {"enabled": True}} | variable("RAY_USE_TLS"), "C21"),
    ({"tlsOptions": {"enabled": True}, "autoscalerOptions.env": [{"name": "RAY_TLS_CA_CERT"}]}, "C21"),
    ({"tlsOptions": {"enabled": True}, f"{HEAD}.containers.0.volumeMounts": [{"mountPath": "/etc/ray/tls"}]}, "C21"),
    ({"authOptions": {"mode": "token"}, "!": "1.5.0"}, "V1"),
    ({"workerGroupSpecs.0.priority": 1, "!": "1.6.2"}, "V1"),
]
JOB_CASES = [
    ({"^metadata.name": "x" * 48}, "M1"),
    ({"submissionMode": "K8SJobMode"}, "J0"),
    ({"suspend": True, "shutdownAfterJobFinishes": False}, "J1"),
    ({"ttlSecondsAfterFinished": -1}, "J2"),
    ({"ttlSecondsAfterFinished": 1, "shutdownAfterJobFinishes": False}, "J3"),
    (rules(rule("FAILED")) | {"@": {"RayJobDeletionPolicy": False}}, "J4"),
    (rules(rule("FAILED")) | {"shutdownAfterJobFinishes": True}, "J4"),
    ({"deletionStrategy": {}}, "J4"),
    ({"deletionStrategy": {"onSuccess": {"policy": "DeleteSelf"}}}, "J4"),
    (legacy("DeleteNone", "DeleteSelf"), "J4"),
    (legacy("DeleteWorkers", "DeleteSelf"), "J4"),
    (legacy("DeleteSelf", "DeleteCluster") | SELECT, "J4"),
    (rules(rule("FAILED", "DeleteWorkers")), "J4"),
    (rules(rule("FAILED"), rule("FAILED")), "J4"),
    (rules(rule("FAILED", ttl=-1)), "J4"),
    (rules(rule("FAILED", "DeleteCluster", 60), rule("FAILED", "DeleteSelf", 30)), "J4"),
    (rules({"policy": "DeleteSelf", "condition": {}}), "J4"),
    (rules(rule("FAILED")) | SELECT, "J4"),
    (SELECT | {"suspend": True, "shutdownAfterJobFinishes": True}, "J5"),
    ({"rayClusterSpec": MISSING}, "J6"),
    (SELECT | {"clusterSelector": {"other": "c"}}, "J7"),
    (SELECT | {"submissionMode": "SidecarMode"}, "J7"),
    (SELECT | {"backoffLimit": 1}, "J7"),
    ({"submissionMode": "InteractiveMode", "backoffLimit": 1}, "J8"),
    ({"submissionMode": "SidecarMode", "submitterPodTemplate": {"spec": {}}}, "J9"),
    ({"submissionMode": "SidecarMode", "submitterConfig": {}}, "J9"),
    ({"submissionMode": "SidecarMode", f"rayClusterSpec.{HEAD}.restartPolicy": "Always"} | V1, "J9"),
    ({"rayClusterSpec.authOptions": {"mode": "token", "enableK8sTokenAuth": True}}, "J10"),
    ({"rayClusterSpec.workerGroupSpecs.0.minReplicas": 3}, "C4"),
    ({"rayClusterSpec.upgradeStrategy": {"type": "None"}}, "U2"),
    ({"runtimeEnvYAML": "a: [1"}, "J12"),
    ({"runtimeEnvYAML": "just text"}, "J12"),
    ({"activeDeadlineSeconds": 0}, "J13"),
    ({"preRunningDeadlineSeconds": -1}, "J14"),
    ({"backoffLimit": -1}, "J15"),
    ({"preRunningDeadlineSeconds": 5, "!": "1.5.1"}, "V1"),
]
CRON_CASES = [
    ({"^metadata.name": "x" * 37}, "M1"),
    ({"@": {"RayCronJob": False}}, "K1"),
    ({"schedule": "CRON_TZ=UTC 0 3 * * *"}, "K2"),
    ({"schedule": "0 3 * *"}, "K3"),
    ({"timeZone": ""}, "K4"),
    ({"timeZone": "Europe/Atlantis"}, "K4"),
    ({"jobTemplate.backoffLimit": -1}, "J15"),
    ({"!": "1.5.1"}, "V1"),
]


def changed(body, changes):
    """A copy with values put at dotted paths: of the spec, or of the object after a `^`."""
    body, gates, version = copy.deepcopy(body), ALL_GATES, "1.7.0"
    for path, value in changes.items():
        if path == "@":
            gates = gates | value
        elif path == "!":
            version = value
        else:
            steps = path.removeprefix("^").split(".") if path.startswith("^") else ["spec", *path.split(".")]
            place = body
            for step in steps[:-1]:
                place = place[int(step)] if isinstance(place, list) else place[step]
            if value is MISSING:
                del place[steps[-1]]
            elif isinstance(place, list):
                place[int(steps[-1])] = value
            else:
                place[steps[-1]] = copy.deepcopy(value)
    return body, Operator(version=version, gates=gates)


@pytest.mark.parametrize("body", [CLUSTER, JOB, CRON], ids=lambda body: body["kind"])
def test_a_sound_object_breaks_nothing(body):
    assert breaches(body, Operator(gates=ALL_GATES)) == []


CASES = [
    (body, *case) for body, cases in ((CLUSTER, CLUSTER_CASES), (JOB, JOB_CASES), (CRON, CRON_CASES)) for case in cases
]


@pytest.mark.parametrize(("body", "changes", "expected"), CASES)
def test_a_rule_finds_its_breach_and_nothing_else(body, changes, expected):
    found = breaches(*changed(body, changes))
    assert {breach.rule for breach in found} == {expected}
    assert all(breach.message and breach.at for breach in found)


SOUND = [
    (CLUSTER, {"replicas": 99}),
    (CLUSTER, {"workerGroupSpecs.0.idleTimeoutSeconds": 1}),
    (CLUSTER, {"autoscalerOptions.version": MISSING, ENV: [V2], "workerGroupSpecs.0.idleTimeoutSeconds": 1}),
    (CLUSTER, ROCKS),
    (CLUSTER, HISTORY),
    (CLUSTER, {"networkPolicy": {"mode": "DenyAllIngress", "head": {"ingressRules": [{}]}}}),
    (CLUSTER, {"tlsOptions": {"enabled": False}} | variable("RAY_USE_TLS")),
    (CLUSTER, {"authOptions": {"mode": "token"}, "rayVersion": "2.52.0"}),
    (CLUSTER, {"^metadata.annotations": {"ray.io/ft-enabled": "true"}} | variable("RAY_REDIS_ADDRESS")),
    (
        JOB,
        rules(
            rule("FAILED", "DeleteCluster", 30),
            rule("FAILED", "DeleteSelf", 30),
            rule("Failed", key="jobDeploymentStatus"),
        ),
    ),
    (JOB, SELECT),
    (JOB, SELECT | rules(rule("FAILED", "DeleteSelf"))),
    (JOB, {"submissionMode": "SidecarMode"}),
    (JOB, {"runtimeEnvYAML": "env_vars: {A: b}"}),
    (CRON, {"schedule": "@every 1h30m"}),
]


@pytest.mark.parametrize(("body", "changes"), SOUND)
def test_what_the_operator_takes_is_not_flagged(body, changes):
    assert breaches(*changed(body, changes)) == []


@pytest.mark.parametrize(
    "schedule",
    [
        "* * * * *",
        "*/15 0-6,22 1 jan-mar MON-FRI",
        "0 0 ? * 0",
        "5/10 * * * *",
        "@daily",
        "@every 90s",
        "59 23 31 12 6",
    ],
)
def test_a_schedule_that_the_operator_takes(schedule):
    assert schedule_error(schedule) is None


@pytest.mark.parametrize(
    "schedule",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 7", "*/0 * * * *",
     "5-1 * * * *", "a * * * *", "* * * foo *", "@fortnightly", "@every x", "-1 * * * *", "1,,2 * * * *"],
)  # fmt: skip
def test_a_schedule_that_it_refuses(schedule):
    assert schedule_error(schedule)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["spec", "template", "containers", "env", "name", "rayStartParams"]), inner)
    ),
    max_leaves=6,
)


@given(st.sampled_from([CLUSTER, JOB, CRON]), st.data())
def test_no_shape_of_anybodys_yaml_makes_the_rules_fail(body, data):
    keys = list(body["spec"]) + ["deletionStrategy", "clusterSelector", "gcsFaultToleranceOptions", "networkPolicy"]
    keys += ["historyServerOptions", "tlsOptions", "authOptions"]
    spoilt = body | {"spec": body["spec"] | {data.draw(st.sampled_from(keys)): data.draw(junk)}}
    breaches(spoilt, Operator(version=data.draw(st.sampled_from(["1.5.0", "1.7.0"])), gates=ALL_GATES))
    breaches({"apiVersion": "ray.io/v1", "kind": body["kind"], "metadata": data.draw(junk), "spec": data.draw(junk)})
