"""Which Kubernetes versions a cluster file may name, and what is said of the others."""

import pytest

from raytrain_eks.catalog.kubernetes import eks_versions, needed
from raytrain_eks.plan import versions
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import SpecError

CLUSTER = {
    "name": "c",
    "region": "us-west-2",
    "zone": "us-west-2a",
    "workers": [{"name": "w", "instance": "p4d.24xlarge", "nodes": 1}],
}
MANAGED = {"kind": "managed", "role": "arn:aws:iam::123456789012:role/n"}
NONE = {"kind": "none"}


def cluster(version, provisioner):
    return Cluster.parse({**CLUSTER, "kubernetes": version, "provisioner": provisioner})


@pytest.mark.parametrize(
    ("version", "provisioner", "words"),
    [
        ("1.5", "karpenter", "is too old: Karpenter 1.x runs on Kubernetes 1.29 and later"),
        ("1.28", "karpenter", 'write "1.29" or later, such as "1.33"'),
        ("1.3", "karpenter", 'did you mean "1.30"?'),
        ("1.0", "karpenter", 'write "1.29" or later'),
        ("1.28", MANAGED, "EKS has moved every cluster of 1.28 or older on"),
        ("1.24", NONE, "hold CEL rules, which API servers know from 1.25 on"),
        ("1.3", NONE, 'did you mean "1.30"?'),
    ],
)
def test_a_version_that_cannot_be_is_a_problem(version, provisioner, words):
    with pytest.raises(SpecError) as error:
        resolve(cluster(version, provisioner))
    (problem,) = [each for each in error.value.problems if each.path == "kubernetes"]
    assert problem.value == version
    assert words in str(problem)


@pytest.mark.parametrize(
    ("version", "provisioner", "words"),
    [
        ("1.33", "karpenter", None),
        ("1.30", "karpenter", "EKS ended Kubernetes 1.30 on 2026-07-23"),
        ("1.30", NONE, None),
        ("1.26", NONE, None),
        ("1.99", MANAGED, "newer than 1.36, the newest that was known in 2026-08"),
        ("1.99", NONE, None),
    ],
)
def test_what_may_be_is_noted_at_most(version, provisioner, words):
    found = cluster(version, provisioner)
    assert list(versions.problems(found)) == []
    notes = versions.notes(found)
    assert len(notes) == (words is not None)
    assert words is None or words in notes[0]


def test_the_tables_are_in_order_and_have_sources():
    numbers = [int(each.version.split(".")[1]) for each in eks_versions()]
    assert numbers == list(range(numbers[0], numbers[-1] + 1))
    assert all(each.source and each.date for each in (*eks_versions(), *needed()))
