"""Stands for KubeRay's Python client (clients/python-client, v1.7), which is on no package index: the functions that
the adapter calls, with their names, parameters and defaults, and with their way to fail: a line in the log, and None or
False. Objects lie in `API`."""

API: dict[tuple[str, str, str], dict] = {}
"""(plural, namespace, name) -> object."""
STATUS: dict[str, dict] = {}
"""Name -> the status that the operator writes."""
