"""A job, a run folder and chunks of tensors for the tests of the checkpoint room."""

import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.job import Job

sys.path.insert(0, str(Path(__file__).parent))
from s3server import Faults, Moto, Proxy

JOB = """
kind: Job
name: small
model: {config: {model_type: llama, hidden_size: 64}}
tokenizer: {train: {vocab_size: 512}}
data: {train: "python-stdlib:", sequence_length: 64}
batch: {tokens: 512}
optimizer: {learning_rate: 3.0e-3, betas: [0.9, 0.95]}
stop: {steps: 10}
"""


@pytest.fixture(scope="session")
def job() -> Job:
    """A small job."""
    return Job.read(JOB, "small.yaml")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run folder in which nothing is yet."""
    return RunFolder(tmp_path / "runs", "small")


@pytest.fixture(scope="session")
def moto() -> Iterator[Moto]:
    """An S3 server of its own process."""
    server = Moto()
    yield server
    server.close()


@pytest.fixture
def s3(moto: Moto, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Faults]]:
    """`s3://bucket` of a new bucket behind the fault proxy, and the proxy's faults; retries wait little."""
    import boto3

    from raytrain_eks.checkpoint import s3_client as module

    proxy = Proxy(moto.port)
    environment = {"AWS_ENDPOINT_URL": proxy.url, "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    for name, value in (environment | {"AWS_DEFAULT_REGION": "us-west-2", "AWS_EC2_METADATA_DISABLED": "true"}).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "FIRST_PAUSE", 0.005)
    bucket = f"bucket-{uuid.uuid4().hex[:12]}"
    place = {"LocationConstraint": "us-west-2"}
    boto3.client("s3").create_bucket(Bucket=bucket, CreateBucketConfiguration=place)
    proxy.faults.requests.clear()
    yield f"s3://{bucket}", proxy.faults
    proxy.close()
