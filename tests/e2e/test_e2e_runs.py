"""Runs on a real Kubernetes: trained, not trained twice, lost and resumed, waiting with a reason, cancelled."""

import json
import time

import pytest

pytestmark = pytest.mark.slow
STEPS = 30


def status(site, run):
    done = site.run("status", run, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def wait(site, run, what):
    """Until the status is so; the status."""
    end = time.monotonic() + site.minutes * 60
    while not what(found := status(site, run)):
        assert time.monotonic() < end, found["phase"]
        assert found["state"] not in ("complete", "failed", "stopped"), found["phase"]
        time.sleep(2)
    return found


def test_a_job_trains_and_is_not_trained_twice(applied):
    file = applied.job("first", steps=STEPS)
    done = applied.run("submit", file, "--on", "eks", "--follow")
    assert done.returncode == 0, done.stderr
    assert f"step {STEPS}/{STEPS}" in done.stdout + done.stderr
    assert status(applied, "first")["state"] == "complete"
    log = applied.run("logs", "first")
    assert log.returncode == 0
    assert f"step {STEPS}/{STEPS}" in log.stdout
    again = applied.run("submit", file, "--on", "eks", "--follow")
    assert again.returncode == 0
    assert "already complete" in again.stdout + again.stderr


def test_a_job_runs_in_the_cluster_that_is_there(applied):
    file = applied.job("inside", steps=STEPS)
    done = applied.run("submit", file, "--on", "eks", "--cluster", applied.name, "--follow")
    assert done.returncode == 0, done.stderr
    assert status(applied, "inside")["state"] == "complete"


def test_a_run_that_lost_its_cluster_is_resumed(applied):
    steps = 400
    file = applied.job("lost", steps=steps)
    assert applied.run("submit", file, "--on", "eks").returncode == 0
    wait(applied, "lost", lambda found: (found["step"] or 0) >= 15)
    clusters = applied.kubectl("get", "raycluster", "-l", "raytrain-eks/run=lost", "-o", "name").split()
    assert clusters, "the operator passes a job's labels on to its cluster"
    names = ",".join(each.rpartition("/")[2] for each in clusters)
    applied.kubectl("delete", "pod", "-l", f"ray.io/cluster in ({names})", "--force", "--grace-period=0")
    end = time.monotonic() + applied.minutes * 60
    while status(applied, "lost")["state"] != "failed":
        assert time.monotonic() < end, "KubeRay tells a lost head by its submitter's failure"
        time.sleep(5)
    resumed = applied.run("resume", "lost", "--follow")
    assert resumed.returncode == 0, resumed.stderr
    told = resumed.stdout + resumed.stderr
    assert f"step {steps}/{steps}" in told
    assert f"step 1/{steps}" not in told, "it goes on from a checkpoint"


def test_a_cancelled_run_saves_a_last_checkpoint_and_goes_on(applied):
    steps = 400
    file = applied.job("stopped", steps=steps)
    assert applied.run("submit", file, "--on", "eks").returncode == 0
    wait(applied, "stopped", lambda found: (found["step"] or 0) >= 5)
    assert applied.run("cancel", "stopped").returncode == 0
    assert status(applied, "stopped")["state"] == "stopped"
    resumed = applied.run("resume", "stopped", "--follow")
    assert resumed.returncode == 0, resumed.stderr
    assert f"step {steps}/{steps}" in resumed.stdout + resumed.stderr


def test_a_job_that_waits_says_why(applied):
    """Its pod asks for more than any node has."""
    text = (applied.folder / "cluster.yaml").read_text()
    if "cpu: 1," not in text:
        pytest.skip("RAYTRAIN_E2E_CLUSTER has no group with `cpu: 1,` that could ask for more")
    (applied.folder / "large.yaml").write_text(text.replace("cpu: 1,", "cpu: 150,"))
    file = applied.job("waits")
    job = (applied.folder / file).read_text().replace("cluster: cluster.yaml", "cluster: large.yaml")
    (applied.folder / file).write_text(job)
    assert applied.run("submit", file, "--on", "eks").returncode == 0
    found = wait(applied, "waits", lambda found: found["state"] == "pending" and found["why"])
    assert any("cpu" in reason.lower() for reason in found["why"]), found["why"]
    assert applied.run("cancel", "waits").returncode == 0


def test_runs_are_listed(applied):
    done = applied.run("ls", "--on", "eks", "-n", applied.name, "-o", "json")
    assert {row["run"] for row in json.loads(done.stdout)} >= {"first", "inside", "lost", "stopped"}
