"""Inside Ray: a rank that raises brings the group down, its traceback first. The fault comes from outside: workers
import a `sitecustomize` of the test's own."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

JOB = """
kind: Job
name: {name}
workers: {{count: 2}}
model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
                  num_attention_heads: 2, max_position_embeddings: 64}}}}
tokenizer: {{train: {{vocab_size: 300}}}}
data: {{train: {data}, files: "*.py", sequence_length: 64}}
batch: {{sequences: 4}}
optimizer: {{learning_rate: 1.0e-3}}
precision: fp32
evaluate: {{sequences: 4}}
stop: {{steps: 1000}}
failures: {{restarts: 0, hang: {hang}}}
environment: {{PYTHONPATH: "{path}", FAULT: "{fault}"}}
"""
CUSTOMIZE = textwrap.dedent(
    '''
    """Rank 1 of a worker group raises once it has done three steps."""

    import builtins, os, sys

    plain = builtins.__import__

    def the_culprit():
        raise ValueError("this rank has had enough")

    def patched(*arguments, **named):
        module = plain(*arguments, **named)
        loop = sys.modules.get("raytrain_eks.train.loop")
        if loop is not None and hasattr(loop, "Loop"):
            builtins.__import__ = plain
            step = loop.Loop._apply

            def faulty(self, *more):
                if self.rank == 1 and self.progress.step == 3:
                    the_culprit()
                return step(self, *more)

            loop.Loop._apply = faulty
        return module

    if "FAULT" in os.environ:
        builtins.__import__ = patched
    '''
)


@pytest.fixture(scope="module")
def train(tmp_path_factory, ray_head, root):
    """Runs a job whose second rank has a fault: the run's folder and what the driver said."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(CUSTOMIZE)
    (folder / "data").mkdir()
    (folder / "data" / "ast.py").write_bytes((Path(os.__file__).parent / "ast.py").read_bytes())

    def run(fault: str, hang: str) -> tuple[Path, str]:
        file = folder / f"{fault}.yaml"
        path = f"{folder}/site:{root}"
        file.write_text(JOB.format(name=fault, data=folder / "data", hang=hang, path=path, fault=fault))
        done = subprocess.run(
            [sys.executable, "-m", "raytrain_eks.train", str(file)],
            cwd=root,
            env=ray_head.env | {"RAYTRAIN_STORAGE": str(folder / "runs")},
            capture_output=True,
            text=True,
            timeout=900,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return folder / "runs" / fault, done.stdout + done.stderr

    return run


def events(run: Path, name: str) -> list[dict]:
    rows = map(json.loads, (run / "events.jsonl").read_text().splitlines())
    return [row for row in rows if row["event"] == name]


def gone(run: Path) -> bool:
    """Whether no process of the worker group is left that still trains."""
    pids = [rank["pid"] for rank in events(run, "worker")[-1]["ranks"]]
    return not [pid for pid in pids if Path(f"/proc/{pid}/cmdline").exists() and b"RayTrainWorker" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_rank_that_raises_brings_all_down_with_its_traceback_first(train):
    run, said = train("raise", "5m")
    failure = said[said.index("raise failed:") :]
    first = failure.index("ValueError: this rank has had enough")
    assert "the_culprit" in failure[:first]
    # The other rank's error, that its peer is gone, may follow; it never comes before.
    assert "gloo" not in failure[:first].lower()
    assert "[Rank 1" in failure[:first]
    assert gone(run)
    # The update of the fourth step needs nobody else; the fifth step cannot be done alone.
    assert len((run / "metrics.jsonl").read_text().splitlines()) in (3, 4)
