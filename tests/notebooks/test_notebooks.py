"""Every notebook runs from its first cell to its last: on the local target, and against the API double."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from double import Operator, Scripted
from double.fixtures import kube_api

__all__ = ["kube_api"]
ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CELL_S = 300


def executed(name: str) -> str:
    """Run a notebook in its folder with this process's environment; what its cells showed, as text. A cell that raises
    fails the test with its traceback."""
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    book = nbformat.read(ROOT / "notebooks" / f"{name}.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        book, timeout=CELL_S, kernel_name="python3", resources={"metadata": {"path": str(ROOT / "notebooks")}}
    )
    client.execute()
    shown = [output for cell in book.cells if cell.cell_type == "code" for output in cell.outputs]
    assert [output for output in shown if output.output_type == "stream" and output.name == "stderr"] == []
    parts = [output.text if output.output_type == "stream" else "\n".join(texts(output)) for output in shown]
    return "\n".join(parts)


def texts(output: Any) -> list[str]:
    return [str(value) for kind, value in output.data.items() if kind.startswith("text/")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_outputs(path):
    book = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert book["metadata"]["kernelspec"]["name"] == "python3"
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])


@pytest.mark.slow
def test_a_run_is_trained_watched_read_and_plotted(ray_head, tmp_path, monkeypatch):
    """The quick start, then the notebook that reads its run."""
    # A person's environment: without what earlier tests' libraries have left in this process's. All else `local` must
    # find out by itself.
    for name in set(os.environ) - set(ray_head.env) - {"PYTEST_CURRENT_TEST"}:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", ray_head.env["XDG_STATE_HOME"])
    monkeypatch.setenv("RAYTRAIN_STORAGE", str(tmp_path / "runs"))
    monkeypatch.setenv("QUICKSTART_FILES", "json/*.py")
    monkeypatch.setenv("QUICKSTART_STEPS", "6")
    shown = executed("01_quickstart_local")
    assert "Result(run='notebook', state='complete', code=0, phase='complete, 6 steps')" in shown
    assert "notebook complete: 6 steps" in shown
    assert "def main(" in shown
    shown = executed("03_read_and_plot_a_run")
    assert "<Figure size" in shown
    assert "tokens per second" in shown
    assert "evaluated" in shown
    assert f"{tmp_path}/runs/notebook/export complete 6" in shown


@pytest.mark.slow
def test_a_job_goes_to_eks(kube_api, tmp_path, monkeypatch):
    """Against the API double: the cluster is applied, and a RayJob goes through its phases."""
    for name in ("XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    for name in ("RAYTRAIN_STORAGE", "RAYTRAIN_ON", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.setenv("CLUSTER", str(tmp_path / "cluster.yaml"))
    monkeypatch.setenv("APPLY", "yes")
    kube_api.objects.put(CLAIM)
    monkeypatch.setenv("KUBECONFIG", str(kube_api.kubeconfig(tmp_path, namespace="training")))
    with Operator(kube_api, start=driver):
        shown = executed("02_submit_to_eks")
    assert "created RayCluster/llm" in shown
    assert "step 200/200" in shown
    assert "first-on-eks complete: 200 steps" in shown
    assert "Result(run='first-on-eks', state='complete', code=0" in shown
    assert "as far as this machine sees" in shown
    assert "port-forward svc/llm-head-svc 8265" in shown


CLUSTER = """\
kind: Cluster
name: llm
region: us-west-2
ray: {image: registry.local/raytrain:1}
head: {instance: null, cpu: 500m, memory: 2Gi}
workers: [{name: cpu, nodes: 1, cpu: 1, memory: 2Gi}]
storage: {shared: {kind: claim, claim: data, mount: /shared}}
provisioner: none
auth: disabled
"""


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "data", "namespace": "training"},
    "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "5Gi"}}},
}


def driver(job: dict[str, Any], log: Any) -> Scripted:
    """What stands for the driver: it says what a driver says, and is done."""
    entry = Scripted(log)
    entry.say("run first-on-eks, 200 steps: /shared/runs/first-on-eks")
    entry.say("step 100/200  loss 5.1000  lr 1.0e-03  128 tok/s  eta 10s", "step 200/200  loss 4.1  lr 1.0e-03")
    entry.say("first-on-eks complete: 200 steps, 3276800 tokens")
    entry.finish()
    return entry
