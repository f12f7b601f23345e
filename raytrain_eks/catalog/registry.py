"""Registries of EKS's own images: an account of its own in most newer regions, so that a region which is not in the
table has no registry that could be guessed."""

import csv
from functools import cache
from pathlib import Path


def eks_registry(region: str) -> str | None:
    """The registry that the nodes of a region pull EKS's images from; None where no source says."""
    return _registries().get(region)


@cache
def _registries() -> dict[str, str]:
    with (Path(__file__).parent / "registries.csv").open(newline="", encoding="utf-8") as file:
        return {
            row["region"]: f"{row['account']}.dkr.ecr.{row['region']}.{row['suffix']}" for row in csv.DictReader(file)
        }
