"""What `--on` says, as a target."""

import json
import os
from collections.abc import Iterable, Mapping
from typing import Any

from raytrain_eks.submit.errors import Misused
from raytrain_eks.submit.registry import Record
from raytrain_eks.submit.target import Target

ON_VARIABLE = "RAYTRAIN_ON"
HEADERS_VARIABLE = "RAY_JOB_HEADERS"
"""A JSON object, as Ray's own `ray job` reads it: what is secret there stays out of the command line."""


def named(on: str | None, record: Record | None = None) -> str:
    """What `--on` says, where the run was last submitted to, $RAYTRAIN_ON, or this machine."""
    return on or (record.on if record is not None else None) or os.environ.get(ON_VARIABLE) or "local"


def known_access(access: Mapping[str, Any], on: str, record: Record | None) -> dict[str, Any]:
    """What `open_target` is given: what somebody says now, over what the run's last submission there was told."""
    before = dict(record.access) if record is not None and record.on == on else {}
    return before | {name: value for name, value in access.items() if value}


def open_target(
    on: str,
    *,
    headers: Iterable[str] = (),
    token_file: str | None = None,
    ca: str | None = None,
    any_version: bool = False,
    **kubernetes: Any,
) -> Target:
    """The target that `--on` names; nothing is contacted yet. `kubernetes` is for `eks` alone: `context`, `namespace`,
    `kubeconfig`, `cluster` and `code`. Raises TargetError for what is none, and for an option without meaning there."""
    given = {name: value for name, value in kubernetes.items() if value is not None}
    if on == "eks":
        from raytrain_eks.submit.eks import Eks, Options

        for name, value in (("--header", headers), ("--ca", ca)):
            if value:
                raise Misused(f"{name} is for the address of a dashboard; --on eks goes by the kubeconfig")
        return Eks(Options(token_file=token_file, any_version=any_version, **given))
    if given:
        raise Misused(f"--{next(iter(given))} is for --on eks, and this goes to {on}")
    if on == "local":
        from raytrain_eks.submit.local import Local

        return Local()
    if on.startswith(("http://", "https://")):
        from raytrain_eks.submit.cluster import connect

        return connect(on, headers=parse_headers(headers), token_file=token_file, ca=ca, any_version=any_version)
    raise Misused(f"--on {on}: not a target\n  `local`, `eks`, or the address of a dashboard: http://HEAD:8265")


def parse_headers(given: Iterable[str]) -> dict[str, str]:
    """`Name: value` or `Name=value`, on top of what RAY_JOB_HEADERS holds. Raises Misused."""
    found: dict[str, str] = {}
    if preset := os.environ.get(HEADERS_VARIABLE):
        try:
            found |= {str(name): str(value) for name, value in json.loads(preset).items()}
        except (ValueError, AttributeError):
            raise Misused(f"{HEADERS_VARIABLE} is not a JSON object of texts") from None
    for text in given:
        name, mark, value = min((text.partition(mark) for mark in ":="), key=lambda parts: len(parts[0]))
        if not mark or not name.strip() or "\n" in text or "\r" in text:
            raise Misused("--header needs the form `Name: value`")
        found[name.strip()] = value.strip()
    return found
