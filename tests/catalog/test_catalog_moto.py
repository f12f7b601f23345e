"""The catalogue against another record of the same facts: EC2's DescribeInstanceTypes as PyPI's `moto` ships it.

Every disagreement that is known stands here with its reason; a new one, or one that has gone, fails.
"""

import gzip
import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from raytrain_eks import catalog

DISAGREEMENTS = {
    # Ours is the chip's memory; DescribeInstanceTypes multiplies it (512 GiB for a chip of 96 GiB, Neuron docs).
    ("trn2.3xlarge", "accelerator memory MiB"): (98304, 524288),
    ("trn2.48xlarge", "accelerator memory MiB"): (98304, 524288),
    # moto's record has no NeuronInfo for this type; the Neuron docs give 16 chips.
    ("trn2u.48xlarge", "accelerators"): (16, 0),
    ("trn2u.48xlarge", "neuron cores"): (128, 0),
    # Two network cards: Karpenter's pod limit counts the interfaces of both, EC2's record the default card's.
    ("i7ie.48xlarge", "pods"): (737, 394),
    ("i7ie.metal-48xl", "pods"): (737, 394),
    ("i8ge.48xlarge", "pods"): (1178, 590),
    ("i8ge.metal-48xl", "pods"): (1178, 590),
}
NOT_IN_MOTO = {"dl1.24xlarge", "p6e-gb200.36xlarge"} | {
    f"g4ad.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge", "16xlarge")
}
NEWER_FAMILIES = {"c9g", "c9gd", "r9g", "r9gd", "t8i"}
"""Families that moto's record holds and Karpenter's table of 2026-08 does not yet; Macs run no Kubernetes nodes."""


@pytest.fixture(scope="module")
def recorded():
    found = find_spec("moto")
    if found is None or found.origin is None:
        pytest.skip("moto is not installed")
    path = Path(found.origin).parent / "ec2" / "resources" / "instance_types.json.gz"
    return json.loads(gzip.decompress(path.read_bytes()))


def ours(found):
    return {
        "vcpu": found.vcpu,
        "memory MiB": int(found.memory) // 2**20,
        "efa": found.efa,
        "accelerators": found.accelerators,
        "accelerator memory MiB": int(found.accelerator_memory) // 2**20 if found.accelerator_memory else None,
        "neuron cores": found.neuron_cores,
        "nvme GB": found.nvme // 10**9,
        "pods": found.allocatable_pods,
        "arch": {"amd64": "x86_64", "arm64": "arm64"}[found.arch],
    }


def theirs(record):
    network, storage = record["NetworkInfo"], record.get("InstanceStorageInfo", {})
    card = network["NetworkCards"][network["DefaultNetworkCardIndex"]]
    neuron = (record.get("NeuronInfo") or {}).get("NeuronDevices", [])
    gpus = record.get("GpuInfo", {}).get("Gpus", [])
    devices = gpus or neuron or record.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
    return {
        "vcpu": record["VCpuInfo"]["DefaultVCpus"],
        "memory MiB": record["MemoryInfo"]["SizeInMiB"],
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        "accelerators": sum(device["Count"] for device in devices),
        "accelerator memory MiB": devices[0].get("MemoryInfo", {}).get("SizeInMiB") if devices else None,
        "neuron cores": sum(device["Count"] * device["CoreInfo"]["Count"] for device in neuron),
        "nvme GB": storage.get("TotalSizeInGB", 0) if storage.get("NvmeSupport") != "unsupported" else 0,
        "pods": card["MaximumNetworkInterfaces"] * (network["Ipv4AddressesPerInterface"] - 1) + 2,
        "arch": next(arch for arch in record["ProcessorInfo"]["SupportedArchitectures"] if arch != "i386"),
    }


def test_the_disagreements_are_the_known_ones(recorded):
    differing = {}
    for found in catalog.instances():
        if found.type not in recorded:
            continue
        left, right = ours(found), theirs(recorded[found.type])
        # Where one record is silent about device memory there is nothing to compare.
        skipped = (
            {"accelerator memory MiB"}
            if None in (left["accelerator memory MiB"], right["accelerator memory MiB"])
            else set()
        )
        for fact in left.keys() - skipped:
            if left[fact] != right[fact]:
                differing[found.type, fact] = (left[fact], right[fact])
    assert differing == DISAGREEMENTS


def test_the_types_of_only_one_record_are_the_known_ones(recorded):
    held = {found.type for found in catalog.instances()}
    assert held - recorded.keys() == NOT_IN_MOTO
    families = {type.partition(".")[0] for type in recorded.keys() - held}
    assert {family for family in families if not family.startswith("mac")} == NEWER_FAMILIES
