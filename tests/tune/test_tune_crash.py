"""Sweeps for real: trials are ordinary runs, and whatever is killed, `resume` finishes what was begun."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

STEPS = 40
SWEEP = """
kind: Sweep
name: {name}
job:
  name: base
  workers: {{count: {workers}}}
  model: {{config: {{model_type: llama, hidden_size: 64, intermediate_size: 128, num_hidden_layers: 2,
                    num_attention_heads: 4, max_position_embeddings: 64}}}}
  tokenizer: {{train: {{vocab_size: 512}}}}
  data: {{train: {data}, files: "*.py", sequence_length: 64}}
  batch: {{tokens: 1024}}
  optimizer: {{learning_rate: 3.0e-3}}
  precision: fp32
  evaluate: {{sequences: 4}}
  stop: {{steps: {steps}}}
space: {space}
trials: {trials}
{more}
"""
RATE = "{optimizer.learning_rate: {kind: loguniform, low: 1.0e-3, high: 1.0e-2}}"
ASHA = "scheduler: {kind: asha, rungs: [5, 15], reduction: 2}"


class Site:
    """A storage with data, and the sweeps of one test module on one Ray."""

    def __init__(self, folder: Path, env: dict[str, str], root: Path):
        self.folder, self.root, self.storage = folder, root, folder / "runs"
        self.env = env | {"RAYTRAIN_STORAGE": str(self.storage)}
        (folder / "data").mkdir(exist_ok=True)
        for name in ("ast", "calendar", "csv", "datetime"):
            (folder / "data" / f"{name}.py").write_bytes((Path(os.__file__).parent / f"{name}.py").read_bytes())

    def file(self, name: str, more: str = "", **fields: Any) -> Path:
        path = self.folder / f"{name}.yaml"
        about = {"trials": 3, "space": RATE, "steps": STEPS, "workers": 1, "data": self.folder / "data"} | fields
        path.write_text(SWEEP.format(name=name, more=more, **about))
        return path

    def start(self, path: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        command = [sys.executable, "-m", "raytrain_eks.tune", str(path), *options]
        return subprocess.Popen(
            command, cwd=self.root, env=env or self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, path: Path, *options: str, code: int = 0, env: dict[str, str] | None = None) -> str:
        process = self.start(path, *options, env=env)
        text, _ = process.communicate(timeout=900)
        assert process.returncode == code, text
        return text

    def lines(self, name: str, *parts: str) -> list[dict]:
        path = self.storage.joinpath(name, *parts)
        found = []
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found

    def journal(self, name: str, event: str) -> list[dict]:
        return [line for line in self.lines(name, "trials.jsonl") if line["event"] == event]

    def events(self, name: str, trial: str, event: str) -> list[dict]:
        return [line for line in self.lines(name, "trials", trial, "events.jsonl") if line["event"] == event]

    def summary(self, name: str) -> dict[str, Any]:
        return json.loads((self.storage / name / "sweep.json").read_text())

    def trained(self, name: str) -> int:
        """Steps that were really done by all trials."""
        return sum(len(path.read_text().splitlines()) for path in self.storage.glob(f"{name}/trials/*/metrics.jsonl"))

    def wait_for(self, true: Callable[[], bool], process: subprocess.Popen) -> None:
        end = time.monotonic() + 600
        while not true():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end
            time.sleep(0.05)


@pytest.fixture(scope="module")
def site(tmp_path_factory, ray_head, root) -> Site:
    # The mark of a local head: some of its CPUs are for everything else.
    return Site(tmp_path_factory.mktemp("sweeps"), ray_head.env | {"RAYTRAIN_LOCAL_HEAD": "tests"}, root)


def test_a_killed_rank_and_a_killed_driver_cost_a_few_steps(site):
    path = site.file("killed")
    process = site.start(path)

    def at(trial: str, step: int) -> bool:
        return any(line["step"] >= step for line in site.lines("killed", "trials", trial, "metrics.jsonl"))

    site.wait_for(lambda: at("t0001", 12), process)
    os.kill(site.events("killed", "t0001", "worker")[0]["ranks"][0]["pid"], signal.SIGKILL)
    site.wait_for(lambda: bool(site.events("killed", "t0001", "restored")), process)
    site.wait_for(lambda: at("t0003", 12), process)
    process.kill()
    process.communicate()
    before = {name: site.lines("killed", "trials", name, "summary.json") for name in ("t0001", "t0002")}
    text = site.run(path)
    body = site.summary("killed")
    assert [trial["state"] for trial in body["trials"]] == ["completed"] * 3, text
    assert {name: site.lines("killed", "trials", name, "summary.json") for name in before} == before
    assert body["state"] == "complete"
    assert site.trained("killed") <= 3 * STEPS * 1.05
    assert body["trained_steps"] == site.trained("killed")
    # Data was prepared once, and the third trial found a process with all its imports done.
    assert len(list((site.storage / ".data").iterdir())) == 1
    (line,) = [line for line in text.splitlines() if "at a time" in line]
    assert line.startswith("3 trials x 1 worker on ")
    export = site.storage / "killed" / body["export"]
    assert (export / "model.safetensors").is_file()
    assert (site.storage / "killed" / "report.html").is_file()
    site.run(path)
    assert site.summary("killed")["trained_steps"] == body["trained_steps"]


def test_a_trial_is_an_ordinary_run(site, tmp_path):
    """The best trial's job file, run by itself, has the same losses to the last bit; rungs do not show. One trial at a
    time, so that it has as many CPU threads."""
    site.run(site.file("halved", f"{ASHA}\nconcurrency: 1", trials=4))
    body = site.summary("halved")
    assert {trial["state"] for trial in body["trials"]} <= {"completed", "stopped"}
    workers = {site.events("halved", trial["trial"], "worker")[0]["ranks"][0]["pid"] for trial in body["trials"]}
    assert len(workers) == 1, "the process was not kept for the next trial"
    job = site.storage / "halved" / "trials" / body["best"] / "job.yaml"
    command = [sys.executable, "-m", "raytrain_eks.train", str(job), "--storage", str(tmp_path)]
    subprocess.run(command, cwd=site.root, env=site.env, check=True, capture_output=True, timeout=900)

    def losses(folder: Path) -> list[float]:
        return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]

    assert losses(tmp_path / body["best"]) == losses(job.parent)


def test_population_based_training_clones_for_real_and_survives_a_kill(site):
    path = site.file("pbt", "scheduler: {kind: pbt, every: 10, resample: 0, factors: [0.5]}", trials=4, steps=30)
    process = site.start(path)
    site.wait_for(lambda: bool(site.journal("pbt", "cloned")), process)
    process.kill()
    process.communicate()
    site.run(path)
    body = site.summary("pbt")
    assert [trial["state"] for trial in body["trials"]] == ["completed"] * 4
    clones = site.journal("pbt", "cloned")
    assert [(line["gate"], line["donor_step"]) for line in clones] == [(0, 10), (1, 20)]
    rates = {line["trial"]: line["parameters"]["optimizer.learning_rate"] for line in site.journal("pbt", "created")}
    for line in clones:
        mine, step = line["parameters"]["optimizer.learning_rate"], line["donor_step"]
        assert mine == pytest.approx(rates[line["donor"]] / 2, rel=1e-4)
        rates[line["trial"]] = mine
        assert step in [event["step"] for event in site.events("pbt", line["trial"], "restored")]
        newest = {each["step"]: each for each in site.lines("pbt", "trials", line["trial"], "metrics.jsonl")}
        donors = {each["step"]: each for each in site.lines("pbt", "trials", line["donor"], "metrics.jsonl")}
        # The schedule goes on from the donor's place, under the new peak; the data goes on as well.
        ratio = newest[step + 1]["learning_rate"] / donors[step + 1]["learning_rate"]
        assert ratio == pytest.approx(mine / rates[line["donor"]], rel=1e-3)
        assert newest[step + 1]["first_id"] == donors[step + 1]["first_id"]
        lineage = json.loads((site.storage / "pbt" / "trials" / line["trial"] / "lineage.json").read_text())
        assert {"donor": line["donor"], "step": step} in lineage
    assert site.trained("pbt") <= 4 * 30 * 1.05 + 4


def test_trials_that_cannot_run_or_diverge_are_marked_and_the_others_go_on(site):
    # Rotary embeddings need an even head, and 60 / 4 is odd: the model's first forward pass finds it.
    space = "{model.config.hidden_size: {kind: grid, values: [64, 60]},"
    space += " optimizer.learning_rate: {kind: grid, values: [1.0e-3, 1.0e+12]}}"
    site.run(site.file("mixed", "search: {kind: grid}", space=space, trials=4, steps=20))
    found = {tuple(trial["parameters"].values()): trial for trial in site.summary("mixed")["trials"]}
    assert found[64, 1.0e-3]["state"] == "completed"
    assert found[64, 1.0e12]["state"] in ("diverged", "completed")
    for rate in (1.0e-3, 1.0e12):
        assert found[60, rate]["state"] == "failed"
        assert found[60, rate]["reason"]
    assert site.summary("mixed")["best"] == found[64, 1.0e-3]["trial"]


@pytest.fixture
def bucket(monkeypatch) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of a bucket, and the environment in which it is reached."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    env = {"AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    env |= {"AWS_REGION": "us-west-2", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3", region_name="us-west-2")
    client.create_bucket(Bucket="sweeps", CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    yield "s3://sweeps/all", env
    stop = threading.Thread(target=server.stop)
    stop.start()
    stop.join(10)


def test_a_sweep_on_s3_is_killed_and_goes_on(site, bucket):
    from raytrain_eks.tune.folder import SweepFolder

    url, env = bucket
    # What a job server does with a job's environment: all of its processes have it.
    job = {"RAY_JOB_CONFIG_JSON_ENV_VAR": json.dumps({"runtime_env": {"env_vars": env}})}
    path, there = site.file("far", ASHA, trials=3, steps=20), SweepFolder(url, "far")
    process = site.start(path, "--storage", url, env=site.env | env | job)
    site.wait_for(lambda: any(trial.rungs for trial in there.record().trials.values()), process)
    process.kill()
    process.communicate()
    known = there.record()
    text = site.run(path, "--storage", url, env=site.env | env | job)
    body = there.summary()
    assert body is not None, text
    assert body["state"] == "complete", text
    assert {trial["state"] for trial in body["trials"]} <= {"completed", "stopped"}
    assert there.storage.exists(f"{body['export']}/model.safetensors")
    assert there.storage.exists("report.html")
    for name, trial in known.trials.items():
        now = there.record().trials[name]
        assert {rung: now.rungs[rung] for rung in trial.rungs} == trial.rungs


def test_a_killed_ray_is_resumed_on_a_new_one_by_name(site, doomed_ray):
    path, ray = site.file("cluster", ASHA, trials=3), doomed_ray(site.env)
    follow = ray.follow("sweep", str(path), "--on", "local", "--follow")
    site.wait_for(lambda: bool(site.journal("cluster", "rung")), follow)
    ray.kill()
    text, _ = follow.communicate(timeout=900)
    assert follow.returncode in (1, 4), text
    ray.run("resume", "cluster", "--on", "local", "--follow")
    assert {trial["state"] for trial in site.summary("cluster")["trials"]} <= {"completed", "stopped"}
    assert site.summary("cluster")["state"] == "complete"
    assert [line["trial"] for line in site.journal("cluster", "created")] == ["t0001", "t0002", "t0003"]
