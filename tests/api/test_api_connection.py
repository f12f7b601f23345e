"""From a pod into its cluster: addresses, tokens, and errors that say what to do."""

import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from raytrain_eks import Cluster, Job, TargetError
from raytrain_eks.api import connection
from raytrain_eks.submit.errors import Incompatible, NotAllowed, Unreachable

SMALL = {
    "name": "llm",
    "namespace": "training",
    "region": "us-west-2",
    "workers": [{"name": "cpu", "instance": "c7i.8xlarge", "nodes": 1}],
}


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(**SMALL)


@pytest.fixture(autouse=True)
def no_kubernetes(person, monkeypatch):
    """Neither a kubeconfig nor a pod's account of the real person."""
    monkeypatch.setenv("HOME", str(person))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def test_the_heads_service_is_known_by_its_name(cluster):
    assert connection.head_host(cluster) == "llm-head-svc.training.svc"


def test_outside_of_the_cluster_the_way_in_is_told(cluster):
    with pytest.raises(Unreachable) as raised:
        cluster.connect()
    assert "llm-head-svc.training.svc has no address here" in str(raised.value)
    assert "kubectl -n training port-forward svc/llm-head-svc 8265" in str(raised.value)


def test_a_connection_is_a_target(cluster, server, fields, tmp_path, capfd):
    server.token = "secret"
    found = cluster.connect(server.url, token="secret")
    assert found.address == server.url
    assert found.client_address == "ray://127.0.0.1:10001"
    assert "secret" not in repr(found)
    run = Job(**fields).submit(on=found, storage=tmp_path / "runs")
    assert run.wait(timeout=300).state == "complete"
    assert capfd.readouterr() == ("", "")


def test_the_token_comes_from_where_ray_looks_for_it(cluster, server, tmp_path, monkeypatch):
    server.token = "secret"
    (tmp_path / "token").write_text("secret\n")
    assert cluster.connect(server.url, token_file=str(tmp_path / "token"))
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    assert cluster.connect(server.url)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
    with pytest.raises(NotAllowed, match="no right"):
        cluster.connect(server.url)


def test_without_a_token_its_place_is_told(cluster, server):
    server.token = "secret"
    with pytest.raises(NotAllowed) as raised:
        cluster.connect(server.url)
    assert "Secret llm of namespace training under `auth_token`" in str(raised.value)
    assert "jupyterhub: {connect: true}" in str(raised.value)


def test_another_ray_is_refused_with_both_versions(cluster, server):
    server.ray = "2.9.3"
    with pytest.raises(Incompatible, match=r"(?s)2\.9\.3 there and 2\.60.*connect\(any_version=True\)"):
        cluster.connect(server.url, token="x")
    assert cluster.connect(server.url, token="x", any_version=True)


def test_a_bad_address_is_no_traceback(cluster, server, monkeypatch):
    monkeypatch.setattr(connection, "CLIENT_BIRTH", 0.0)
    with pytest.raises(TargetError, match="is not an address"):
        cluster.connect("llm-head-svc")
    with pytest.raises(Unreachable, match="is not reachable"):
        cluster.connect("http://127.0.0.1:9")
    with pytest.raises(Unreachable, match=r"ray://127\.0\.0\.1:9 is not reachable"):
        cluster.connect(server.url, client_address="ray://127.0.0.1:9").ray()


def test_without_ray_it_says_what_to_install(cluster, server, monkeypatch):
    found = cluster.connect(server.url)
    monkeypatch.setitem(sys.modules, "ray.job_submission", None)
    with pytest.raises(TargetError, match=r"raytrain-eks\[train\]"):
        found.jobs()


PROGRAM = """
import sys
from raytrain_eks import Cluster
cluster = Cluster(name="llm", region="us-west-2", workers=[{"name": "cpu", "instance": "c7i.8xlarge", "nodes": 1}])
url, token_file, client = sys.argv[1:]
found = cluster.connect(url, token_file=token_file, client_address=client)
names = [job.submission_id for job in found.jobs().list_jobs() if job.submission_id]
with found.ray(log_to_driver=False):
    import ray
    print("answer", ray.get(ray.remote(lambda: 6 * 7).remote()))
    try:
        found.ray()
    except Exception as error:
        print(type(error).__name__, error)
"""


def client_port() -> str:
    """Where the Ray Client of the head in this process's state folder listens: its command line tells."""
    from raytrain_eks.submit.head import LocalHead

    head = LocalHead().remembered()
    assert head is not None
    words = Path(f"/proc/{head.pid}/cmdline").read_text().split("\0")
    return next(word for word in words if word.startswith("--ray-client-server-port=")).partition("=")[2]


@pytest.mark.parametrize(("message", "tries"), [(f"{connection.NOT_BORN}. See x.err", 3), ("Another reason", 1)])
def test_a_client_server_that_dies_at_birth_is_asked_for_again(cluster, server, monkeypatch, message, tries):
    ray = SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None, calls=[])

    def init(address):
        ray.calls.append(address)
        raise ConnectionAbortedError(f"Initialization failure from server: {message}")

    ray.init = init
    monkeypatch.setitem(sys.modules, "ray", ray)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"ray://127.0.0.1:{listening.getsockname()[1]}"
        there = connection.Connection(
            SimpleNamespace(server=SimpleNamespace(url="x")), client_address=address, token=None
        )
        with pytest.raises(ConnectionAbortedError):
            there.ray()
    assert ray.calls == [address] * tries


def test_a_client_server_that_is_not_yet_there_is_waited_for(cluster, server, monkeypatch):
    ray = SimpleNamespace(is_initialized=lambda: False, init=lambda address: address)
    monkeypatch.setitem(sys.modules, "ray", ray)
    late = socket.socket()
    late.bind(("127.0.0.1", 0))
    address = f"ray://127.0.0.1:{late.getsockname()[1]}"
    there = connection.Connection(SimpleNamespace(server=SimpleNamespace(url="x")), client_address=address, token=None)
    monkeypatch.setattr(connection.time, "sleep", lambda seconds: late.listen())
    with late:
        assert there.ray() == address


@pytest.mark.slow
def test_a_real_cluster_takes_tasks_and_tells_its_jobs(ray_head, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", ray_head.env["XDG_STATE_HOME"])
    # What Ray's own variables would tell is not there, as in a hub's pod.
    env = {name: value for name, value in ray_head.env.items() if not name.startswith("RAY_")}
    words = [ray_head.url, str(ray_head.token_file)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *words, f"ray://127.0.0.1:{client_port()}"],
        env=env,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stderr
    assert "answer 42" in done.stdout
    assert "TargetError this process is connected to a Ray already" in done.stdout
