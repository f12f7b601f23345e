"""A Ray cluster behind an address: compatibility, tokens, and what is sent."""

import json
from collections.abc import Iterator

import pytest
from jobserver_double import Double

from raytrain_eks.submit.cluster import connect, differences, token
from raytrain_eks.submit.errors import Incompatible, NotAllowed, TargetError
from raytrain_eks.submit.package import of_folder
from raytrain_eks.submit.target import Submission, Versions
from raytrain_eks.submit.targets import open_target, parse_headers


@pytest.fixture
def double(monkeypatch) -> Iterator[Double]:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "secret")
    server = Double(token="secret")
    yield server
    server.close()


MINE = Versions(ray="2.60.0", python="3.11.7")


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (Versions(ray="2.60.3", python="3.11.2"), []),
        (Versions(ray="2.60.0", python=None), []),
        (Versions(ray="2.9.0", python="3.11.7"), ["Ray is 2.9.0 there and 2.60.0 here"]),
        (Versions(ray="2.60.0", python="3.12.1"), ["Python is 3.12.1 there and 3.11.7 here"]),
        (Versions(ray="2.61.0", python="3.10.1"), ["Ray is 2.61.0", "Python is 3.10.1"]),
    ],
)
def test_versions_fit_by_their_minor(cluster, words):
    found = differences(cluster, MINE)
    assert len(found) == len(words)
    assert all(word in text for word, text in zip(words, found, strict=True))


def test_another_ray_is_refused_before_anything_is_sent(double):
    double.ray = "2.9.3"
    with pytest.raises(Incompatible, match=r"2\.9\.3 there and 2\.60"):
        connect(double.url).prepare(lambda text: None)
    assert {method for method, *_ in double.seen} == {"GET"}
    connect(double.url, any_version=True).prepare(lambda text: None)


def test_a_missing_token_is_found_before_anything_is_sent(double, monkeypatch):
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    with pytest.raises(NotAllowed):
        connect(double.url).prepare(lambda text: None)


def test_what_is_sent(double, tmp_path):
    (tmp_path / "job.yaml").write_text("kind: Job")
    submission = Submission(
        id="q-1",
        run="q",
        job_file="job.yaml",
        script=None,
        options=("--storage=s3://b/p",),
        folder="/home/me",
        package=of_folder(tmp_path),
        environment={"A": "1"},
        metadata={"raytrain_run": "q"},
    )
    assert connect(double.url).submit(submission, lambda text: None) == "q-1"
    sent = json.loads(next(body for method, _, _, body in double.seen if method == "POST"))
    assert sent["entrypoint"] == "exec python -m raytrain_eks.train --storage=s3://b/p job.yaml"
    assert sent["runtime_env"]["env_vars"]["A"] == "1"
    assert int(sent["runtime_env"]["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) >= 60
    assert sent["runtime_env"]["working_dir"].startswith("gcs://")
    assert len(sent["runtime_env"]["py_modules"]) == 1
    assert len(double.packages) == 2
    assert "secret" not in json.dumps(sent)


def test_where_the_token_comes_from(tmp_path, monkeypatch):
    (tmp_path / "one").write_text("from-file\n")
    (tmp_path / "two").write_text("from-path\n")
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    assert token() is None
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "two"))
    assert token() == "from-path"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from-variable")
    assert token() == "from-variable"
    assert token(str(tmp_path / "one")) == "from-file"


@pytest.mark.parametrize("on", ["nowhere", "ftp://x", "https://me:pw@host"])
def test_what_is_no_target(on):
    with pytest.raises(TargetError, match="--on"):
        open_target(on)


def test_headers(monkeypatch):
    monkeypatch.setenv("RAY_JOB_HEADERS", '{"X-A": "1", "X-B": "2"}')
    assert parse_headers(["X-B: three: 3", "X-C=a:b"]) == {"X-A": "1", "X-B": "three: 3", "X-C": "a:b"}
    for bad in ("novalue", ": x", "a: b\r\nX-Evil: 1"):
        with pytest.raises(TargetError, match="--header"):
            parse_headers([bad])
    monkeypatch.setenv("RAY_JOB_HEADERS", "nonsense")
    with pytest.raises(TargetError, match="RAY_JOB_HEADERS"):
        parse_headers([])
