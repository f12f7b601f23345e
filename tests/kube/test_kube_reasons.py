"""Reason codes as sentences: the table is sound, and the usual messages of the field are understood."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.kube import reasons
from raytrain_eks.kube.reasons import explain

TAINT = (
    "0/6 nodes are available: 2 node(s) had untolerated taint {nvidia.com/gpu: true}, 4 Insufficient nvidia.com/gpu, "
    "1 Insufficient cpu. preemption: 0/6 nodes are available: 2 Preemption is not helpful for scheduling."
)
QUOTA = (
    'pods "llm-worker" is forbidden: exceeded quota: llm, requested: requests.nvidia.com/gpu=8, '
    "used: requests.nvidia.com/gpu=16, limited: requests.nvidia.com/gpu=16"
)
KARPENTER = (
    'Failed to schedule pod, incompatible with nodepool "llm--a100", daemonset overhead={"cpu":"150m","pods":"4"}, '
)


@pytest.mark.parametrize(
    ("reason", "message", "kind", "says", "fix", "severity"),
    [
        (
            "FailedScheduling",
            TAINT,
            "Pod",
            "no node of 6 takes it: 2 have the taint nvidia.com/gpu: true",
            "toler",
            "wait",
        ),
        ("Unschedulable", TAINT, "Pod", "4 have too little nvidia.com/gpu free; 1 have too little cpu", "wait", "wait"),
        (
            "FailedScheduling",
            "0/1 nodes are available: 1 node(s) had untolerated taint(s).",
            "Pod",
            "(not named)",
            "",
            "wait",
        ),
        (
            "FailedScheduling",
            "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
            "Pod",
            "a PersistentVolumeClaim is not bound",
            "FSx",
            "wait",
        ),
        (
            "FailedScheduling",
            "0/3 nodes are available: 3 node(s) had volume node affinity conflict.",
            "Pod",
            "3 are in another zone than the volume",
            "zone",
            "error",
        ),
        (
            "FailedScheduling",
            "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.",
            "Pod",
            "3 are not of the group",
            "NodePool",
            "wait",
        ),
        (
            "FailedScheduling",
            KARPENTER + "did not tolerate taint (taint=nvidia.com/gpu=true:NoSchedule)",
            "Pod",
            "does not tolerate the taint nvidia.com/gpu=true:NoSchedule of NodePool llm--a100",
            "toleration",
            "error",
        ),
        (
            "FailedScheduling",
            KARPENTER + 'no instance type satisfied resources {"cpu":"200"} and requirements x',
            "Pod",
            "no instance type of the NodePools is large enough",
            "catalog",
            "error",
        ),
        (
            "FailedScheduling",
            'all available instance types exceed limits for nodepool: "llm--a100"',
            "Pod",
            "NodePool llm--a100 is at its limits",
            "nodes.max",
            "wait",
        ),
        (
            "FailedToCreateWorkerPod",
            f"Failed to create worker Pod for the RayCluster training/llm, {QUOTA}",
            "RayCluster",
            "ResourceQuota llm is used up: requests.nvidia.com/gpu=8 was asked for",
            "describe resourcequota llm",
            "wait",
        ),
        (
            "FailedCreate",
            'pods "x" is forbidden: failed quota: llm: must specify cpu for: init',
            "Job",
            "ResourceQuota llm refuses pods without cpu",
            "LimitRange",
            "error",
        ),
        (
            "InvalidRayClusterSpec",
            "The RayCluster spec is invalid training/llm: rayStartParams",
            "RayCluster",
            "KubeRay refuses the RayCluster",
            "lint",
            "error",
        ),
        (
            "ValidationFailed",
            "The RayJob spec is invalid: x",
            "RayJob",
            "KubeRay refuses the RayJob: The RayJob",
            "lint",
            "error",
        ),
        ("AppFailed", "exit code 1", "RayJob", "the program itself failed: exit code 1", "logs", "error"),
        ("DeadlineExceeded", "", "RayJob", "longer than activeDeadlineSeconds", "resume", "error"),
        (
            "ErrImagePull",
            'failed to resolve reference "x": not found',
            "Pod",
            "the image does not exist",
            "push",
            "error",
        ),
        ("ImagePullBackOff", "pull access denied", "Pod", "may not pull the image", "AmazonEC2Container", "error"),
        (
            "CrashLoopBackOff",
            "back-off 5m0s restarting failed container",
            "Pod",
            "ends again and again",
            "--previous",
            "error",
        ),
        ("OOMKilled", "", "Pod", "more memory than its limit", "memory", "error"),
        (
            "CreateContainerConfigError",
            'secret "hf-token" not found',
            "Pod",
            "the secret hf-token",
            "create it",
            "error",
        ),
        (
            "FailedMount",
            "MountVolume.SetUp failed: driver name fsx.csi.aws.com not found in the list",
            "Pod",
            "the storage driver is not on the node",
            "add-on",
            "error",
        ),
        (
            "FailedMount",
            "Unable to attach or mount volumes: timed out waiting for the condition",
            "Pod",
            "does not answer the node",
            "988",
            "wait",
        ),
        (
            "InsufficientCapacityError",
            "all requested instance types were unavailable",
            "NodeClaim",
            "AWS has no such instance free now",
            "capacity",
            "wait",
        ),
        ("VCPULimitExceeded", "", "NodeClaim", "vCPU quota", "Service Quotas", "error"),
        (
            "WaitingForQuota",
            "couldn't assign flavors to pod set head",
            "Workload",
            "Kueue holds it until there is quota",
            "workloads",
            "wait",
        ),
        ("ExceedsMaxQuota", "x", "Workload", "more than its ClusterQueue can ever give", "nominalQuota", "error"),
        (
            "Unschedulable",
            "3/4 tasks in gang unschedulable: pod group is not ready",
            "PodGroup",
            "all pods or none: for 3 of 4",
            "Inqueue",
            "wait",
        ),
        ("Inqueue", "", "PodGroup", "Volcano has let it in", "", "wait"),
        ("karpenter.sh/termination", "", "NodePool", "Karpenter still ends nodes", "nodeclaims", "wait"),
        (
            "FailedCreate",
            'Internal error occurred: failed calling webhook "mraycluster.kb.io": connection refused',
            "Job",
            "the webhook mraycluster.kb.io does not answer",
            "operator",
            "wait",
        ),
    ],
)
def test_what_the_field_says_is_understood(reason, message, kind, says, fix, severity):
    found = explain(reason, message, kind)
    assert found.known
    assert says in found.text
    assert fix in found.fix
    assert found.severity == severity
    assert found.source
    assert "{" not in found.text.replace("{nvidia", "")


def test_an_unknown_reason_gives_the_message():
    found = explain("Strange", "something\n  happened", "Pod")
    assert (found.text, found.known, found.fix) == ("Strange: something happened", False, "")
    assert explain("Strange").text == "Strange"


@given(
    reason=st.sampled_from([*reasons.codes(), "Other"]),
    message=st.text(max_size=80),
    kind=st.sampled_from([None, "Pod", "RayJob", "Workload"]),
)
def test_no_message_can_break_it(reason, message, kind):
    found = explain(reason, message, kind)
    assert found.text or not message.strip()
    assert "\n" not in found.text


def test_long_messages_are_cut():
    assert len(explain("FailedMount", "x " * 5000, "Pod").text) < 400


@pytest.mark.parametrize("row", reasons.rows(), ids=lambda row: row.codes[0])
def test_every_row_is_sound(row):
    assert row.severity in ("error", "wait", "info")
    assert row.says[0].islower() or row.says[0] in "{AKV" or row.says.startswith("Ray")
    assert not row.says.endswith(".")
    assert row.source
    assert row.fix or row.severity in ("info", "wait")
    groups = set(row.pattern.groupindex) if row.pattern else set()
    fields = {name for text in (row.says, row.fix) for _, name, _, _ in string.Formatter().parse(text) if name}
    assert fields <= groups | ({"message", "kind"} if not row.part else set())
    assert not row.part or "count" in groups
    assert "*" not in row.codes or row.pattern


def test_no_row_hides_a_later_one():
    """A row without a pattern answers for its code and kinds; behind it nothing of the same can be reached."""
    for number, row in enumerate(reasons.rows()):
        for later in reasons.rows()[number + 1 :]:
            if row.pattern is None and set(later.codes) & set(row.codes):
                assert row.kinds, (row.codes, later.codes)
                assert not set(later.kinds) <= set(row.kinds) or not later.kinds, (row.codes, later.codes)


@pytest.mark.parametrize(
    "code",
    [
        *("SubmissionFailed", "DeadlineExceeded", "PreRunningDeadlineExceeded", "AppFailed", "ValidationFailed"),
        *("JobDeploymentStatusTransitionGracePeriodExceeded", "JobStatusCheckTimeoutExceeded"),
        *("InvalidRayClusterStatus", "InvalidRayClusterSpec", "InvalidRayClusterMetadata"),
        *("InvalidRayJobSpec", "InvalidRayJobMetadata", "InvalidRayJobStatus"),
        *("FailedToCreateHeadPod", "FailedToCreateWorkerPod", "HeadPodNotFound", "RayClusterPodsProvisioning"),
    ],
)
def test_every_reason_of_kuberay_that_tells_trouble_is_in_the_table(code):
    """JobFailedReason, RayCluster's conditions and Warning events of KubeRay 1.7.0."""
    assert reasons.about(code)
    assert explain(code, "why", None).known
