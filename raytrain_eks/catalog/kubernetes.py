"""Versions of Kubernetes: those that EKS has, and the oldest that others can do with. Tables, with source and date."""

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class EksVersion:
    """A minor version that EKS has offered."""

    version: str
    """`1.33`."""
    ended: str
    """The day on which its extended support ended and EKS began to move clusters on; empty while it has not."""
    source: str
    date: str


@dataclass(frozen=True)
class Needed:
    """The oldest minor version that something can do with."""

    who: str
    """`karpenter`, `managed` (EKS managed node groups), or `definitions` for every cluster."""
    oldest: str
    why: str
    """As a sentence without a full stop."""
    source: str
    date: str


@cache
def eks_versions() -> tuple[EksVersion, ...]:
    """The versions of EKS that the table knows, the oldest first; older and newer ones are not in it."""
    with (HERE / "eks_versions.csv").open(newline="", encoding="utf-8") as file:
        return tuple(EksVersion(**row) for row in csv.DictReader(file))


@cache
def needed() -> tuple[Needed, ...]:
    """What needs which version at least, the largest need last."""
    with (HERE / "needed_versions.csv").open(newline="", encoding="utf-8") as file:
        return tuple(Needed(**row) for row in csv.DictReader(file))


def minor(version: str) -> int:
    """`1.33` -> 33."""
    return int(version.partition(".")[2])
