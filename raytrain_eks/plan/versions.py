"""Whether a cluster's Kubernetes version can be: too old for what is rendered, ended on EKS, or newer than is known.

A version that no source knows yet is no mistake: it is noted, since nothing here was tried with it.
"""

from collections.abc import Iterator

from raytrain_eks.catalog.kubernetes import eks_versions, minor, needed
from raytrain_eks.spec.cluster import Cluster
from raytrain_eks.spec.problem import Problem


def problems(cluster: Cluster) -> Iterator[Problem]:
    """A version that is older than what the cluster's objects or nodes need; at most one problem."""
    version, kind = cluster.kubernetes, cluster.provisioner.kind
    unmet = [each for each in needed() if each.who in ("definitions", kind) and minor(version) < minor(each.oldest)]
    if unmet:
        # "1.3" is what 1.30 becomes when somebody puts quotes around the number that YAML reads.
        longer = f"{version}0" if minor(version) < 10 else ""
        meant = longer if longer and minor(longer) in range(minor(unmet[-1].oldest), minor(_newest()) + 1) else ""
        fix = f'did you mean "{meant}"?' if meant else f'write "{unmet[-1].oldest}" or later, such as "1.33"'
        yield Problem(path="kubernetes", value=version, rule=f"is too old: {unmet[-1].why}", fix=fix)


def notes(cluster: Cluster) -> list[str]:
    """What is to be known about a version that EKS has ended, or that is not in the table yet."""
    if cluster.provisioner.kind == "none":
        return []
    version, known = cluster.kubernetes, {each.version: each for each in eks_versions()}
    if version in known and (ended := known[version].ended):
        after = next(each.version for each in eks_versions() if not each.ended)
        return [
            f"EKS ended Kubernetes {version} on {ended} and moves its clusters on: write `kubernetes` {after} or later"
        ]
    if minor(version) > minor(_newest()):
        date = known[_newest()].date
        return [f"Kubernetes {version} is newer than {_newest()}, the newest that was known in {date}: try it first"]
    return []


def _newest() -> str:
    return eks_versions()[-1].version
