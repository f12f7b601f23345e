"""Fixtures for the whole suite."""

import os
from collections.abc import Callable
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """The one way to renew the golden files."""
    parser.addoption("--regenerate-golden", action="store_true", help="write the golden bundles anew; look at the diff")


def pytest_configure(config: pytest.Config) -> None:
    """Golden files are renewed by a person who looks at what changed, never by a machine."""
    if config.getoption("--regenerate-golden") and os.environ.get("CI"):
        raise pytest.UsageError(
            "--regenerate-golden is refused where CI is set: golden files are what CI checks against"
        )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden(name, text)`: the text is that of `tests/golden/<name>`, which `--regenerate-golden` writes."""

    def check(name: str, text: str) -> None:
        file = ROOT / "tests" / "golden" / name
        if request.config.getoption("--regenerate-golden"):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8", newline="\n")
        assert file.exists(), f"{file} is missing: pytest --regenerate-golden"
        assert text == file.read_text(encoding="utf-8")

    return check
