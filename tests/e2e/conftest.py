"""Tests against a real Kubernetes cluster, where a person asks for them: README.md beside this file."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

ASKED = "RAYTRAIN_E2E"
VERB = [sys.executable, "-m", "raytrain_eks"]
KUBECTL = Path(sysconfig.get_path("scripts")) / "kubectl"
MINUTE = 60
CLUSTER = """\
kind: Cluster
name: {name}
namespace: {name}
region: us-west-2
ray: {{image: "{image}"}}
head: {{instance: null, cpu: 500m, memory: 3Gi}}
workers:
  - {{name: cpu, nodes: 1, cpu: 1, memory: 3Gi}}
storage:
  shared: {{kind: storage-class, name: "{storage}", size: 5Gi, access: ReadWriteOnce, mount: /shared}}
provisioner: none
"""
JOB = """\
kind: Job
name: {name}
cluster: cluster.yaml
workers: {workers}
model:
  config: {{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
           num_attention_heads: 2, max_position_embeddings: 128}}
tokenizer: {{train: {{vocab_size: 512}}}}
data: {{train: "python-stdlib:", files: "c*.py", sequence_length: 128}}
batch: {{sequences: 8}}
optimizer: {{learning_rate: 3.0e-3}}
precision: fp32
checkpoint: {{every: 10}}
failures: {{restarts: 0}}
stop: {{steps: {steps}}}
"""


class Site:
    """A person's folder with a cluster file, and the verbs that he runs in it, on the context of his kubeconfig."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.minutes = float(os.environ.get(f"{ASKED}_MINUTES", "15"))
        self.name = os.environ.get(f"{ASKED}_NAME", "raytrain-e2e")
        """Of the cluster file and its namespace."""
        given = os.environ.get(f"{ASKED}_CLUSTER")
        image, storage = os.environ.get(f"{ASKED}_IMAGE"), os.environ.get(f"{ASKED}_STORAGE", "standard")
        if given:
            text = Path(given).read_text()
        elif image:
            text = CLUSTER.format(name=self.name, image=image, storage=storage)
        else:
            pytest.fail(f"say which image the pods run: {ASKED}_IMAGE, or a cluster file in {ASKED}_CLUSTER")
        (folder / "cluster.yaml").write_text(text)

    def job(self, name: str, *, steps: int = 30, workers: str = "{count: 1}") -> str:
        """A job file."""
        (self.folder / f"{name}.yaml").write_text(JOB.format(name=name, steps=steps, workers=workers))
        return f"{name}.yaml"

    def run(self, *words: str, minutes: float | None = None) -> subprocess.CompletedProcess[str]:
        """A verb; its output is in the report of a test that fails."""
        print("$ raytrain-eks", *words)
        seconds = (minutes or self.minutes) * MINUTE
        done = subprocess.run([*VERB, *words], cwd=self.folder, capture_output=True, text=True, timeout=seconds)
        print(done.stdout, done.stderr, f"exit {done.returncode}", sep="\n")
        return done

    def kubectl(self, *words: str) -> str:
        """kubectl in the cluster's namespace; what it printed."""
        done = subprocess.run(
            [KUBECTL, "-n", self.name, *words], capture_output=True, text=True, timeout=self.minutes * MINUTE
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A person at the cluster that KUBECONFIG's current context is; skipped unless asked for."""
    if os.environ.get(ASKED) != "1":
        pytest.skip(f"needs a Kubernetes cluster with KubeRay; asked for by {ASKED}=1, see tests/e2e/README.md")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield Site(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="session")
def applied(site: Site) -> Iterator[Site]:
    """With the cluster file's objects applied; all of them are deleted in the end, storage too."""
    done = site.run("apply", "cluster.yaml", "--yes", "--timeout", f"{site.minutes:.0f}m")
    assert done.returncode == 0, done.stderr
    yield site
    done = site.run("delete", "cluster.yaml", "--storage", "--force", "--yes")
    assert done.returncode == 0, done.stderr
