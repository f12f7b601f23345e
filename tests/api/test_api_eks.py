"""Python on Kubernetes, against the API double: apply and compare a cluster, submit and connect as a notebook may."""

import base64
import time
from pathlib import Path

import pytest
from double import ApiDouble, Operator
from double.fixtures import kube_api

from raytrain_eks import Cluster, Job, Run, TargetError
from raytrain_eks.api.applying import NotReady
from raytrain_eks.kube.connect import connect
from raytrain_eks.kube.errors import Forbidden, KubeError
from raytrain_eks.manifests.jupyterhub import account
from raytrain_eks.submit.errors import NotAllowed

__all__ = ["kube_api"]
pytestmark = pytest.mark.slow
CLUSTER = {
    "name": "llm",
    "namespace": "training",
    "region": "us-west-2",
    "ray": {"image": "registry.local/raytrain:1"},
    "head": {"instance": None, "cpu": "500m", "memory": "2Gi"},
    "workers": [{"name": "cpu", "nodes": 1, "cpu": "1", "memory": "2Gi"}],
    "storage": {"shared": {"kind": "storage-class", "name": "standard", "size": "5Gi"}},
    "ground": {"disruption_budget": False},
    "provisioner": "none",
    "jupyterhub": {"image": "registry.local/lab:1", "connect": True},
}
NOTEBOOK = "system:serviceaccount:jupyter:llm--notebook"


@pytest.fixture
def cluster(person: Path) -> Cluster:
    made = Cluster(**CLUSTER)
    (person / "cluster.yaml").write_text(made.to_yaml())
    return made


@pytest.fixture
def admin(kube_api: ApiDouble, tmp_path: Path) -> dict[str, str]:
    return {"kubeconfig": str(kube_api.kubeconfig(tmp_path))}


@pytest.fixture
def notebook(kube_api: ApiDouble, cluster: Cluster, admin: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """A notebook's own account, in a Kubernetes cluster with the bundle in it."""
    cluster.apply(wait=False, **admin)
    assert NOTEBOOK.endswith(account(cluster.plan()))
    kube_api.rbac.obey_roles(NOTEBOOK)
    return {"kubeconfig": str(kube_api.kubeconfig(tmp_path, user=NOTEBOOK))}


@pytest.fixture
def job(fields) -> Job:
    return Job(**fields | {"cluster": "cluster.yaml", "workers": {"nodes": 1}, "storage": "/shared/runs"})


def test_a_cluster_is_applied_once_and_compared(cluster, admin, kube_api, capfd):
    assert {each.verb for each in cluster.diff(**admin)} == {"added"}
    said: list[str] = []
    results = cluster.apply(wait=False, say=said.append, **admin)
    assert {each.outcome for each in results} == {"created", "unchanged"}
    assert len(said) == len(results) == len(cluster.render())
    assert cluster.diff(**admin) == []
    assert {each.outcome for each in cluster.apply(wait=False, **admin)} == {"unchanged"}
    more = cluster.changed({"head.memory": "3Gi"})
    (change,) = {each.path.rpartition(".")[0] for each in more.diff(**admin) if "limits.memory" in each.path}
    assert change.endswith("resources.limits")
    assert "<td>RayCluster</td>" in results._repr_html_()
    assert {each.outcome for each in more.apply(dry_run=True, **admin)} == {"unchanged", "configured"}
    with pytest.raises(NotReady, match=r"(?s)RayCluster/llm is not ready:.*after 1s"):
        cluster.apply(timeout="1s", **admin)
    assert capfd.readouterr() == ("", "")


def test_what_the_api_refuses_is_told(cluster, admin, kube_api):
    kube_api.rbac.deny(verb="patch", resource="roles")
    with pytest.raises(KubeError, match=r"(?s)Role/llm--notebook.*of \d+ objects failed"):
        cluster.apply(wait=False, **admin)


def test_a_notebook_submits_follows_and_ends_a_job(kube_api, notebook, job, capfd):
    with Operator(kube_api) as operator:
        run = job.submit(on="eks", namespace="training", **notebook)
        assert run.storage == "/shared/runs"
        (name,) = (each["metadata"]["name"] for each in kube_api.objects.all("rayjobs"))
        lines = run.logs(follow=True)
        end = time.monotonic() + 600
        while name not in operator.entries:
            assert time.monotonic() < end
            time.sleep(0.05)
        operator.entry(name).say("run small, 20 steps", "step 1/20  loss 5.1000  lr 1.0e-03  128 tok/s  eta 10s")
        assert next(line for line in lines if line.startswith("step")).startswith("step 1/20")
        assert run.status().state == "running"
        assert run.result is None
        operator.entry(name).say("small complete: 20 steps, 1280 tokens")
        operator.entry(name).finish()
        assert run.wait(timeout=300).state == "complete"
        assert "small complete: 20 steps, 1280 tokens" in run.logs()
        again = Run.get("small")
        assert (again.id, again.storage, again.status().steps) == (run.id, "/shared/runs", 20)
        with pytest.raises(TargetError, match="as far as this machine sees"):
            run.metrics()
    assert capfd.readouterr() == ("", "")


RIGHTS = [
    ("create", "ray.io/v1", "RayJob", "training", None, True),
    ("delete", "ray.io/v1", "RayJob", "training", None, True),
    ("create", "v1", "ConfigMap", "training", None, True),
    ("get", "v1", "Pod", "training", "log", True),
    ("list", "v1", "Event", "training", None, True),
    ("get", "v1", "Service", "training", "proxy", True),
    ("create", "ray.io/v1", "RayJob", "jupyter", None, False),
    ("create", "ray.io/v1", "RayJob", "default", None, False),
    ("create", "ray.io/v1", "RayCluster", "training", None, False),
    ("delete", "ray.io/v1", "RayCluster", "training", None, False),
    ("create", "v1", "Pod", "training", None, False),
    ("create", "v1", "Pod", "training", "exec", False),
    ("create", "v1", "Pod", "jupyter", None, False),
    ("list", "v1", "Secret", "training", None, False),
    ("get", "v1", "Secret", "jupyter", None, False),
    ("list", "v1", "Node", None, None, False),
    ("create", "rbac.authorization.k8s.io/v1", "RoleBinding", "training", None, False),
]
"""Verb, kind, namespace, subresource, and whether a notebook may."""


def test_a_notebook_s_rights(notebook):
    with connect(**notebook) as client:
        found = [
            (verb, version, kind, namespace, part, client.allowed(verb, version, kind, namespace, subresource=part)[0])
            for verb, version, kind, namespace, part, _ in RIGHTS
        ]
    assert found == RIGHTS


def test_a_notebook_reads_the_one_token_it_may(kube_api, notebook, cluster, server, monkeypatch):
    server.token = "secret"
    token = {"auth_token": base64.b64encode(b"secret").decode()}
    for name in ("llm", "other"):
        metadata = {"name": name, "namespace": "training"}
        kube_api.objects.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": token})
    with connect(**notebook) as client, pytest.raises(Forbidden):
        client.get("v1", "Secret", "other", "training")
    monkeypatch.setenv("KUBECONFIG", notebook["kubeconfig"])
    assert cluster.connect(server.url).address == server.url
    with pytest.raises(NotAllowed, match="Secret other of namespace training"):
        cluster.changed(name="other").connect(server.url)
