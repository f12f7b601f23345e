"""The tests of torch_xla, which needs a torch of its own: `make test-xla` makes the environment and runs them there."""

import importlib.util
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Compiling fast matters here, running fast does not; read when torch_xla is imported.
os.environ.setdefault("PJRT_DEVICE", "CPU")
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, where torch_xla is not; under `make test-xla` that is an error instead."""
    if importlib.util.find_spec("torch_xla") is not None or os.environ.get("TEST_XLA"):
        return
    skip = pytest.mark.skip(reason="torch_xla needs torch 2.9: run `make test-xla`")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(skip)
