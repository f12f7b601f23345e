"""A Kubernetes cluster for tests of `--on eks`: the API double, what a cluster file made in it, a person's folder."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from double import ApiDouble

VERB = [sys.executable, "-c", "from raytrain_eks.cli.main import main; main()"]
NAMESPACE = "training"
CLUSTER = """\
kind: Cluster
name: site
namespace: training
region: us-west-2
ray: {{image: "registry/raytrain:2.60"}}
head: {{instance: null, cpu: 500m, memory: 2Gi}}
workers:
  - {{name: cpu, nodes: 2, cpu: 1, memory: 2Gi}}
storage:
  shared: {{kind: claim, claim: shared, mount: {mount}}}
provisioner: none
auth: {auth}
"""
JOB = """\
kind: Job
name: {name}
cluster: cluster.yaml
workers: {workers}
model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
                  num_attention_heads: 2, max_position_embeddings: 64}}}}
tokenizer: {{train: {{vocab_size: 300}}}}
data: {{train: {data}, files: "*.py", sequence_length: 64}}
batch: {{sequences: 4}}
optimizer: {{learning_rate: 1.0e-3}}
precision: fp32
checkpoint: {{every: 10}}
failures: {{restarts: 0}}
stop: {{steps: {steps}}}
"""


class Site:
    """A person with a job file, a cluster file and a kubeconfig."""

    def __init__(self, folder: Path, api: ApiDouble, *, env: dict[str, str] | None = None, auth: str = "disabled"):
        self.folder, self.api = folder / "home", api
        self.folder.mkdir()
        self.mount = folder / "shared"
        (self.folder / "cluster.yaml").write_text(CLUSTER.format(mount=self.mount, auth=auth))
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("RAY", "XDG_", "KUBE"))}
        self.env = (env or plain) | {"XDG_STATE_HOME": str(folder / "state")}
        self.env["KUBECONFIG"] = str(api.kubeconfig(folder, namespace=NAMESPACE))
        for kind, name, spec in (
            ("ServiceAccount", "site", {}),
            ("PersistentVolumeClaim", "shared", {"spec": {"accessModes": ["ReadWriteMany"], **_GIBIBYTE}}),
        ):
            metadata = {"name": name, "namespace": NAMESPACE}
            api.objects.put({"apiVersion": "v1", "kind": kind, "metadata": metadata, **spec})

    def job(self, name: str = "tiny", *, workers: str = "{count: 1}", data: str = "/data", steps: int = 20) -> str:
        """A job file; its name."""
        (self.folder / f"{name}.yaml").write_text(JOB.format(name=name, workers=workers, data=data, steps=steps))
        return f"{name}.yaml"

    def run(self, *words: str, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
        """A verb in a process of its own."""
        return subprocess.run(
            [*VERB, *words], cwd=self.folder, env=self.env | env, capture_output=True, text=True, timeout=timeout
        )

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """A verb that goes on beside the test."""
        return subprocess.Popen(
            [*VERB, *words],
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def rayjobs(self) -> list[dict[str, Any]]:
        """What was submitted, in the order of time."""
        return sorted(self.api.objects.all("rayjobs"), key=lambda body: int(body["metadata"]["resourceVersion"]))


_GIBIBYTE = {"resources": {"requests": {"storage": "1Gi"}}}
