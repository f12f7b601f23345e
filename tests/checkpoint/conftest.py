"""A job, a run folder and chunks of tensors for the tests of the checkpoint room."""

from pathlib import Path

import pytest

from raytrain_eks.checkpoint.run import RunFolder
from raytrain_eks.spec.job import Job

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
