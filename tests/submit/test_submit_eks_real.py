"""`--on eks` from a job file to a trained model: the RayJob's entrypoint runs on a real Ray behind the API double, its
cluster is lost in the middle, and the run that comes back is the run that would have been."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest
from double.entrypoint import OnRay, Running
from double.operator import Operator
from double.volumes import Volumes
from eks_site import Site

pytestmark = pytest.mark.slow
STEPS = 150


class Lost(Running):
    """A driver whose cluster can be lost: its worker is killed, so nothing is saved at the end."""

    def forget(self) -> None:
        for event in events(OnLosable.run, "worker"):
            for rank in event["ranks"]:
                os.kill(rank["pid"], signal.SIGKILL)
        super().forget()


class OnLosable(OnRay):
    """Starts such drivers."""

    run: ClassVar[Path]

    def __call__(self, job: dict[str, Any], log: Any) -> Running:
        started = super().__call__(job, log)
        started.__class__ = Lost
        return started


def events(run: Path, name: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [event for event in found if event["event"] == name]


def metrics(run: Path) -> list[dict[str, Any]]:
    file = run / "metrics.jsonl"
    return (
        [json.loads(line) for line in file.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if (file.exists())
        else []
    )


def test_a_run_that_lost_its_cluster_goes_on_as_if_nothing_had_been(kube_api, ray_head, tmp_path):
    token = {"RAY_AUTH_TOKEN_PATH": str(ray_head.token_file)}
    plain = {name: value for name, value in ray_head.env.items() if not name.startswith("RAY_")}
    site = Site(tmp_path, kube_api, env=plain | token, auth="token")
    run = site.mount / "runs" / "tiny"
    (site.mount / "data").mkdir(parents=True)
    for name in ("ast", "csv"):
        source = Path(os.__file__).parent / f"{name}.py"
        (site.mount / "data" / source.name).write_bytes(source.read_bytes())
    OnLosable.run = run
    start = OnLosable(ray_head.url, ray_head.token, Volumes(kube_api, tmp_path))
    with Operator(kube_api, start=start, dashboard=ray_head.url) as operator:
        file = site.job(data=str(site.mount / "data"), steps=STEPS)
        follower = site.start("submit", file, "--on", "eks", "--follow")
        end = time.monotonic() + 600
        while not any(line["step"] >= 15 for line in metrics(run)):
            assert follower.poll() is None, follower.communicate()[0]
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)
        (first,) = site.rayjobs()
        operator.lose_cluster(first["metadata"]["name"])
        told, _ = follower.communicate(timeout=300)
        assert follower.returncode == 1, told
        assert "raytrain-eks resume tiny" in told or "failed" in told
        lost = json.loads(site.run("status", "tiny", "-o", "json").stdout)
        assert lost["state"] == "failed"
        assert lost["checkpoint"] >= 10

        resumed = site.run("resume", "tiny", "--follow", timeout=900)
        assert resumed.returncode == 0, resumed.stderr
        assert f"step {STEPS}/{STEPS}" in resumed.stderr
        status = json.loads(site.run("status", "tiny", "-o", "json").stdout)
        again = site.run("submit", file, "--on", "eks")
        rank = site.run("logs", "tiny", "--rank", "0")
    assert len(site.rayjobs()) == 2
    twice: dict[int, set[tuple[float, float]]] = {}
    for line in metrics(run):
        twice.setdefault(line["step"], set()).add((line["loss"], line["learning_rate"]))
    assert sorted(twice) == list(range(1, STEPS + 1))
    assert {len(each) for each in twice.values()} == {1}, "steps that were done again have the same losses"
    (restored,) = events(run, "restored")
    assert restored["step"] == lost["checkpoint"]
    assert (status["state"], status["step"], status["attempt"]) == ("complete", STEPS, 2)
    assert 0 < status["goodput"] < 1
    assert (again.returncode, "already complete" in again.stderr) == (0, True)
    assert rank.returncode == 2, "its cluster is gone"
    assert "--workers=1xCPU" in first["spec"]["entrypoint"]
    assert ray_head.token not in json.dumps(site.rayjobs())
