"""Fixtures with the double; a folder's conftest.py imports those it needs."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from double.api import ApiDouble


@pytest.fixture
def kube_api(shared: Path) -> Iterator[ApiDouble]:
    """An API server with every recorded definition installed and the namespace `training`."""
    with ApiDouble(crds=shared / "crds") as api:
        yield api


@pytest.fixture(scope="session")
def _one_api(shared: Path) -> Iterator[ApiDouble]:
    with ApiDouble(crds=shared / "crds") as api:
        yield api


@pytest.fixture
def api(_one_api: ApiDouble) -> Iterator[ApiDouble]:
    """The same, one for many tests, emptied after each; quicker where a test asks for little."""
    yield _one_api
    _one_api.clear()


@pytest.fixture
def kubectl_config(kube_api: ApiDouble, tmp_path: Path) -> Path:
    """A kubeconfig for its administrator."""
    return kube_api.kubeconfig(tmp_path)
