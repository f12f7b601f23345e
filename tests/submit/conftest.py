"""Fixtures of the API double for tests of submission."""

from double.fixtures import _one_api, api, kube_api

__all__ = ["_one_api", "api", "kube_api"]
