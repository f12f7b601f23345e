"""The REST client: what it sends, and what every kind of answer and silence becomes."""

import json
import socket
import subprocess
import threading
import time
from collections.abc import Iterator

import pytest
from jobserver_double import Double

from raytrain_eks.submit import jobserver, package
from raytrain_eks.submit.errors import NotAllowed, NotFound, TargetError, Unreachable
from raytrain_eks.submit.jobserver import JobServer
from raytrain_eks.submit.target import Phase


@pytest.fixture
def double() -> Iterator[Double]:
    server = Double(token="secret")
    yield server
    server.close()


def test_the_token_goes_in_the_header_and_nowhere_else(double):
    JobServer(double.url, token="secret").jobs()
    _, path, headers, _ = double.seen[-1]
    assert headers["Authorization"] == "Bearer secret"
    assert "secret" not in path


def test_an_own_authorization_header_wins(double):
    assert JobServer(double.url, token="x", headers={"authorization": "Bearer secret"}).jobs() == []


@pytest.mark.parametrize(("token", "words"), [(None, "wants a token"), ("wrong", "refuses")])
def test_a_refusal_says_which(double, token, words):
    with pytest.raises(NotAllowed, match=words) as caught:
        JobServer(double.url, token=token).jobs()
    assert caught.value.code == 4
    assert "secret" not in str(caught.value)


def test_nobody_there_is_unreachable_within_seconds():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(Unreachable, match="not reachable: Connection refused"):
        JobServer(url).version()


def test_a_name_that_does_not_exist_is_unreachable():
    with pytest.raises(Unreachable, match="not reachable"):
        JobServer("http://nowhere.invalid:8265").version()


def test_a_server_that_never_answers_is_unreachable():
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen()
        with pytest.raises(Unreachable, match="does not answer in time"):
            JobServer(f"http://127.0.0.1:{mute.getsockname()[1]}").version(timeout=0.2)


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[]", b"{}"])
def test_another_web_server_is_told_as_such(double, body):
    double.answers["/api/version"] = (200, body)
    with pytest.raises(Unreachable, match="not as a Ray job server"):
        JobServer(double.url, token="secret").version()


@pytest.mark.parametrize("secret", ["a\nb3cr3t", "s3cr\x00et", "s3crét😀"])
def test_a_token_that_no_header_carries_is_refused_and_not_shown(secret):
    with pytest.raises(ValueError, match="the token holds characters") as refused:
        JobServer("http://127.0.0.1:9", token=secret)
    assert "3cr" not in str(refused.value)
    with pytest.raises(ValueError, match="the header X-Key holds"):
        JobServer("http://127.0.0.1:9", headers={"X-Key": secret})
    with pytest.raises(ValueError, match="the header X Key holds"):
        JobServer("http://127.0.0.1:9", headers={"X Key": "a"})


@pytest.mark.parametrize("body", [b"[1]", b'["x"]', b'[{"type": "SUBMISSION"}]', b"[" * 100_000])
def test_jobs_that_are_none_are_another_servers(double, body, monkeypatch):
    monkeypatch.setattr(double, "answer", lambda *_: (200, body))
    with pytest.raises(Unreachable, match="not as a Ray job server does"):
        JobServer(double.url, token="secret").jobs()


def test_a_gateway_without_its_server_is_unreachable(double):
    double.answers["/api/jobs/"] = (503, b"")
    with pytest.raises(Unreachable, match="503"):
        JobServer(double.url, token="secret").jobs()


def test_an_error_of_the_server_shows_its_last_line(double):
    double.answers["/api/jobs/"] = (500, b"Traceback (most recent call last):\n  File x\nValueError: no agent")
    with pytest.raises(TargetError, match="answers 500: ValueError: no agent"):
        JobServer(double.url, token="secret").jobs()


@pytest.mark.parametrize("url", ["ftp://host", "http://", "host:8265", "http://me:pw@host:8265", "http://host/?a=b"])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError):
        JobServer(url)


def test_a_prefix_of_the_address_is_kept(double):
    with pytest.raises(Unreachable):
        JobServer(f"{double.url}/cluster-a/", token="secret").version()
    assert double.seen[-1][1] == "/cluster-a/api/version"


def test_a_package_is_sent_once(double, tmp_path):
    (tmp_path / "a.py").write_text("x")
    server = JobServer(double.url, token="secret")
    uri = server.upload(package.of_folder(tmp_path))
    assert uri == server.upload(package.of_folder(tmp_path))
    assert uri.startswith("gcs://_ray_pkg_")
    assert [method for method, *_ in double.seen].count("PUT") == 1


def test_a_job_is_read_back(double):
    server = JobServer(double.url, token="secret")
    server.submit(id="q-1", entrypoint="exec x", runtime_env={}, metadata={"raytrain_run": "q"})
    found = server.job("q-1")
    assert found is not None
    assert (found.phase, found.exit_code, found.started, found.run) == (Phase.SUCCEEDED, 0, 1.0, "q")
    assert [state.id for state in server.jobs()] == ["q-1"]
    assert server.job("q-2") is None
    assert server.stop("q-1") is True
    with pytest.raises(NotFound):
        server.stop("q-2")


def test_an_id_cannot_leave_its_place_in_the_path(double):
    JobServer(double.url, token="secret").job("../../api/version?x=1")
    assert double.seen[-1][1] == "/api/jobs/..%2F..%2Fapi%2Fversion%3Fx%3D1"


def test_a_log_starts_after_what_was_seen(double):
    double.log = [b"one\ntw", b"o\nthree\n"]
    server = JobServer(double.url, token="secret")
    assert b"".join(server.log("j", "n", skip=7)) == b"\nthree\n"
    assert b"".join(server.log("j", "n", skip=100)) == b""


def test_a_log_that_breaks_off_raises_after_its_bytes(double):
    double.log, double.cut_log = [b"one\n"], True
    found = []
    with pytest.raises(Unreachable):
        found.extend(JobServer(double.url, token="secret").log("j", "n", follow=True))
    assert found == [b"one\n"]


def test_closing_a_log_ends_a_reader_that_waits():
    """The server sends one chunk and then nothing, for ever."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            connection, _ = server.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n")
            time.sleep(20)

        threading.Thread(target=serve, daemon=True).start()
        log = JobServer(f"http://127.0.0.1:{server.getsockname()[1]}").log("j", "n", follow=True)
        found: list[bytes] = []
        ended = threading.Event()

        def read() -> None:
            try:
                found.extend(log)
            except Unreachable:
                ended.set()

        threading.Thread(target=read, daemon=True).start()
        while not found:
            time.sleep(0.01)
        log.close()
        assert ended.wait(5)
        assert found == [b"one\n"]


@pytest.fixture(scope="module")
def certificate(tmp_path_factory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=double"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(command, check=True, capture_output=True)
    return cert, key


def test_a_certificate_nobody_vouches_for_is_refused_and_a_named_one_taken(certificate):
    double = Double(tls=certificate)
    try:
        with pytest.raises(Unreachable, match="certificate is not trusted"):
            JobServer(double.url).version()
        assert double.seen == []
        assert JobServer(double.url, ca=certificate[0]).version()["ray_version"] == "2.60.0"
        assert json.dumps(double.seen[-1][1]) == '"/api/version"'
    finally:
        double.close()


def test_it_needs_no_ray(tmp_path):
    import sys

    code = (
        "import sys, raytrain_eks.submit.jobserver; sys.exit(any(name in sys.modules for name in ('ray', 'aiohttp')))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert jobserver.CONNECT_S <= 10
