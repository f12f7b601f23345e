"""A whole run by the driver on the XLA engine: data, loop, resume from another engine, checkpoint, export."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

JOB = """
kind: Job
name: traced
workers: {{count: 1}}
model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
                  num_attention_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}}}}
tokenizer: {{train: {{vocab_size: 512}}}}
data: {{train: {data}, files: "*.py", sequence_length: 64}}
batch: {{sequences: 4, micro: 2}}
optimizer: {{learning_rate: 3.0e-3}}
schedule: {{kind: constant}}
precision: fp32
engine: {{kind: {engine}}}
evaluate: {{sequences: 4}}
checkpoint: {{every: 3}}
stop: {{steps: {steps}}}
failures: {{restarts: 0}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A storage, and a little text to train on."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "data").mkdir()
    for name in ("csv", "calendar"):
        (folder / f"data/{name}.py").write_bytes((Path(os.__file__).parent / f"{name}.py").read_bytes())
    return folder


def python(root, folder: Path, module: str, *arguments: object, path: str = "") -> str:
    """Run a module of the project as a person would; what it printed."""
    command = [sys.executable, "-W", "ignore", "-m", module, *map(str, arguments)]
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [path, str(root)]))}
    variables |= {"RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def written(folder: Path, engine: str, steps: int) -> Path:
    """A job file."""
    file = folder / f"{engine}.yaml"
    file.write_text(JOB.format(data=folder / "data", engine=engine, steps=steps))
    return file


def train(root, folder: Path, storage: str, engine: str, steps: int) -> list[dict]:
    """The metrics of a run."""
    python(root, folder, "raytrain_eks.train", written(folder, engine, steps), "--storage", folder / storage)
    lines = (folder / storage / "traced/metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_a_run_that_torch_began_is_gone_on_with(root, folder):
    """As after a crash: the checkpoint of step 3 is the newest, and the steps after it are the same on XLA."""
    begun = train(root, folder, "runs", "torch", 5)
    run = folder / "runs/traced"
    shutil.rmtree(run / "checkpoints/step-00000005")
    (run / "summary.json").unlink()
    traced = train(root, folder, "runs", "xla", 5)[len(begun) :]
    assert [line["step"] for line in traced] == [4, 5]
    for one, other in zip(traced, begun[3:], strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)
        assert one["gradient_norm"] == pytest.approx(other["gradient_norm"], abs=1e-3)
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["status"], summary["engine"], summary["steps"]) == ("complete", "xla", 5)
    assert (run / "export/model.safetensors").exists()
    assert (run / "checkpoints/step-00000005/manifest.json").exists()


def test_compiling_ahead_leaves_graphs_and_no_run(root, folder):
    """The library that compiles is a stand-in; the rest is real."""
    stand_in = str(Path(__file__).parent / "stand_in")
    file = written(folder, "xla", 3)
    module = "raytrain_eks.train.precompile"
    said = python(root, folder, module, file, "--storage", folder / "ahead", path=stand_in)
    cache = folder / "ahead/.compile-cache"
    assert f"1 graphs in {cache}, 0 without result" in said
    told = json.loads((cache / "environment.json").read_text())
    assert told["NEURON_EXTRACT_GRAPHS_ONLY"] == "1"
    assert told["NEURON_COMPILE_CACHE_URL"] == str(cache)
    assert "--auto-cast=none" in told["NEURON_CC_FLAGS"]
    assert not (folder / "ahead/traced").exists()
