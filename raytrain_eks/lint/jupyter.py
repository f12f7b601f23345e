"""The pods that a JupyterHub will spawn, read out of the profiles in its configuration.

KubeSpawner ignores a key that it does not know and starts a GPU profile without tolerations on no node at all, so its
profiles are looked at like any other pod.
"""

import ast
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from raytrain_eks.lint.resource import Resource
from raytrain_eks.lint.tree import get, items, mapping, text

if TYPE_CHECKING:
    from raytrain_eks.lint.pods import Pod

_FIELDS = {"node_selector": "nodeSelector", "tolerations": "tolerations", "volumes": "volumes"}
_FIELDS |= {"service_account": "serviceAccountName", "scheduler_name": "schedulerName"}


def profiles(config: Resource) -> Iterator["Pod"]:
    """One pod for each profile of `c.KubeSpawner.profile_list` in a ConfigMap; none when it cannot be read."""
    from raytrain_eks.lint.pods import Pod

    for key, program in mapping(config.get("data")).items():
        if not (isinstance(program, str) and "profile_list" in program):
            continue
        for profile in _listed(program):
            override = mapping(get(profile, "kubespawner_override"))
            spec = {target: override[source] for source, target in _FIELDS.items() if source in override}
            spec["containers"] = [_container(override)]
            role = f"profile {text(get(profile, 'display_name'))!r}"
            # The step after the file is no part of the document: it tells people which profile is meant.
            yield Pod(config, (*config.base, "data", key, role), spec, {}, role, 1)


def _listed(program: str) -> list[Any]:
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else None
        if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute) and target.attr == "profile_list":
            try:
                return items(ast.literal_eval(node.value))
            except (ValueError, TypeError, RecursionError):
                return []
    return []


def _container(override: Mapping[str, Any]) -> dict[str, Any]:
    limits = dict(mapping(override.get("extra_resource_limits")))
    requests = dict(mapping(override.get("extra_resource_guarantees")))
    for target, cpu, memory in ((limits, "cpu_limit", "mem_limit"), (requests, "cpu_guarantee", "mem_guarantee")):
        target |= {"cpu": override[cpu]} if cpu in override else {}
        target |= {"memory": _kubernetes_memory(override[memory])} if memory in override else {}
    return {
        "name": "notebook",
        "image": text(override.get("image")),
        "resources": {"limits": limits, "requests": requests},
        "volumeMounts": items(override.get("volume_mounts")),
    }


def _kubernetes_memory(value: Any) -> Any:
    """JupyterHub's `4G` is 4 GiB (traitlets ByteSpecification)."""
    return f"{value}i" if isinstance(value, str) and value[-1:] in "KMGT" else value
