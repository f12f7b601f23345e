"""Data on S3: sources and prepared data, with what an S3 URL may say about its bucket."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import fs

from raytrain_eks.data.files import Place
from raytrain_eks.data.prepare import find, prepare
from raytrain_eks.data.stream import Stream
from raytrain_eks.spec.problem import SpecError

pytestmark = pytest.mark.slow

VARIABLES = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of an S3 server."""
    from moto.server import ThreadedMotoServer

    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    stop = threading.Thread(target=moto.stop)
    stop.start()
    stop.join(10)


@pytest.fixture
def bucket(server, folder, monkeypatch) -> tuple[str, Any]:
    """(name, client) of a bucket with the text files below `text/`; credentials lie in the environment."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    import boto3

    client = boto3.client("s3", endpoint_url=server, region_name="us-west-2")
    name = f"bucket-{folder.parent.name}".lower().replace("_", "-")[:60]
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "us-west-2"})
    for path in folder.rglob("*.txt"):
        client.upload_file(str(path), name, f"text/{path.relative_to(folder)}")
    return name, client


def test_the_rows_are_those_of_the_same_files_in_a_folder(bucket, server, make_job, folder, tmp_path, monkeypatch):
    name, client = bucket
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    job = make_job(f"s3://{name}/text")
    there = prepare(job, f"s3://{name}/runs")
    here = prepare(make_job(str(folder)), tmp_path)
    assert there.index["train"] == here.index["train"]
    assert there.url.startswith(f"s3://{name}/runs/.data/")
    found = []
    for prepared in (there, here):
        stream = Stream(prepared, seed=0, global_sequences=4, rank=0, world=1, micro=4)
        found.append([stream.next().micro_batches[0]["input_ids"].tolist() for _ in range(20)])
        stream.close()
    assert found[0] == found[1]
    assert len(there.tokenizer()) == 300
    assert find(job, f"s3://{name}/runs") == there
    client.put_object(Bucket=name, Key="text/part0/00.txt", Body=b"something else and longer or shorter\n")
    assert find(job, f"s3://{name}/runs") is None, "a changed object makes it stale"


def test_an_url_names_endpoint_and_region_itself(bucket, server, make_job, tmp_path):
    name, _ = bucket
    address = server.removeprefix("http://")
    for number, url in enumerate([f"endpoint={server}", f"endpoint={address}&scheme=http&region=us-west-2"]):
        prepared = prepare(make_job(f"s3://{name}/text?{url}"), tmp_path / str(number))
        assert prepared.index["files"] == 40


def test_anonymous_access_sends_no_credentials(bucket, server):
    name, _ = bucket
    place = Place.of(f"s3://{name}/text?endpoint={server.removeprefix('http://')}&scheme=http&anonymous=true")
    assert place.filesystem.__reduce__()[1][0]["anonymous"] is True
    assert len(list(place.walk())) == 40


def test_a_role_is_passed_on(monkeypatch):
    given: dict[str, Any] = {}
    monkeypatch.setattr(fs, "S3FileSystem", lambda **arguments: given.update(arguments))
    role = "arn:aws:iam::123456789012:role/reader"
    assert Place.of(f"s3://bucket/x?region=us-west-2&role={role}").filesystem is None
    assert (given["role_arn"], given["region"], given["anonymous"]) == (role, "us-west-2", False)


def test_an_unknown_option_and_a_missing_bucket_are_named(bucket, server, make_job, tmp_path):
    with pytest.raises(SpecError, match=r"unknown option of an S3 URL: regoin(.|\n)*region, endpoint"):
        prepare(make_job("s3://bucket/text?regoin=us-west-2"), tmp_path)
    gone = f"s3://not-there/text?endpoint={server.removeprefix('http://')}&scheme=http&region=us-west-2"
    with pytest.raises(SpecError, match="there is nothing at s3://not-there/text"):
        prepare(make_job(gone), tmp_path)


def test_another_scheme_is_refused():
    with pytest.raises(SpecError, match="this scheme is not known here"):
        Place.of("gs://bucket/text")
