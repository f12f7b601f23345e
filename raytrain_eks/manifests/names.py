"""Names of Kubernetes objects: legal, within their limits, stable, and different for different things.

Parts are joined by `--`, which no part may hold itself, so that cluster `a` with group `b-c` and cluster `a-b` with
group `c` never share a node pool. Whatever is too long, not legal or not told apart by that is cut and ends in ten
letters of a hash over all parts. Nothing depends on time, order or machine.
Limits: KubeRay 1.7 appends its own suffixes and refuses more (validation.go, MaxRayClusterNameLength and others).
"""

import hashlib
import json
import re

LABEL = 63
"""A DNS label, and the value of a label: the limit of most names."""
RAY_CLUSTER = 53
RAY_JOB = 47
RAY_CRON_JOB = 36

_PART = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_HASH = re.compile(r"[a-z2-7]{10}\Z")
_DIGITS = "abcdefghijklmnopqrstuvwxyz234567"


def resource(*parts: str, limit: int = LABEL) -> str:
    """The name of what belongs to `parts`, from the widest to the narrowest: `resource("llm", "a100") == "llm--a100"`.

    A DNS-1035 label: lower-case letters, digits and dashes, a letter first, at most `limit` characters.
    """
    plain = "--".join(parts)
    if len(plain) <= limit and plain[:1].isalpha() and all(_clear(part) for part in parts):
        return plain
    legal = "-".join(re.sub(r"[^a-z0-9]+", "-", part.lower()).strip("-") for part in parts)
    legal = re.sub(r"-{2,}", "-", legal).lstrip("0123456789-")
    return f"{legal[: limit - 12].rstrip('-') or 'x'}--{digest(*parts)}"


def digest(*parts: str) -> str:
    """Ten letters and digits (50 bits) that stand for `parts`."""
    data = json.dumps(parts, ensure_ascii=True, separators=(",", ":")).encode()
    number = int.from_bytes(hashlib.sha256(data).digest()[:7], "big")
    return "".join(_DIGITS[number >> 5 * place & 31] for place in range(10))


def _clear(part: str) -> bool:
    """Legal by itself, without the separator, and not to be mistaken for a hash."""
    return bool(_PART.match(part)) and "--" not in part and not _HASH.match(part)


def ray_job(*parts: str) -> str:
    """The name of a RayJob: at most 47, since its RayCluster's name is made from it."""
    return resource(*parts, limit=RAY_JOB)


def ray_cron_job(*parts: str) -> str:
    """The name of a RayCronJob: at most 36, since its RayJobs' names are made from it."""
    return resource(*parts, limit=RAY_CRON_JOB)
