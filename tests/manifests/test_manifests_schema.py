"""The checker itself: what it must take, and what it must not."""

import pytest
from kube_schema import definitions_in

CLASS = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "a100"},
    "spec": {
        "role": "KarpenterNodeRole-ml",
        "amiSelectorTerms": [{"alias": "al2023@v20260101"}],
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "ml"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "ml"}}],
    },
}


@pytest.fixture(scope="module")
def definitions(shared):
    return definitions_in(shared / "crds")


def test_a_correct_object_passes(definitions):
    assert definitions.findings(CLASS) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rolle": "x"}, "rolle"),
        ({"role": None}, "None is not of type"),
        ({"amiFamily": "AL2"}, "AL2023' or 'Custom'"),
        ({"instanceProfile": "p"}, "exactly one"),
        ({"subnetSelectorTerms": []}, "subnetSelectorTerms"),
        ({"amiSelectorTerms": [{"alias": "al2024@latest"}]}, "family"),
    ],
)
def test_a_mistake_is_found(definitions, change, says):
    [finding, *_] = definitions.findings({**CLASS, "spec": {**CLASS["spec"], **change}})
    assert says in finding


def test_core_resources_are_checked_strictly(definitions):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x"}, "spec": {"acessModes": []}}
    assert any("acessModes" in finding for finding in definitions.findings(claim))
    assert "no schema" in definitions.findings({"apiVersion": "slinky.slurm.net/v1alpha1", "kind": "SlurmCluster"})[0]
