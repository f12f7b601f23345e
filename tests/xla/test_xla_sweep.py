"""A sweep whose trials run on the XLA engine: fresh processes, their environment made before the first import."""

import json
import os
import subprocess
import sys
from pathlib import Path

SWEEP = """
kind: Sweep
name: traced
job:
  name: base
  workers: {{count: 1}}
  model: {{config: {{model_type: llama, hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1,
                    num_attention_heads: 2, max_position_embeddings: 64, tie_word_embeddings: true}}}}
  tokenizer: {{train: {{vocab_size: 512}}}}
  data: {{train: {data}, files: "*.py", sequence_length: 64}}
  batch: {{sequences: 4, micro: 2}}
  optimizer: {{learning_rate: 3.0e-3}}
  precision: fp32
  engine: {{kind: xla}}
  evaluate: {{sequences: 4}}
  stop: {{steps: 6}}
space: {{optimizer.learning_rate: {{kind: grid, values: [1.0e-3, 1.0e-2]}}}}
search: {{kind: grid}}
scheduler: {{kind: asha, rungs: [3], reduction: 2}}
concurrency: 1
"""


def test_trials_run_on_xla_and_wait_at_a_rung(root, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    for name in ("csv", "calendar"):
        (data / f"{name}.py").write_bytes((Path(os.__file__).parent / f"{name}.py").read_bytes())
    (tmp_path / "sweep.yaml").write_text(SWEEP.format(data=data))
    command = [sys.executable, "-W", "ignore", "-m", "raytrain_eks.tune", "sweep.yaml", "--storage", str(tmp_path)]
    env = os.environ | {"PYTHONPATH": str(root), "RAY_AUTH_MODE": "disabled", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    home = tmp_path / "traced"
    body = json.loads((home / "sweep.json").read_text())
    assert [trial["state"] for trial in body["trials"]] in (["completed", "completed"], ["completed", "stopped"])
    rungs = [json.loads(line) for line in (home / "trials.jsonl").read_text().splitlines() if '"rung"' in line]
    assert [line["step"] for line in rungs if line["event"] == "rung"] == [3, 3]
    workers = set()
    for trial in body["trials"]:
        lines = (home / "trials" / trial["trial"] / "events.jsonl").read_text().splitlines()
        workers |= {event["ranks"][0]["pid"] for event in map(json.loads, lines) if event["event"] == "worker"}
    assert len(workers) == 2
