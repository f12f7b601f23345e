"""The checks of this machine, of a Ray cluster behind an address, and the job that checks workers."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from double.api import ApiDouble
from hypothesis import given
from hypothesis import strategies as st
from jobserver_double import Double

from raytrain_eks.kube.connect import connect as kube_connect
from raytrain_eks.manifests.bundle import build
from raytrain_eks.plan.cluster import resolve
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.diagnosis import Diagnosis, Level, green, red, summary, yellow
from raytrain_eks.submit.cluster import RayCluster, connect
from raytrain_eks.submit.doctor import credentials, job, local_ray, machine, packages, ray_cluster
from raytrain_eks.submit.doctor.on_kubernetes import target
from raytrain_eks.submit.errors import NotFound
from raytrain_eks.train.doctor.driver import END, MARK, finding


def levels(found) -> list[str]:
    return [str(each.level) for each in found]


texts = st.text(max_size=20)


@given(st.builds(Diagnosis, id=texts, level=st.sampled_from(Level), what=texts, where=texts, fix=st.none() | texts))
def test_a_diagnosis_survives_json_and_a_line_of_a_log(each):
    assert Diagnosis.of_data(json.loads(json.dumps(each.as_data()))) == each
    assert finding(MARK + json.dumps(each.as_data())) == each


@pytest.mark.parametrize("line", ["", "epoch 1", MARK, MARK + "{", MARK + "[]", MARK + '{"id": 1}', MARK + '"x"'])
def test_a_line_that_carries_no_finding_is_none(line):
    assert finding(line) is None


def test_the_summary_counts():
    found = [green("a", "b", "c"), red("a", "b", "c", "d"), yellow("a", "b", "c", "d")]
    assert summary(found) == "3 checks: 1 green, 1 yellow, 1 red"
    assert str(found[1]) == "red     a  b\n        c\n        d"


@pytest.mark.parametrize(
    ("version", "clauses", "expected"),
    [
        ("2.13.0+cpu", ">=2.13,<2.14", True),
        ("2.14.0", ">=2.13,<2.14", False),
        ("0.19.8", "<0.20,>=0.19.8", True),
        ("0.19.8.post1", "<0.20,>=0.19.8", True),
        ("1.0", "==1.0.0", True),
        ("2.13.3.0.41", "==2.13.3.0.*", True),
        ("2.13.4.0", "==2.13.3.0.*", False),
        ("1.4.5", "~=1.4.2", True),
        ("1.5.0", "~=1.4.2", False),
        ("8.1", "", True),
        ("1.2", "!=1.2", False),
    ],
)
def test_a_version_is_held_against_a_range(version, clauses, expected):
    assert packages.within(version, clauses) is expected


REQUIRES = ["click<9,>=8.1", 'torch<2.14,>=2.13; extra == "train"', "ray[data,default]<2.61,>=2.60; extra == 'train'"]


@pytest.mark.parametrize(
    ("installed", "expected", "words"),
    [
        ({"click": "8.5", "torch": "2.13.0+cpu", "ray": "2.60.0"}, ["green", "green"], "torch 2.13.0+cpu, ray 2.60.0"),
        ({"click": "8.5"}, ["green", "yellow"], "is not installed: jobs cannot run on this machine"),
        ({"click": "8.5", "torch": "2.13.0"}, ["green", "red"], "ray is missing, beside torch 2.13.0"),
        (
            {"click": "8.5", "torch": "2.12.0", "ray": "2.60.0"},
            ["green", "red"],
            "torch 2.12.0, tried with <2.14,>=2.13",
        ),
        ({"click": "8.5", "torch": "2.13.0", "ray": "2.60.0", "s3fs": "1"}, ["green", "green", "yellow"], "botocore"),
    ],
)
def test_installed_packages_are_held_against_the_extras(installed, expected, words):
    def version(name: str) -> str:
        try:
            return installed[name]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    found = list(packages.examine(version=version, requires=REQUIRES))
    assert levels(found) == expected
    assert words in found[-1].what


def test_this_environment_fits_its_own_ranges():
    assert "red" not in levels(packages.examine())


def test_a_library_that_does_not_import_is_red(tmp_path, monkeypatch):
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so.12: cannot open shared object file')")
    (tmp_path / "ray.py").write_text("__version__ = '9'")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = {each.id: each for each in machine.imports("here")}
    assert (found["machine.ray"].level, found["machine.torch"].level) == ("green", "red")
    assert "libcudart.so.12" in found["machine.torch"].what


def test_a_library_that_ends_its_process_is_red(tmp_path, monkeypatch):
    (tmp_path / "ray.py").write_text("import os; os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert "ended with 7" in next(iter(machine.imports("here"))).what


def test_python_of_another_version_is_told():
    assert machine.python((3, 11, 9), "x").level == "green"
    assert machine.python((3, 13, 0), "x").level == "yellow"


def test_shared_memory_is_told_where_it_is_missing(tmp_path):
    assert machine.shared_memory("x", memory=2**30, path=tmp_path / "no").level == "yellow"
    assert machine.shared_memory("x", memory=0, path=tmp_path).level == "green"
    assert machine.shared_memory("x", memory=2**60, path=tmp_path).level == "yellow"


def test_storage_that_cannot_be_written_is_red(tmp_path):
    assert levels(machine.place("/proc/nowhere")) == ["red"]
    assert levels(machine.place("ftp://x/y")) == ["red"]
    assert levels(machine.place(str(tmp_path)))[0] in ("green", "yellow")
    assert not list(tmp_path.iterdir())


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".aws").mkdir()
    return tmp_path


SECRET = "wJalrXUtnFEMI-secret"


@pytest.mark.parametrize(
    ("environment", "file", "level", "words"),
    [
        ({"AWS_ACCESS_KEY_ID": "AKIA", "AWS_SECRET_ACCESS_KEY": SECRET}, "", "green", "AWS_ACCESS_KEY_ID"),
        ({"AWS_ACCESS_KEY_ID": "AKIA"}, "", "red", "without AWS_SECRET_ACCESS_KEY"),
        ({}, f"[default]\naws_secret_access_key = {SECRET}\n", "green", "profile default"),
        ({"AWS_PROFILE": "prod"}, "[default]\n", "red", "no file has the profile prod"),
        ({"AWS_WEB_IDENTITY_TOKEN_FILE": "/nowhere", "AWS_ROLE_ARN": "arn:x"}, "", "red", "cannot be read"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1"}, "", "green", "container credentials"),
        ({}, "", "yellow", "no AWS credentials"),
    ],
)
def test_credentials_are_seen_and_never_shown(home, environment, file, level, words):
    (home / ".aws/credentials").write_text(file)
    (home / ".aws/credentials").chmod(0o600)
    found = list(credentials.aws(environment, home))
    assert levels(found) == [level]
    assert words in found[0].what
    assert SECRET not in str(found)


def test_a_credentials_file_that_others_may_read_is_told(home):
    (home / ".aws/credentials").write_text("[default]\n")
    (home / ".aws/credentials").chmod(0o644)
    assert levels(credentials.aws({}, home)) == ["green", "yellow"]


CONFIG = """\
current-context: {current}
contexts: [{{name: eks, context: {{cluster: c, user: u}}}}]
users: [{{name: u, user: {{exec: {{command: {program}}}}}}}]
"""


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        (CONFIG.format(current="eks", program="sh"), "green", "context eks, by way of `sh`"),
        (CONFIG.format(current="eks", program="no-such-program"), "red", "calls `no-such-program`"),
        (CONFIG.format(current="gone", program="sh"), "red", "'gone' does not exist"),
        ("contexts: []\n", "red", "has no current context"),
        ("{", "red", "is no kubeconfig"),
        ("[]", "red", "is no kubeconfig: not a mapping"),
    ],
)
def test_a_kubeconfig_is_read(tmp_path, text, level, words):
    file = tmp_path / "config"
    file.write_text(text)
    file.chmod(0o600)
    found = list(credentials.kubernetes({"KUBECONFIG": str(file)}, tmp_path))
    assert levels(found) == [level]
    assert words in found[0].what


def test_no_kubeconfig_is_yellow_and_a_named_one_that_is_missing_red(tmp_path):
    assert levels(credentials.kubernetes({}, tmp_path)) == ["yellow"]
    assert levels(credentials.kubernetes({"KUBECONFIG": "/nowhere/config"}, tmp_path)) == ["red"]


def test_a_dead_head_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert "no Ray of this machine is running" in local_ray.head("x").what
    head = dict.fromkeys(("id", "started", "url", "gcs", "session", "ray", "python", "executable"), "x")
    file = tmp_path / "raytrain-eks/local/head.json"
    file.write_text(json.dumps(head | {"pid": 2**22 + 1, "cpus": 2, "parts": {}, "environment": {}}))
    found = local_ray.head("x")
    assert (found.level, "its process is gone" in found.what) == ("yellow", True)


@pytest.fixture
def double() -> Iterator[Double]:
    server = Double(token="secret")
    yield server
    server.close()


def test_a_ray_cluster_is_looked_at_without_running_anything(double):
    cluster = connect(double.url, headers={"Authorization": "Bearer secret"})
    double.python = ".".join(map(str, sys.version_info[:3]))
    double.answers["/api/gcs_healthz"] = (200, b"success")
    assert levels(ray_cluster.examine(cluster)) == ["green"] * 5
    double.ray = "2.9.0"
    double.answers["/api/gcs_healthz"] = (500, b"")
    found = {each.id: str(each.level) for each in ray_cluster.examine(cluster)}
    assert found["ray.version"] == found["ray.control"] == "red"
    assert not [seen for seen in double.seen if seen[0] == "POST"]
    assert "secret" not in str(found)


class Pretended(RayCluster):
    """A cluster whose job has this log."""

    def prepare(self, say):
        pass


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        ([MARK + json.dumps(green("a", "b", "c").as_data()), "hello", END], ["green"]),
        ([MARK + json.dumps(green("a", "b", "c").as_data()), "Traceback: no more memory"], ["green", "red"]),
        ([], ["red"]),
    ],
)
def test_a_report_comes_back_through_the_log_of_its_job(double, tmp_path, log, expected):
    double.log = [f"{line}\n".encode() for line in log]
    said: list[str] = []
    target = Pretended(connect(double.url, headers={"Authorization": "Bearer secret"}).server)
    found = list(job.examine(target, "/shared", fabric=False, folder=tmp_path, say=said.append))
    assert levels(found) == expected
    assert not any(line.startswith(MARK) for line in said)


def test_what_travels_is_a_launcher_and_options_as_words(tmp_path):
    made = job.submission("/shared/my runs; rm -rf /", fabric=False, folder=tmp_path)
    assert {file.name for file in made.package.files} == {"jobs/doctor.py", "doctor.yaml"}
    assert made.options == ("--storage=/shared/my runs; rm -rf /", "--no-fabric")
    compile(job.LAUNCHER, "jobs/doctor.py", "exec")


def test_the_verb_says_what_it_cannot_do(tmp_path):
    program = [sys.executable, "-m", "raytrain_eks", "doctor"]
    for words, code, message in (
        (["x.yaml"], 2, "raytrain-eks doctor --on eks x.yaml"),
        (["--on", "http://127.0.0.1:9"], 4, "not reachable"),
        (["--on", "eks", "missing.yaml"], 2, "missing.yaml"),
    ):
        env = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
        done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=300, env=env, check=False)
        assert done.returncode == code, (shlex.join(words), done.stderr)
        assert message in done.stderr
        assert "Traceback" not in done.stderr


CLUSTER = """\
kind: Cluster
name: llm
region: us-west-2
auth: disabled
workers: [{name: cpu, instance: m6i.2xlarge, nodes: 1}]
"""


@pytest.fixture
def running(kube_api: ApiDouble) -> Iterator[Double]:
    """A RayCluster whose head answers behind the API server's proxy."""
    server = Double()
    server.python = ".".join(map(str, sys.version_info[:3]))
    server.log = [f"{MARK}{json.dumps(green('worker.shm', 'node-1', 'has 8 GiB').as_data())}\n{END}\n".encode()]
    body = next(
        each.body for each in build(resolve(Cluster.read(CLUSTER, "llm.yaml"))).objects if each.kind == "RayCluster"
    )
    kube_api.objects.put(body | {"status": {"head": {"serviceName": "llm-head-svc"}}})
    kube_api.backends["training/llm-head-svc:dashboard"] = server.url
    yield server
    server.close()


