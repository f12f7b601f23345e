"""Inside Ray: a rank that hangs is named, with the stacks of all ranks in the run folder, and the run goes on; one that
raises brings the group down, its traceback first. The faults come from outside: workers import a `sitecustomize` of the
test's own."""

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
name: faulty
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
failures: {{restarts: 1, hang: 12s}}
environment: {{PYTHONPATH: "{path}", FAULT: "{hung}"}}
"""
CUSTOMIZE = textwrap.dedent(
    '''
    """Rank 1 of a worker group hangs once it has done three steps, and raises there the next time."""

    import builtins, os, sys, time

    plain = builtins.__import__

    def the_culprit():
        if not os.path.exists(os.environ["FAULT"]):
            open(os.environ["FAULT"], "w").close()
            time.sleep(3600)
        # Metrics are flushed each second; rank 0 may be ended before its next time.
        time.sleep(3)
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
def faulty(tmp_path_factory, ray_head, root):
    """A run whose second rank has its faults: its folder and what the driver said."""
    folder = tmp_path_factory.mktemp("faults")
    (folder / "site").mkdir()
    (folder / "site" / "sitecustomize.py").write_text(CUSTOMIZE)
    (folder / "data").mkdir()
    (folder / "data" / "ast.py").write_bytes((Path(os.__file__).parent / "ast.py").read_bytes())
    file = folder / "faulty.yaml"
    file.write_text(JOB.format(data=folder / "data", path=f"{folder}/site:{root}", hung=folder / "hung"))
    done = subprocess.run(
        [sys.executable, "-m", "raytrain_eks.train", str(file)],
        cwd=root,
        env=ray_head.env | {"RAYTRAIN_STORAGE": str(folder / "runs")},
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return folder / "runs" / "faulty", done.stdout + done.stderr


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


def test_a_rank_that_hangs_is_named_with_the_stacks_of_all(faulty):
    run, said = faulty
    assert "hang: rank 1 stands in" in said
    (event,) = events(run, "hang")
    assert event["reason"].startswith("hang: rank 1 stands in")
    stacks = run / "stacks" / "attempt-0001"
    assert sorted(path.name for path in stacks.glob("*.txt")) == ["rank-00000.txt", "rank-00001.txt"]
    assert "the_culprit" in (stacks / "rank-00001.txt").read_text()
    assert "the_culprit" not in (stacks / "rank-00000.txt").read_text()
    assert len(events(run, "worker")) == 2, "the run went on"


def test_a_rank_that_raises_brings_all_down_with_its_traceback_first(faulty):
    run, said = faulty
    failure = said[said.index("faulty failed:") :]
    first = failure.index("ValueError: this rank has had enough")
    assert "the_culprit" in failure[:first]
    # The other rank's error, that its peer is gone, may follow; it never comes before.
    assert "gloo" not in failure[:first].lower()
    assert "[Rank 1" in failure[:first]
    assert gone(run)
    # The update of the fourth step needs nobody else; the fifth step cannot be done alone.
    last = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(row["step"] for row in last if row["attempt"] == 2) in (3, 4)
