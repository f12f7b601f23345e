"""Rendered objects through KubeRay's own Python client, which swallows errors and does not read namespaces."""

import logging
import sys
from pathlib import Path

import pytest

from raytrain_eks import Cluster, TargetError
from raytrain_eks.api.kuberay_client import KubeRayClient
from raytrain_eks.manifests.kuberay_job import Work, ray_job
from raytrain_eks.submit.errors import NotFound

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster.load(ROOT / "cluster_specs" / "gpu-a100.yaml")


@pytest.fixture
def client(monkeypatch) -> KubeRayClient:
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "stand_in"))
    made = KubeRayClient()
    yield made
    for name in [name for name in sys.modules if name.split(".")[0] == "python_client"]:
        del sys.modules[name]


def test_without_it_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "python_client", None)
    with pytest.raises(TargetError, match=r"pip install 'python-client @ git\+https.*clients/python-client'"):
        KubeRayClient()


def test_a_cluster_s_life(client, cluster, capfd):
    import python_client

    (body,) = cluster.render("RayCluster")
    made = client.create(body)
    assert made["metadata"]["uid"] == "1"
    assert set(python_client.API) == {("rayclusters", "training", "gpu-a100")}
    assert client.get("RayCluster", "gpu-a100", "training")["spec"] == body["spec"]
    client.patch(body | {"spec": body["spec"] | {"suspend": True}})
    assert client.get("RayCluster", "gpu-a100", "training")["spec"]["suspend"] is True
    with pytest.raises(TimeoutError, match="RayCluster gpu-a100 is not ready after 1 s"):
        client.wait("RayCluster", "gpu-a100", "training", timeout=1)
    python_client.STATUS["gpu-a100"] = {"state": "ready"}
    client.wait("RayCluster", "gpu-a100", "training")
    client.delete("RayCluster", "gpu-a100", "training")
    assert python_client.API == {}
    assert capfd.readouterr() == ("", "")


def test_a_job_s_life(client, cluster):
    import python_client

    body = ray_job(cluster.plan(), Work(name="quick", command="python train.py", nodes={"a100": 1})).body
    client.create(body)
    assert client.get("RayJob", "quick", "training") == body
    with pytest.raises(TimeoutError, match="RayJob quick is not over"):
        client.wait("RayJob", "quick", "training", timeout=1)
    python_client.STATUS["quick"] = {"jobDeploymentStatus": "Complete"}
    client.wait("RayJob", "quick", "training")
    client.delete("RayJob", "quick", "training")


def test_what_the_client_only_logs_is_an_error(client, cluster, caplog):
    (body,) = cluster.render("RayCluster")
    client.create(body)
    with pytest.raises(
        TargetError, match=r"was not created in namespace training\n  raycluster resource already exists"
    ):
        client.create(body)
    with pytest.raises(NotFound, match=r"no RayCluster other in namespace training\n  .*not found"):
        client.get("RayCluster", "other", "training")
    with pytest.raises(NotFound, match="no RayCluster gpu-a100 in namespace default"):
        client.get("RayCluster", "gpu-a100", "default")
    with pytest.raises(TargetError, match=r"RayJob other was not deleted\n  .*already deleted"):
        client.delete("RayJob", "other", "training")
    assert logging.getLogger("python_client").propagate
    assert logging.getLogger("python_client").handlers == []


@pytest.mark.parametrize("kind", ["Pod", "raycluster", "RayService"])
def test_it_knows_two_kinds(client, kind):
    with pytest.raises(ValueError, match="RayCluster and RayJob"):
        client.create({"kind": kind, "metadata": {"name": "x"}})
    with pytest.raises(ValueError, match="RayCluster and RayJob"):
        client.get(kind, "x", "training")


def test_a_job_is_not_changed(client, cluster):
    body = ray_job(cluster.plan(), Work(name="quick", command="python train.py", nodes={"a100": 1})).body
    with pytest.raises(ValueError, match="a RayJob is submitted anew"):
        client.patch(body)
