"""`--on eks` against the API double and its operator: what is made, what is told of it, and how it ends."""

import base64
import json
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from double import ApiDouble, happenings
from double.operator import Operator
from eks_site import NAMESPACE, Site
from jobserver_double import Double

from raytrain_eks.submit import eks as eks_module
from raytrain_eks.submit import eks_code, eks_log, registry
from raytrain_eks.submit.assemble import JobFile
from raytrain_eks.submit.eks import Eks, Options
from raytrain_eks.submit.eks_state import CANCELLED, STORAGE
from raytrain_eks.submit.errors import AlreadyComplete, Busy, Incompatible, Lost, NotAllowed, NotFound, Unreachable
from raytrain_eks.submit.follow import Follower
from raytrain_eks.submit.package import Package
from raytrain_eks.submit.ranks import RankView
from raytrain_eks.submit.run_status import status
from raytrain_eks.submit.start import Started, Wish, again, place_of_run, start, stopped
from raytrain_eks.submit.target import Phase


class Here:
    """A site, its operator, and targets of it in this process."""

    def __init__(self, folder: Path, api: ApiDouble, monkeypatch: pytest.MonkeyPatch):
        self.site, self.api = Site(folder, api), api
        self.operator = Operator(api)
        self.said: list[str] = []
        for name in ("RAYTRAIN_STORAGE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("KUBECONFIG", self.site.env["KUBECONFIG"])
        monkeypatch.setenv("XDG_STATE_HOME", self.site.env["XDG_STATE_HOME"])

    def target(self, **options: Any) -> Eks:
        return Eks(Options(**options))

    def submit(self, name: str = "tiny", *, target: Eks | None = None, **job: Any) -> Started:
        file = JobFile.read(self.site.folder / self.site.job(name, **job))
        return self.start(file, target or self.target())

    def start(self, file: JobFile, target: Eks, storage: str | None = None) -> Started:
        wish = Wish(folder=self.site.folder, working_dir=self.site.folder, storage=storage, limit=10**7)
        return start(file, target, wish, self.said.append)

    def entry(self) -> Any:
        self.operator.settle()
        return self.operator.entry(self.site.rayjobs()[-1]["metadata"]["name"])


@pytest.fixture
def here(tmp_path, api, monkeypatch) -> Here:
    monkeypatch.setattr(eks_module, "FRESH_S", 0.0)
    monkeypatch.setattr(eks_module, "WHY_S", 0.0)
    monkeypatch.setattr(eks_log, "PAUSE_S", 0.05)
    monkeypatch.setattr(eks_code, "of_library", lambda: Package(Path(), ()))
    return Here(tmp_path, api, monkeypatch)


def test_a_job_becomes_a_rayjob_that_says_all_about_it(here):
    started = here.submit(workers="{nodes: 2}")
    (job,) = here.site.rayjobs()
    spec, annotations = job["spec"], job["metadata"]["annotations"]
    storage = f"{here.site.mount}/runs"
    assert spec["entrypoint"] == f"exec python -m raytrain_eks.train --storage={storage} --workers=2xCPU tiny.yaml"
    assert (spec["jobId"], spec["metadata"]["raytrain_run"]) == (started.id, "tiny")
    assert [group["replicas"] for group in spec["rayClusterSpec"]["workerGroupSpecs"]] == [2]
    assert (annotations[STORAGE], started.storage) == (storage, storage)
    assert annotations["raytrain-eks/job"] == (here.site.folder / "tiny.yaml").read_text()
    (code,) = [
        each for each in here.api.objects.all("configmaps", NAMESPACE) if each["metadata"]["name"] != "kube-root-ca.crt"
    ]
    assert base64.b64decode(code["binaryData"]["working_dir.zip.xz"])
    assert code["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]
    record = registry.recall("tiny")
    assert record is not None
    assert (record.on, record.access) == ("eks", {"namespace": NAMESPACE, "context": "double"})


def test_the_same_run_is_not_started_twice_and_a_finished_one_says_so(here):
    here.submit()
    with pytest.raises(Busy, match="runs already"):
        here.submit()
    here.entry().finish()
    here.operator.settle()
    with pytest.raises(AlreadyComplete, match="already complete"):
        here.submit()
    here.submit(steps=30)
    assert len(here.site.rayjobs()) == 2, "a run that is extended is no finished one"


def test_a_pending_job_tells_why_as_a_person_would(here):
    here.operator.clusters.blocked["cpu"] = happenings.insufficient("nvidia.com/gpu")
    started = here.submit()
    here.operator.settle()
    found = status("tiny", storage=None, target=here.target(), job_id=started.id)
    assert found.state == "pending"
    assert "no node of 3 takes it" in found.phase
    assert [(pod.role, pod.phase) for pod in found.pods] == [("head", "Running"), ("cpu", "Pending")]
    assert json.dumps([vars(pod) for pod in found.pods])


def test_what_only_events_tell_is_told(here):
    started = here.submit()
    here.operator.settle()
    cluster = here.api.objects.all("rayclusters")[0]
    here.api.event(cluster, "InvalidRayClusterSpec", "headGroupSpec should have at least one container", type="Warning")
    assert any("headGroupSpec should have at least" in line for line in here.target().details(started.id).why)


def test_a_queue_that_is_full_is_told(here):
    here.operator.kueue.full = happenings.kueue_no_quota()
    text = (here.site.folder / "cluster.yaml").read_text() + "queue: {kind: kueue, name: q}\n"
    (here.site.folder / "cluster.yaml").write_text(text)
    place = {"name": "q", "namespace": NAMESPACE}
    here.api.objects.put(
        {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "LocalQueue", "metadata": place, "spec": {"clusterQueue": "q"}}
    )
    started = here.submit()
    here.operator.settle()
    state = here.target().job(started.id)
    assert state is not None
    assert state.phase is Phase.PENDING
    assert "quota" in state.message


def test_an_invalid_job_is_a_failed_one(here):
    started = here.submit()
    here.operator.invalid[here.site.rayjobs()[0]["metadata"]["name"]] = "The RayJob spec is invalid: J1"
    here.operator.settle()
    found = status("tiny", storage=None, target=here.target(), job_id=started.id)
    assert found.state == "failed"
    assert "J1" in found.phase


def test_a_job_is_followed_to_its_end(here):
    started = here.submit()
    entry = here.entry()
    lines: list[str] = []
    follower = Follower(here.target(), started.id, say=here.said.append)
    thread = threading.Thread(target=lambda: lines.extend(follower.lines()))
    with here.operator:
        thread.start()
        entry.say("Running entrypoint for job x: y", *(f"line {n}" for n in range(500)))
        entry.say("step 7/20  loss 5.5000  lr 1.0e-03  100 tok/s  eta 1m30s")
        now = status("tiny", storage=None, target=here.target(), job_id=started.id)
        entry.say("tiny stopped: 8 steps, 99 tokens")
        entry.finish()
        thread.join(timeout=300)
    assert (now.state, now.step, now.steps, now.eta_s) == ("running", 7, 20, 90.0)
    assert [line for line in lines if line.startswith("line")] == [f"line {n}" for n in range(500)]
    assert lines[-1] == "tiny stopped: 8 steps, 99 tokens"
    assert follower.state is not None
    assert follower.state.phase is Phase.SUCCEEDED
    over = status("tiny", storage=None, target=here.target(), job_id=started.id)
    assert (over.state, over.attempt) == ("stopped", None), "its log tells it where its folder is out of reach"
    assert b"line 499" in b"".join(here.target().log(follower.state))


def test_the_exit_code_of_the_driver_is_told(here):
    started = here.submit()
    here.entry().finish("FAILED", "Job entrypoint command failed with exit code 3, last available logs (truncated):\nx")
    here.operator.settle()
    state = here.target().job(started.id)
    assert state is not None
    assert (state.phase, state.exit_code) == (Phase.FAILED, 3)


def test_a_job_that_has_not_begun_is_taken_back(here):
    here.operator.clusters.blocked["cpu"] = happenings.insufficient()
    started = here.submit()
    here.operator.settle()
    target = here.target()
    assert target.stop(started.id) is True
    here.operator.settle()
    assert target.job(started.id) is None
    assert here.api.objects.names("rayclusters") == []
    assert here.api.objects.names("configmaps", NAMESPACE) in ([], ["kube-root-ca.crt"])


def test_a_run_whose_folder_is_here_is_asked_by_it(here):
    from raytrain_eks.checkpoint.run import RunFolder
    from raytrain_eks.train.control import stop_requested

    started = here.submit()
    entry = here.entry()
    file = JobFile.read(here.site.folder / "tiny.yaml")
    folder = RunFolder(started.storage, "tiny")
    folder.claim(file.job)
    assert here.target().stop(started.id) is True
    assert stop_requested(folder)
    entry.finish()
    here.operator.settle()
    assert stopped(here.target(), started.id, timeout=5)
    assert CANCELLED in here.site.rayjobs()[0]["metadata"]["annotations"]


@pytest.fixture
def head(here):
    """A job server behind the service proxy, that wants a token."""
    server = Double(token="of-the-cluster")
    here.operator.clusters.dashboard = server.url
    yield server
    server.close()


def with_token(here: Here) -> None:
    text = (here.site.folder / "cluster.yaml").read_text().replace("auth: disabled", "auth: token")
    (here.site.folder / "cluster.yaml").write_text(text)


def test_a_run_whose_folder_is_not_here_is_asked_by_its_head(here, head):
    with_token(here)
    started = here.submit()
    here.entry()
    target = here.target()
    with pytest.raises(Unreachable, match="--now"):
        target.stop(started.id)
    name = here.api.objects.all("rayclusters")[0]["metadata"]["name"]
    head.token = base64.b64decode(here.api.objects.get("secrets", name)["data"]["auth_token"]).decode()
    head.answers[f"/api/jobs/{started.id}/stop"] = (200, b'{"stopped": true}')
    assert target.stop(started.id) is True
    asked = [(method, path, headers) for method, path, headers, _ in head.seen if path.endswith("/stop")]
    assert asked[-1][0] == "POST"
    assert asked[-1][2].get("X-Ray-Authorization") == f"Bearer {head.token}"
    assert head.token not in json.dumps(here.site.rayjobs())
    assert target.end(started.id) is True
    here.operator.settle()
    assert here.site.rayjobs() == []


def test_a_rank_has_a_log_of_its_own(here, head):
    started = here.submit()
    entry = here.entry()
    head.token = None
    head.log = [b"mine\n", b"too\n"]
    target = here.target()
    state = target.job(started.id)
    view = RankView(target, "tiny", 1, storage=started.storage)
    with pytest.raises(NotFound, match="have not begun"):
        view.log(state)
    entry.say("Running entrypoint for job x: y", "ranks on a (node 00ff): 0=7", "ranks on b (node 11ee): 1=8")
    assert b"".join(view.log(state)) == b"mine\ntoo\n"
    assert any("node_id=11ee&pid=8" in path for _, path, _, _ in head.seen)
    head.answers["/api/v0/logs/file"] = (500, b"FileNotFoundError: Could not find a log file. Please\n\tpid: 8\n")
    with pytest.raises(NotFound, match="no such log"):
        view.log(state)
    with pytest.raises(NotFound, match="there are 0 to 1"):
        RankView(target, "tiny", 2, storage=None).log(state)


def test_resume_needs_neither_the_folder_nor_the_machine_that_submitted(here):
    started = here.submit()
    here.entry().finish("FAILED", "Job supervisor actor died unexpectedly.")
    here.operator.settle()
    target = here.target()
    place = place_of_run("tiny", None, None, target)
    assert place == started.storage
    file, *_ = again("tiny", target, place, None)
    assert file.content == (here.site.folder / "tiny.yaml").read_bytes()
    assert here.start(file, target, storage=place).id != started.id


def ray_cluster(here: Here, **spec: Any) -> None:
    container = {"name": "ray", "image": "registry/ray:2.60.0"}
    template = {"spec": {"containers": [container]}}
    group = {"groupName": "w", "minReplicas": 0, "maxReplicas": 3, "replicas": 0, "template": template}
    body = {"rayVersion": "2.60.0", "headGroupSpec": {"rayStartParams": {}, "template": template}}
    body |= {"workerGroupSpecs": [group]} | spec
    metadata = {"name": "there", "namespace": NAMESPACE}
    here.api.objects.put({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": body})
    here.operator.settle()


def test_an_existing_cluster_takes_a_job(here, head):
    head.token = None
    ray_cluster(here)
    target = here.target(cluster="there")
    file = JobFile.read(here.site.folder / here.site.job(workers="{nodes: 3}"))
    here.start(file, target, storage="s3://bucket/runs")
    (job,) = here.site.rayjobs()
    assert job["spec"]["clusterSelector"] == {"ray.io/cluster": "there"}
    assert "--workers=3xCPU" in job["spec"]["entrypoint"]
    assert "rayClusterSpec" not in job["spec"]
    record = registry.recall("tiny")
    assert record is not None
    assert record.access["cluster"] == "there"
    with pytest.raises(NotFound, match="it has there"):
        here.target(cluster="nowhere").place(file, here.site.folder)
    assert Eks(Options()).kept("tiny", None) is not None


def test_another_ray_is_refused_with_both_versions(here, head):
    head.token, head.ray = None, "2.41.0"
    ray_cluster(here)
    file = JobFile.read(here.site.folder / here.site.job(workers="{nodes: 1}"))
    with pytest.raises(Incompatible, match=r"2\.41\.0 there and 2\.60"):
        here.start(file, here.target(cluster="there"), storage="s3://bucket/runs")
    here.start(file, here.target(cluster="there", any_version=True), storage="s3://bucket/runs")


@pytest.mark.parametrize("name", ["python", "ray"])
def test_so_is_another_version_in_the_files_image(here, name):
    change = {
        "python": ("registry/raytrain:2.60", "rayproject/ray:2.60.0-py39"),
        "ray": ("ray: {", "ray: {version: 2.41.0, "),
    }
    path = here.site.folder / "cluster.yaml"
    path.write_text(path.read_text().replace(*change[name]))
    with pytest.raises(Incompatible, match=r"3\.9 there|2\.41\.0 there"):
        here.submit()


def test_what_the_cluster_file_would_have_made_is_missed(here):
    here.api.objects.delete(here.api.objects.get("serviceaccounts", "site"))
    with pytest.raises(Exception, match=r"no ServiceAccount site(?s:.*)raytrain-eks apply"):
        here.submit()
    assert here.site.rayjobs() == []


def test_who_may_not_is_told_before_anything_is_made(here):
    here.api.rbac.deny(user="admin", verb="create", resource="rayjobs")
    with pytest.raises(NotAllowed, match=r"create rayjobs\.ray\.io"):
        here.submit()
    assert here.api.objects.names("configmaps", NAMESPACE) in ([], ["kube-root-ca.crt"])


@pytest.mark.parametrize(
    ("hard", "used", "words"),
    [
        ({"requests.cpu": "1"}, {}, "nothing was submitted"),
        ({"requests.cpu": "4"}, {"requests.cpu": "3"}, None),
        ({"pods": "2"}, {}, "allows 2 pods"),
        ({"requests.memory": "100Gi"}, {}, ""),
    ],
)
def test_quota_is_looked_at(here, hard, used, words):
    metadata = {"name": "q", "namespace": NAMESPACE}
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    here.api.objects.put(body | {"status": {"hard": hard, "used": used}})
    if words:
        with pytest.raises(Exception, match=words):
            here.submit()
        return
    here.submit()
    assert any("has 1 CPU left" in line for line in here.said) is (words is None)


def test_a_deleted_job_is_lost_to_its_follower(here):
    started = here.submit()
    entry = here.entry()
    entry.say("Running entrypoint for job x: y")
    follower = Follower(here.target(), started.id, say=here.said.append)
    lines = follower.lines()
    assert next(lines).startswith("Running")
    here.target().end(started.id)
    here.operator.settle()
    with pytest.raises(Lost, match="RayJob was deleted"):
        list(lines)


SWEEP = """\
kind: Sweep
name: search
job: {job}
space:
  optimizer.learning_rate: {{kind: loguniform, low: 1.0e-4, high: 1.0e-2}}
objective: {{metric: eval_loss, mode: min}}
trials: 4
concurrency: 2
"""


def test_a_sweep_goes_the_same_way(here):
    path = here.site.folder / "sweep.yaml"
    path.write_text(SWEEP.format(job=here.site.folder / here.site.job(workers="{nodes: 1}")))
    here.start(JobFile.read(path), here.target())
    (body,) = here.site.rayjobs()
    assert "-m raytrain_eks.tune" in body["spec"]["entrypoint"]
    assert "--workers" not in body["spec"]["entrypoint"]
    assert body["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replicas"] == 2
    here.entry().finish()
    here.operator.settle()
    with pytest.raises(AlreadyComplete):
        here.start(JobFile.read(path), here.target())


def test_500_jobs_are_listed_in_pages(here):
    here.submit()
    (body,) = here.site.rayjobs()
    for number in range(500):
        metadata = {"name": f"r-{number}", "namespace": NAMESPACE, "labels": {"raytrain-eks/run": f"r-{number}"}}
        here.api.objects.put(
            {
                "apiVersion": body["apiVersion"],
                "kind": "RayJob",
                "metadata": metadata,
                "spec": {"entrypoint": "x"} | _SPEC,
            }
        )
    began = time.monotonic()
    assert len({state.run for state in here.target().jobs()}) == 501
    here.said.append(f"{time.monotonic() - began:.2f} s")


_SPEC = {"clusterSelector": {"ray.io/cluster": "there"}}
