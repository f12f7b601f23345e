"""Jobs and folders of text for the tests of the data room."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raytrain_eks.spec.job import Job

SENTENCE = "the quick brown fox jumps over a lazy dog while seven wizards bake round loaves of bread"
WORDS = SENTENCE.split(" ")


def text(number: int, words: int) -> str:
    """Some words and line ends that depend on `number` alone."""
    chosen = [
        WORDS[(number * 7 + index * index) % len(WORDS)] + ("\n" if index % 9 == 8 else "") for index in range(words)
    ]
    return f"# file {number}\n" + " ".join(chosen) + "\n"


@pytest.fixture
def make_job() -> Callable[..., Job]:
    """A job with these fields of `data`, and of the top level in `top`."""

    def make(train: Any, top: dict[str, Any] | None = None, **data: Any) -> Job:
        fields: dict[str, Any] = {
            "name": "t",
            "model": {"config": {"model_type": "llama"}},
            "tokenizer": {"train": {"vocab_size": 300}},
            "data": {"train": train, "sequence_length": 32, **data},
            "batch": {"sequences": 4},
            "optimizer": {"learning_rate": 1e-3},
            "stop": {"steps": 10},
        }
        return Job.parse(fields | (top or {}))

    return make


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty small text files."""
    root = tmp_path / "text"
    for number in range(40):
        path = root / f"part{number % 3}" / f"{number:02d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text(number, 60 + number * 5), encoding="utf-8")
    return root
