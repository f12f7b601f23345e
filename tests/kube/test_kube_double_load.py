"""Many runs, and a log longer than memory should grow: the verbs against the API double."""

import json
import os
import subprocess
import sys

import pytest
from double import Operator
from double.bodies import ray_job

pytestmark = pytest.mark.slow
VERB = [sys.executable, "-m", "raytrain_eks"]
MIB = 1024
"""ru_maxrss is in KiB."""


def job(run):
    """The RayJob of a run."""
    body = ray_job(f"{run}-1", labels={"raytrain-eks/run": run}, spec={"jobId": f"{run}-1"})
    body["metadata"]["annotations"] = {"raytrain-eks/storage": "/shared/runs"}
    return body


@pytest.fixture
def env(kube_api, tmp_path):
    return {**os.environ, "KUBECONFIG": str(kube_api.kubeconfig(tmp_path)), "XDG_STATE_HOME": str(tmp_path / "state")}


def test_five_hundred_runs_are_listed(kube_api, env, tmp_path):
    kind = kube_api.kinds.named("rayjobs")
    for number in range(500):
        status = {"jobStatus": "RUNNING", "jobDeploymentStatus": "Running", "startTime": "2026-01-01T00:00:00Z"}
        kube_api.server.writer.restore(kind, {**job(f"r{number:03}"), "status": status})
    kube_api.requests.clear()
    words = [*VERB, "ls", "--on", "eks", "-o", "json"]
    done = subprocess.run(words, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert [row["run"] for row in json.loads(done.stdout)] == [f"r{number:03}" for number in range(500)]
    assert [seen.verb for seen in kube_api.requests].count("list") == 1, "no request for each run"


def followed(api, env, folder, lines):
    """Peak memory in KiB of a process that shows a log of so many lines, all of which arrive."""
    operator = Operator(api)
    api.objects.put(job("big"))
    operator.settle()
    [pod] = operator.submitters("big-1")
    # As long as a traceback's lines, so that memory would tell if they were kept.
    api.logs[f"training/{pod['metadata']['name']}"] = lambda: (f"line {number} {'x' * 500}" for number in range(lines))
    operator.entry("big-1").finish()
    operator.settle()
    shown = folder / "shown"
    with shown.open("wb") as out:
        process = subprocess.Popen([*VERB, "logs", "big", "-f", "--on", "eks"], env=env, cwd=folder, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    with shown.open("rb") as text:
        assert [int(line.split()[1]) for line in text] == list(range(lines)), "no line twice, none lost"
    api.clear()
    return used.ru_maxrss


def test_a_long_log_takes_no_more_memory_than_a_short_one(kube_api, env, tmp_path):
    short = followed(kube_api, env, tmp_path, 10_000)
    long = followed(kube_api, env, tmp_path, 150_000)
    assert long - short < 30 * MIB, "of 75 MiB"
