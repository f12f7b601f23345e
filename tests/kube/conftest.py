"""Fixtures for the Kubernetes room's tests."""

from double.fixtures import kube_api, kubectl_config

__all__ = ["kube_api", "kubectl_config"]
