"""The pure API: objects without places, lists, silences, what is declared to exist outside."""

import pytest

from raytrain_eks.lint import Settings, examine, lint, lint_objects, rules
from raytrain_eks.lint.files import documents
from raytrain_eks.lint.finding import minor


def pod(**spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "training"}, "spec": spec}


def container(**fields):
    return {"name": "main", "image": "train:1", **fields}


CLAIMING = pod(containers=[container()], volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])


def test_plain_objects_have_no_lines():
    (finding,) = lint_objects([CLAIMING])
    assert (finding.rule, finding.line, finding.file) == ("RT201", None, "")
    assert finding.path == "spec.volumes.v.persistentVolumeClaim.claimName"
    assert str(finding).startswith("RT201  Pod training/p  spec.volumes.v")


@pytest.mark.parametrize(
    "declared",
    ["pvc/data", "persistentvolumeclaim/data", "persistentvolumeclaim/training/data", "persistentvolumeclaim/*"],
)
def test_what_is_declared_to_exist_outside(declared):
    assert lint([CLAIMING], Settings(external=frozenset({declared}))) == []
    assert lint([CLAIMING], Settings(external=frozenset({"pvc/other"}))) != []


def test_an_unwritten_namespace_meets_any():
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": {}}
    assert lint([CLAIMING, claim]) == []
    elsewhere = {**claim, "metadata": {"name": "data", "namespace": "other"}}
    assert [finding.rule for finding in lint([CLAIMING, elsewhere])] == ["RT201"]


def test_items_of_a_list_are_objects():
    listed = {"apiVersion": "v1", "kind": "List", "items": [CLAIMING]}
    (finding,) = lint([listed])
    assert (finding.object, finding.path) == ("Pod training/p", "spec.volumes.v.persistentVolumeClaim.claimName")


@pytest.mark.parametrize("place", ["object", "template"])
def test_a_silence_with_a_reason_is_counted(place):
    note = {"annotations": {"raytrain-eks/lint-ignore": "RT201=made by the storage team"}}
    template = {"spec": {**CLAIMING["spec"], "restartPolicy": "Never"}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}
    (job["metadata"] if place == "object" else template.setdefault("metadata", {})).update(note)
    report = examine([job])
    assert report.findings == []
    assert report.silenced == {"RT201": 1}


def test_daemon_sets_take_their_share_of_the_node():
    selector = {"node.kubernetes.io/instance-type": "p4d.24xlarge"}
    training = pod(
        containers=[container(resources={"limits": {"cpu": "95", "memory": "1056Gi"}})], nodeSelector=selector
    )
    daemon = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "d"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {
                "metadata": {"labels": {"a": "b"}},
                "spec": {"containers": [container(resources={"requests": {"cpu": "1", "memory": "4Gi"}})]},
            },
        },
    }
    assert lint([training]) == []
    assert {finding.fix for finding in lint([training, daemon])} == {
        "the largest that fits is 94",
        "the largest that fits is 1053Gi",
    }


@pytest.mark.parametrize(
    ("count", "found"), [("8", []), ("16", ["RT101"]), ("9", ["RT101"])], ids=["fits", "two nodes", "one too many"]
)
def test_more_devices_than_any_node_has(count, found):
    wishing = pod(containers=[container(resources={"limits": {"nvidia.com/gpu": count}})], hostIPC=True)
    assert [finding.rule for finding in lint([wishing])] == found


def test_a_pool_by_families_offers_their_types():
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "gpu"},
        "spec": {
            "template": {
                "spec": {
                    "expireAfter": "Never",
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"},
                    "requirements": [
                        {"key": "karpenter.k8s.aws/instance-gpu-name", "operator": "In", "values": ["l40s"]},
                        {"key": "karpenter.k8s.aws/instance-cpu", "operator": "Lt", "values": ["9"]},
                    ],
                }
            },
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "5m"},
        },
    }
    settings = Settings(external=frozenset({"ec2nodeclass/x"}))
    small = pod(containers=[container(resources={"limits": {"nvidia.com/gpu": 1, "memory": "50Gi"}})])
    large = pod(containers=[container(resources={"limits": {"nvidia.com/gpu": 1, "memory": "100Gi"}})])
    assert lint([pool, small], settings) == []
    (finding,) = lint([pool, large], settings)
    assert finding.rule == "RT101"
    assert "g6e.2xlarge" in finding.reason


def test_a_file_that_is_no_yaml_is_a_finding_among_the_others():
    found = lint(documents([("a.yaml", "a: [1\n"), ("b.yaml", "kind: Pod\n")]))
    assert [(finding.rule, finding.file, finding.line) for finding in found] == [("RT011", "a.yaml", 1)]


def test_every_rule_explains_itself():
    for id, rule in rules().items():
        assert rule.id == id
        text = rule.explanation()
        assert rule.title in text
        assert f'lint-ignore: "{id}=' in text
        assert rule.severity in ("error", "warning")
        assert rule.why.endswith((".", ")")), id
        assert len(rule.why) > 40, id


@pytest.mark.parametrize(("text", "parsed"), [("1.33", (1, 33)), ("v1.32.4", (1, 32))])
def test_versions(text, parsed):
    assert minor(text) == parsed


def test_a_version_that_is_none():
    with pytest.raises(ValueError, match="not a Kubernetes version"):
        minor("latest")


@pytest.mark.parametrize("listed", ["patches: [{path: less.yaml}]", "patchesStrategicMerge: [less.yaml]", ""])
def test_a_patch_is_no_object(listed):
    part = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\nspec: {replicas: 2}\n"
    kustomization = f"apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n{listed}\n"
    found = lint(documents([("base/less.yaml", part), ("base/kustomization.yaml", kustomization)]))
    assert [finding.rule for finding in found] == ([] if listed else ["RT305"])
    assert lint(documents([("manager_patch.yaml", part)])) == []


@pytest.mark.parametrize("amount", ["1e999999999", "9" * 60, ".inf", "NaN"])
def test_an_absurd_quantity_is_a_finding_and_no_endless_number(amount):
    absurd = pod(containers=[container(resources={"limits": {"nvidia.com/gpu": amount, "memory": amount}})])
    assert {finding.rule for finding in lint([absurd])} == {"RT108"}
