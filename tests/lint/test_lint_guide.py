"""The guide's own manifests are the first patients: every real mistake found, at its line, and nothing else."""

import copy

import guide
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raytrain_eks.lint import Settings, examine, lint
from raytrain_eks.spec.source import Document

EXPECTED = {
    "SlurmCluster slurm/ml-training-cluster": [("RT302", 60)],
    "SlurmNodeSet slurm/gpu-a100-nodes": [("RT302", 102)],
    "Application argocd/slinky-slurm": [("RT905", 166)],
    "NodePool gpu-a100-nodepool": [("RT601", 256), ("RT602", 220)],
    "EC2NodeClass gpu-a100-class": [("RT303", 263), ("RT305", 263), ("RT604", 288)],
    "MPIJob training/bert-large-training": [("RT101", 422), ("RT101", 423), ("RT102", 415), ("RT301", 361)],
    "DaemonSet kube-system/aws-efa-k8s-device-plugin": [
        ("RT102", 468),
        ("RT406", 467),
        ("RT406", 473),
        ("RT406", 474),
        ("RT406", 476),
        ("RT406", 488),
    ],
    "Job ai-research/bionemo-molecule-generation": [
        ("RT102", 549),
        ("RT201", 535),
        ("RT201", 538),
        ("RT203", 541),
        ("RT306", 506),
        ("RT505", 514),
        ("RT505", 516),
    ],
    "Job training/llama3-lora-finetune": [("RT402", 678), ("RT502", 668), ("RT503", 664), ("RT506", 632)],
    "NodePool trainium-nodepool": [("RT105", 781), ("RT602", 768)],
    "EC2NodeClass trainium-class": [("RT303", 805), ("RT305", 805), ("RT604", 825)],
    "RayCluster training/raytrain-cluster": [
        ("RT101", 895),
        ("RT102", 906),
        ("RT306", 863),
        ("RT306", 890),
        ("RT402", 893),
        ("RT810", 861),
        ("RT812", 883),
        ("RT816", 865),
    ],
    "Deployment mpi-operator/mpi-operator": [("RT204", 990), ("RT904", 995), ("RT904", 996)],
    "Job training/distributed-training": [
        ("RT102", 1034),
        ("RT402", 1044),
        ("RT403", 1035),
        ("RT504", 1038),
        ("RT903", 1034),
    ],
    "ConfigMap jupyter/jupyterhub-config": [("RT102", 1055), ("RT103", 1055), ("RT201", 1055), ("RT403", 1055)],
    "FileSystem storage/ml-training-lustre": [("RT304", 1118), ("RT704", 1103)],
    "StorageClass fsx-lustre-sc": [("RT701", 1157)],
    "Deployment training-with-checkpoint-manager": [("RT305", 1236), ("RT305", 1239), ("RT512", 1232)],
    "ConfigMap programs": [("RT404", 1), ("RT501", 1), ("RT510", 1), ("RT511", 1)],
}
"""Object -> rule and line of each finding. Objects that are right are not in it: Namespace, Queue, both EFS objects,
the claim, the two config maps of settings, and the Launcher's pod."""


@pytest.fixture(scope="module")
def documents(shared):
    return guide.documents(shared / "guide" / "training-on-eks.es.txt")


def test_every_mistake_of_the_guide_and_nothing_else(documents):
    found = {}
    for finding in lint(documents):
        found.setdefault(finding.object, set()).add((finding.rule, finding.line))
    assert {name: sorted(places) for name, places in found.items()} == EXPECTED


def test_the_largest_value_that_fits_is_said(documents):
    fixes = {(finding.line, finding.rule): finding.fix for finding in lint(documents)}
    assert fixes[422, "RT101"] == "the largest that fits is 1057Gi"
    assert fixes[423, "RT101"] == "the largest that fits is 95"


def test_on_kubernetes_1_32_amazon_linux_2_still_has_images(documents):
    assert "RT303" not in {finding.rule for finding in lint(documents, Settings(kubernetes="1.32"))}


def test_training_operator_still_serves_mpi_jobs_v1(documents):
    declared = Settings(external=frozenset({"operator/training-operator"}))
    assert not [finding for finding in lint(documents, declared) if finding.rule == "RT301"]


def test_twice_the_same(documents):
    assert lint(documents) == lint(copy.deepcopy(documents))


def _paths(value, path=()):
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _paths(part, (*path, key))


junk = st.sampled_from([None, True, 0, -1, 1.5, "", "x", [], [None], {}, {"a": None}, [[{}]], "9" * 50])


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_no_mistake_makes_a_rule_fall_over(documents, data):
    """Any part of the guide's manifests replaced by anything: findings or none, never an exception."""
    broken = []
    for document in documents:
        tree = copy.deepcopy(document.data)
        path = data.draw(st.sampled_from(list(_paths(tree))[1:]))
        parent = tree
        for step in path[:-1]:
            parent = parent[step]
        parent[path[-1]] = data.draw(junk)
        broken.append(Document(file="", data=tree))
    assert examine(broken).findings is not None
