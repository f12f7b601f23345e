"""A crash at any instant costs the steps since the last checkpoint, and the run that comes back is the run that would
have been: the same samples, learning rates and losses, to the last bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

STEPS, EVERY = 120, 10
JOB = """
kind: Job
name: {name}
workers: {workers}
model: {{config: {{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 3,
                  num_attention_heads: 4, max_position_embeddings: 128}}}}
tokenizer: {{train: {{vocab_size: 512}}}}
data: {{train: {data}, files: "*.py", sequence_length: 128}}
batch: {{tokens: 2048}}
optimizer: {{learning_rate: 3.0e-3}}
precision: fp32
engine: {engine}
evaluate: {{every: 20, sequences: 8}}
checkpoint: {{every: {every}, keep: 2}}
stop: {{steps: {steps}}}
failures: {{restarts: {restarts}}}
"""


class Site:
    """A storage with data, and the jobs of one test module on one Ray."""

    def __init__(self, folder: Path, head, root: Path):
        self.folder, self.root = folder, root
        self.storage = folder / "runs"
        self.env = head.env | {"RAYTRAIN_STORAGE": str(self.storage)}
        (folder / "data").mkdir()
        stdlib = Path(os.__file__).parent
        for name in (
            "ast",
            "argparse",
            "calendar",
            "csv",
            "datetime",
            "difflib",
            "doctest",
            "inspect",
            "pathlib",
            "pdb",
        ):
            (folder / "data" / f"{name}.py").write_bytes((stdlib / f"{name}.py").read_bytes())

    def file(
        self,
        name: str,
        *,
        engine: str = "{kind: torch}",
        steps: int = STEPS,
        restarts: int = 0,
        workers: str = "{count: 2}",
    ) -> Path:
        path = self.folder / f"{name}.yaml"
        fields = {"name": name, "data": self.folder / "data", "engine": engine, "steps": steps, "restarts": restarts}
        path.write_text(JOB.format(every=EVERY, workers=workers, **fields))
        return path

    def start(self, path: Path, *options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "raytrain_eks.train", str(path), *options]
        return subprocess.Popen(
            command, cwd=self.root, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, path: Path, *options: str, code: int = 0) -> str:
        process = self.start(path, *options)
        text, _ = process.communicate(timeout=900)
        assert process.returncode == code, text
        return text

    def losses(self, name: str) -> dict[int, tuple[float, float, int]]:
        """Step -> loss, learning rate, first sample; a step that was done twice has the newest."""
        lines = (self.storage / name / "metrics.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        return {row["step"]: (row["loss"], row["learning_rate"], row["first_id"]) for row in rows}

    def wait_for_step(self, name: str, step: int, process: subprocess.Popen) -> None:
        path, end = self.storage / name / "metrics.jsonl", time.monotonic() + 600
        while not (path.exists() and f'"step": {step},' in path.read_text()):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.05)

    def wait_for_event(self, name: str, event: str, process: subprocess.Popen, count: int = 1) -> dict:
        """The event that comes as the `count`-th of its kind."""
        end = time.monotonic() + 600
        while len(found := self.events(name, event)) < count:
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end, (event, count)
            time.sleep(0.05)
        return found[count - 1]

    def events(self, name: str, event: str) -> list[dict]:
        lines = (self.storage / name / "events.jsonl").read_text().splitlines()
        return [row for row in map(json.loads, lines) if row["event"] == event]


@pytest.fixture(scope="module")
def site(tmp_path_factory, ray_head, root) -> Site:
    return Site(tmp_path_factory.mktemp("crash"), ray_head, root)


@pytest.fixture(scope="module")
def clean(site):
    """The run that nobody killed."""
    site.run(site.file("clean"))
    found = site.losses("clean")
    assert list(found) == list(range(1, STEPS + 1))
    return found


def test_a_killed_worker_a_killed_driver_and_a_stop_do_not_show(site, clean):
    """One run that all of it happens to: its losses are those of the run that nobody touched."""
    path = site.file("hurt", restarts=2)
    process = site.start(path)
    site.wait_for_step("hurt", 15, process)
    os.kill(site.events("hurt", "worker")[0]["ranks"][1]["pid"], signal.SIGKILL)
    replaced = site.wait_for_event("hurt", "restored", process)
    assert replaced["step"] >= 10
    assert replaced["attempt"] == 2
    site.wait_for_step("hurt", replaced["step"] + 12, process)
    process.kill()
    process.communicate()

    process = site.start(path)
    resumed = site.wait_for_event("hurt", "restored", process, 2)
    assert resumed["step"] >= replaced["step"] + 10
    site.wait_for_step("hurt", resumed["step"] + 3, process)
    process.terminate()
    text, _ = process.communicate(timeout=900)
    assert process.returncode == 0, text
    (stopped,) = site.events("hurt", "stopped")
    assert resumed["step"] + 3 <= stopped["step"] < STEPS
    assert (site.storage / "hurt" / "checkpoints" / f"step-{stopped['step']:08d}" / "manifest.json").is_file()
    assert json.loads((site.storage / "hurt" / "summary.json").read_text())["status"] == "stopped"

    site.run(path)
    assert site.losses("hurt") == clean
    assert [event["step"] for event in site.events("hurt", "restored")][2:] == [stopped["step"]]


def test_a_killed_ray_is_resumed_on_a_new_one_by_name(site, clean, doomed_ray):
    path, ray = site.file("cluster"), doomed_ray(site.env)
    follow = ray.follow("submit", str(path), "--on", "local", "--follow")
    site.wait_for_step("cluster", 25, follow)
    ray.kill()
    text, _ = follow.communicate(timeout=900)
    assert follow.returncode in (1, 4), text
    ray.run("resume", "cluster", "--on", "local", "--follow")
    assert site.losses("cluster") == clean
    (restored,) = site.events("cluster", "restored")
    assert restored["step"] >= 20


def test_a_finished_run_is_complete_and_raising_the_stop_extends_it(site, clean):
    path = site.file("clean")
    text = site.run(path)
    assert f"clean is already complete, {STEPS} steps" in text
    assert "raise `stop`" in text
    site.run(site.file("clean", steps=STEPS + 10))
    assert max(site.losses("clean")) == STEPS + 10
    assert [event["step"] for event in site.events("clean", "restored")] == [STEPS]


def test_a_changed_file_is_refused_with_the_fields_that_differ(site, clean):
    path = site.file("clean")
    path.write_text(path.read_text().replace("3.0e-3", "1.0e-3"))
    text = site.run(path, code=3)
    assert "optimizer.learning_rate" in text
    assert "0.003" in text
    assert "--resume" in text


def test_deepspeed_has_the_same_losses(site, clean):
    site.run(site.file("zero", engine="{kind: deepspeed, zero: 2}"))
    found = site.losses("zero")
    assert [row[1:] for row in found.values()] == [row[1:] for row in clean.values()]
    assert [row[0] for row in found.values()] == pytest.approx([row[0] for row in clean.values()], abs=1e-3)


@pytest.mark.skipif(
    not os.environ.get("RAYTRAIN_ELASTIC"), reason="three Ray nodes want a machine for themselves: RAYTRAIN_ELASTIC=1"
)
def test_nodes_are_drained_lost_and_come_back_and_the_run_goes_on_with_one_worker_and_with_two(site, clean, tmp_path):
    """A spot notice: a checkpoint at once. The raylet is killed: on with one worker. A new node: on with two."""
    here = Path(__file__).parent
    env = {
        key: value for key, value in site.env.items() if key not in ("RAY_AUTH_TOKEN_PATH", "RAY_API_SERVER_ADDRESS")
    }
    env |= {"RAY_AUTH_MODE": "disabled", "RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S": "0.5"}
    env["RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S"] = "20"
    del env["RAY_ADDRESS"]
    slow = tmp_path / "slow"
    slow.touch()
    nodes = subprocess.Popen(
        [sys.executable, here / "nodes.py"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )

    def tell(text: str) -> None:
        nodes.stdin.write(text + "\n")
        nodes.stdin.flush()
        assert nodes.stdout.readline() == "ok\n"

    process = None
    try:
        env["RAY_ADDRESS"] = nodes.stdout.readline().strip()
        path = site.file("elastic", restarts=5, workers="{count: 2, min: 1}")
        command = [sys.executable, here / "slow_driver.py", slow, path]
        process = subprocess.Popen(
            command, cwd=site.root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        site.wait_for_step("elastic", 12, process)
        lost = site.events("elastic", "worker")[0]["ranks"][1]["node"]
        tell(f"drain {lost} 30")
        noticed = site.wait_for_event("elastic", "reclaimed", process)
        while not any(event["step"] == noticed["step"] for event in site.events("elastic", "checkpoint")):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.05)
        tell(f"kill {lost}")
        assert site.wait_for_event("elastic", "worker", process, 2)["world"] == 1
        assert site.wait_for_event("elastic", "restored", process)["step"] >= noticed["step"]
        tell("add")
        assert site.wait_for_event("elastic", "worker", process, 3)["world"] == 2
        slow.unlink()
        text, _ = process.communicate(timeout=900)
        assert process.returncode == 0, text
    finally:
        nodes.stdin.close()
        nodes.wait(60)
        if process is not None:
            process.kill()
    found = site.losses("elastic")
    assert [row[1:] for row in found.values()] == [row[1:] for row in clean.values()]
    assert [row[0] for row in found.values()] == pytest.approx([row[0] for row in clean.values()], abs=1e-3)
