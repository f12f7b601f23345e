"""A person in a notebook: a folder, a state folder of their own, and a job server that says what a test wants."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# The double of a job server lives beside the tests of submission.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "submit"))
from jobserver_double import Double

from raytrain_eks.submit import package

FIELDS = {
    "name": "small",
    "workers": {"count": 1},
    "model": {"config": {"model_type": "llama"}},
    "tokenizer": {"train": {"vocab_size": 300}},
    "data": {"train": "s3://bucket/texts", "sequence_length": 32},
    "batch": {"sequences": 2},
    "optimizer": {"learning_rate": 1.0e-3},
    "stop": {"steps": 20},
}
"""A job that is legal everywhere."""


@pytest.fixture
def fields() -> dict[str, object]:
    return dict(FIELDS)


@pytest.fixture
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that somebody works in. Nothing of the real person's is seen or touched."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    for name in ("RAYTRAIN_STORAGE", "RAYTRAIN_ON", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def server(person: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Double]:
    # Packing the library itself takes longer than everything else here, and has its own tests.
    monkeypatch.setattr(package, "of_library", lambda: package.of_folder(person))
    double = Double()
    yield double
    double.close()