def test_workers_of_a_running_cluster_are_checked_through_its_head(kube_api, running, tmp_path):
    program = [sys.executable, "-m", "raytrain_eks", "doctor", "worker", "--on", "eks", "-o", "json", "--kubeconfig"]
    config = str(kube_api.kubeconfig(tmp_path))
    done = subprocess.run([*program, config], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert [each["where"] for each in json.loads(done.stdout)["findings"]] == ["node-1"]
    posted = json.loads(
        next(body for method, path, _, body in running.seen if (method, path) == ("POST", "/api/jobs/"))
    )
    assert posted["entrypoint"] == "exec python jobs/doctor.py doctor.yaml"


@pytest.mark.parametrize(
    ("name", "words"),
    [("other", "rayclusters.ray.io other"), (None, "has no RayCluster, and workers are checked where")],
)
def test_without_a_running_cluster_there_are_no_workers(kube_api, tmp_path, name, words):
    with kube_connect(kubeconfig=str(kube_api.kubeconfig(tmp_path))) as client, pytest.raises(NotFound, match=words):
        target(client, name, token_file=None)


@pytest.mark.slow
def test_workers_are_checked_by_a_job_on_a_real_ray(ray_head, tmp_path):
    env = ray_head.env | {"RAY_AUTH_TOKEN_PATH": str(ray_head.token_file)}
    program = [sys.executable, "-m", "raytrain_eks", "doctor", "worker", "--on", ray_head.url]
    words = ["--token-file", str(ray_head.token_file), "--storage", str(tmp_path / "my runs"), "-o", "json"]
    done = subprocess.run([*program, *words], capture_output=True, text=True, timeout=900, env=env, check=False)
    found = {each["id"]: each for each in json.loads(done.stdout)["findings"]}
    assert done.returncode == (3 if any(each["level"] == "red" for each in found.values()) else 0), done.stderr
    wanted = {"worker.clock", "worker.devices", "worker.shm", "worker.storage", "cluster.software", "fabric.all_reduce"}
    assert wanted <= set(found)
    assert "2 ranks" in found["fabric.all_reduce"]["what"]
    assert found["worker.storage"]["level"] in ("green", "yellow")
    assert not list((tmp_path / "my runs").iterdir())
