"""A piece of a pod: checked against the pod's fields, merged as kubectl's strategic merge does."""

import json

import pytest

from raytrain_eks.spec import build_pod_fields
from raytrain_eks.spec.pod_overlay import merged, problems

BASE = {
    "metadata": {"labels": {"a": "1"}},
    "spec": {
        "containers": [
            {
                "name": "ray-worker",
                "image": "i",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "resources": {"limits": {"cpu": "1", "memory": "2Gi"}},
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }
        ],
        "nodeSelector": {"x": "y"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "volumes": [{"name": "v", "emptyDir": {"medium": "Memory"}}],
    },
}


def container(**fields):
    return {"spec": {"containers": [{"name": "ray-worker"} | fields]}}


@pytest.mark.parametrize(
    ("piece", "path", "expected"),
    [
        ({}, "", BASE),
        ({"metadata": {"labels": {"b": "2"}}}, "metadata.labels", {"a": "1", "b": "2"}),
        ({"metadata": {"labels": {"a": None}}}, "metadata.labels", {}),
        ({"spec": {"nodeSelector": {"z": "1"}}}, "spec.nodeSelector", {"x": "y", "z": "1"}),
        ({"spec": {"nodeSelector": {"$patch": "replace", "z": "1"}}}, "spec.nodeSelector", {"z": "1"}),
        ({"spec": {"tolerations": [{"key": "q"}]}}, "spec.tolerations", [{"key": "q"}]),
        ({"spec": {"hostIPC": True}}, "spec.hostIPC", True),
        (container(image="j"), "spec.containers.0.image", "j"),
        (
            container(resources={"limits": {"cpu": "3"}}),
            "spec.containers.0.resources.limits",
            {"cpu": "3", "memory": "2Gi"},
        ),
        (
            container(env=[{"name": "B", "value": "3"}, {"name": "C", "value": "4"}]),
            "spec.containers.0.env",
            [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
        ),
        (container(env=[{"name": "A", "$patch": "delete"}]), "spec.containers.0.env", [{"name": "B", "value": "2"}]),
        (
            container(env=None),
            "spec.containers.0",
            {k: v for k, v in BASE["spec"]["containers"][0].items() if k != "env"},
        ),
        (
            container(volumeMounts=[{"mountPath": "/v", "readOnly": True}]),
            "spec.containers.0.volumeMounts",
            [{"name": "v", "mountPath": "/v", "readOnly": True}],
        ),
        (container(command=["a", "b"]), "spec.containers.0.command", ["a", "b"]),
        (
            {"spec": {"containers": [{"name": "side", "image": "s"}]}},
            "spec.containers.1",
            {"name": "side", "image": "s"},
        ),
        (
            {"spec": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}},
            "spec.volumes",
            [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
        ),
        (
            {"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}}},
            "spec.affinity",
            {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}},
        ),
    ],
)
def test_a_piece_is_merged(piece, path, expected):
    before = json.dumps(BASE)
    assert not list(problems(piece, "pod"))
    found = merged(BASE, piece)
    for step in filter(None, path.split(".")):
        found = found[int(step)] if isinstance(found, list) else found[step]
    assert found == expected
    assert json.dumps(BASE) == before


@pytest.mark.parametrize(
    ("piece", "where", "words"),
    [
        ({"sepc": {}}, "pod.sepc", "`spec`"),
        ({"metadata": {"name": "x"}}, "pod.metadata.name", "annotations, labels"),
        ({"spec": {"tolerations": [{"kye": "a"}]}}, "pod.spec.tolerations.0.kye", "`key`"),
        ({"spec": {"containers": [{"image": "x"}]}}, "pod.spec.containers.0", "`name`"),
        ({"spec": {"containers": {}}}, "pod.spec.containers", "a list"),
        ({"spec": []}, "pod.spec", "a mapping"),
        ({"spec": {"nodeSelector": {"a": True}}}, "pod.spec.nodeSelector.a", "quotes"),
        ({"spec": {"terminationGracePeriodSeconds": "30"}}, "pod.spec.terminationGracePeriodSeconds", "whole number"),
        ({"spec": {"terminationGracePeriodSeconds": True}}, "pod.spec.terminationGracePeriodSeconds", "whole number"),
        (
            container(resources={"limits": {"memory": "2 gigs"}}),
            "pod.spec.containers.0.resources.limits.memory",
            "Kubernetes",
        ),
        (container(**{"$patch": "remove"}), "pod.spec.containers.0.$patch", "delete or replace"),
    ],
)
def test_what_a_pod_has_not_is_refused_with_its_path(piece, where, words):
    (found,) = problems(piece, "pod")
    assert found.path == where
    assert words in f"{found.rule} {found.fix}"


def test_the_table_is_what_the_schemas_say():
    pytest.importorskip("kubernetes_validate")
    recorded = json.loads(build_pod_fields.TARGET.read_text("utf-8"))
    assert recorded == build_pod_fields.table(build_pod_fields.definitions())


def test_kuberay_knows_every_field_of_the_table(shared):
    """What the RayCluster's definition does not hold would be dropped by the API server without a word."""
    table = json.loads(build_pod_fields.TARGET.read_text("utf-8"))
    definition = json.loads((shared / "crds" / "kuberay@v1.7.0" / "rayclusters.ray.io.json").read_text())
    version = next(each for each in definition["spec"]["versions"] if each["name"] == "v1")
    head = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["headGroupSpec"]
    missing = []

    def compare(name, schema, path):
        for field, entry in table.get(name, {}).items():
            inner = schema.get("properties", {}).get(field)
            if inner is None and not schema.get("x-kubernetes-preserve-unknown-fields"):
                missing.append(f"{path}.{field}")
            elif inner is not None:
                kind = entry.strip("[]{}").partition("|")[0]
                compare(kind, inner.get("items", inner) if entry.startswith("[") else inner, f"{path}.{field}")

    compare("PodSpec", head["properties"]["template"]["properties"]["spec"], "spec")
    assert missing == []
