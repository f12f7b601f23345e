"""Fixtures for the Kubernetes room's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from double.fixtures import _one_api, api, kube_api, kubectl_config

from raytrain_eks.kube.client import Client
from raytrain_eks.kube.connect import connect

__all__ = ["_one_api", "api", "kube_api", "kube_client", "kubectl_config"]


@pytest.fixture
def kube_client(kubectl_config: Path) -> Iterator[Client]:
    """A client of the double's administrator, in the namespace `training`."""
    with connect(kubeconfig=str(kubectl_config)) as client:
        yield client
