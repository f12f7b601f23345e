"""Fixtures for the whole suite."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with schemas and facts beside the checkout; without it a test is skipped, in CI it fails."""
    folder = ROOT.parent / "shared"
    if not folder.is_dir():
        if os.environ.get("CI"):
            pytest.fail(f"{folder} is missing, and in CI it must be there")
        pytest.skip(f"{folder} is not here")
    return folder
