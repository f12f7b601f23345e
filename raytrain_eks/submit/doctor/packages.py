"""Installed packages against the ranges of pyproject.toml, as this package's own metadata carries them."""

import re
from collections.abc import Callable, Iterator
from importlib import metadata

from raytrain_eks.spec.diagnosis import Diagnosis, green, red, yellow

DISTRIBUTION = "raytrain-eks"
EXTRAS = {
    "train": "jobs cannot run on this machine; `--on http://HEAD:8265` and `--on eks` do without it",
    "kube": "`--on eks`, `apply` and `delete` need it",
    "notebook": "only notebooks need it",
}
"""Extra -> what its absence means."""
_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*(\[[^]]*\])?\s*(?P<range>[^;]*?)\s*"
    r"(;\s*extra\s*==\s*[\"'](?P<extra>[^\"']+)[\"'])?\s*"
)
_CLAUSE = re.compile(r"(>=|<=|==|!=|<|>|~=)\s*([0-9][0-9A-Za-z.*+!-]*)")

Version = Callable[[str], str]
"""Name of a distribution -> its version; raises PackageNotFoundError."""


def examine(*, version: Version = metadata.version, requires: list[str] | None = None) -> Iterator[Diagnosis]:
    """One finding for the core and one for each extra. `requires`: the requirements, else this package's own."""
    stated = metadata.requires(DISTRIBUTION) if requires is None else requires
    wanted: dict[str, list[tuple[str, str]]] = {"": [], **{extra: [] for extra in EXTRAS}}
    for text in stated or []:
        found = _REQUIREMENT.fullmatch(text)
        if found is not None and (extra := found["extra"] or "") in wanted:
            wanted[extra].append((found["name"], found["range"]))
    for extra, needs in wanted.items():
        if needs:
            yield _extra(extra, needs, version)
    yield from _unwelcome(version)


def _extra(extra: str, needs: list[tuple[str, str]], version: Version) -> Diagnosis:
    where = f"extra [{extra}]" if extra else "core"
    id = f"packages.{extra or 'core'}"
    have, missing, outside = [], [], []
    for name, clauses in needs:
        try:
            installed = version(name)
        except metadata.PackageNotFoundError:
            missing.append(name)
            continue
        have.append(f"{name} {installed}")
        if not within(installed, clauses):
            outside.append(f"{name} {installed}, tried with {clauses}")
    install = f"pip install 'raytrain-eks[{extra}]'" if extra else "pip install raytrain-eks"
    if not have:
        return yellow(id, where, f"is not installed: {EXTRAS.get(extra, 'nothing works without it')}", install)
    if missing:
        lost = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing, beside {', '.join(have)}"
        return red(id, where, lost, install)
    if outside:
        return red(id, where, f"outside of the ranges that were tried: {'; '.join(outside)}", install)
    return green(id, where, ", ".join(have))


def _unwelcome(version: Version) -> Iterator[Diagnosis]:
    """Packages that break others."""
    try:
        found = version("s3fs")
    except metadata.PackageNotFoundError:
        return
    why = f"s3fs {found} is installed; its pins of botocore fight with boto3's, and pip may install one of 2020"
    yield yellow("packages.s3fs", "s3fs", why, "pip uninstall s3fs; S3 goes through pyarrow and boto3 here")


def within(version: str, clauses: str) -> bool:
    """Whether a version lies in a range such as `>=2.60,<2.61`: PEP 440 for plain release numbers.

    What stands behind the numbers (`+cpu`, `.post1`, `rc1`) does not count, as in the ranges of pyproject.toml.
    """
    return all(_fits(version, operator, bound) for operator, bound in _CLAUSE.findall(clauses))


def _fits(version: str, operator: str, bound: str) -> bool:
    have, want = _numbers(version), _numbers(bound)
    if operator == "~=":
        return have >= want and have[: len(want) - 1] == want[:-1]
    if bound.endswith(".*"):
        equal = have[: len(want)] == want
        return equal if operator == "==" else not equal
    width = max(len(have), len(want))
    left, right = (numbers + (0,) * (width - len(numbers)) for numbers in (have, want))
    return {
        ">=": left >= right,
        "<=": left <= right,
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        ">": left > right,
    }[operator]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"v?(?:\d+!)?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, found[1].split("."))) if found else ()
