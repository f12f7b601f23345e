"""Facts of one type, and the ways to find a type."""

from decimal import Decimal

import pytest

from raytrain_eks import catalog
from raytrain_eks.catalog import allocatable
from raytrain_eks.spec.problem import SpecError


@pytest.mark.parametrize(
    ("type", "resource", "amount"),
    [
        ("p4d.24xlarge", "cpu", Decimal("95.69")),
        ("p4d.24xlarge", "memory", Decimal(1082712) * 2**20),
        ("p4d.24xlarge", "nvidia.com/gpu", 8),
        ("p4d.24xlarge", "vpc.amazonaws.com/efa", 4),
        ("p5.48xlarge", "vpc.amazonaws.com/efa", 32),
        ("p5.48xlarge", "pods", 100),
        ("trn1.32xlarge", "aws.amazon.com/neuron", 16),
        ("trn1.32xlarge", "nvidia.com/gpu", 0),
        ("trn2.48xlarge", "aws.amazon.com/neuroncore", 64),
        ("g6f.large", "nvidia.com/gpu", 0),
        ("trn2.3xlarge", "cpu", Decimal("11.9")),
        ("p6e-gb200.36xlarge", "cpu", None),
        ("m6i.2xlarge", "memory", Decimal(29317) * 2**20),
    ],
)
def test_what_a_node_can_give(type, resource, amount):
    assert catalog.instance(type).allocatable(resource) == amount


@pytest.mark.parametrize(
    ("type", "lnc", "cores"), [("trn1.32xlarge", None, 32), ("trn2.48xlarge", None, 64), ("trn2.48xlarge", 1, 128)]
)
def test_logical_cores(type, lnc, cores):
    assert catalog.instance(type).logical_cores(lnc) == cores


def test_an_lnc_that_the_chip_cannot_have_is_refused():
    with pytest.raises(ValueError, match="Trainium1 has LNC 1, not 2"):
        catalog.instance("trn1.32xlarge").logical_cores(2)


def test_every_row_is_read_and_has_its_source_and_date():
    found = list(catalog.instances())
    assert len(found) == 1345
    assert [each.type for each in found] == sorted(each.type for each in found)
    assert all(each.source and each.date.startswith("20") for each in found)
    assert all(each.peak_source for each in found if each.bf16_flops or each.neuron_cores)
    assert found[0] == catalog.instance(found[0].type)


def test_an_unknown_type_names_the_nearest():
    with pytest.raises(SpecError, match=r"did you mean `p4d\.24xlarge`\? p4d comes as 24xlarge"):
        catalog.instance("p4d.24xlage")
    with pytest.raises(SpecError, match="no EC2 type"):
        catalog.instance("")
    assert not catalog.known("a100")


@pytest.mark.parametrize(
    ("wish", "type", "nodes"),
    [
        ("H100:8", "p5.48xlarge", 1),
        ("H100:16", "p5.48xlarge", 2),
        ("H100:4", "p5.4xlarge", 4),
        ("A100:8", "p4d.24xlarge", 1),
        ("A100-80GB:16", "p4de.24xlarge", 2),
        ("L40S", "g6e.xlarge", 1),
        ("trainium2:16", "trn2.48xlarge", 1),
    ],
)
def test_a_wish_becomes_whole_nodes_and_says_so(wish, type, nodes):
    choice = catalog.resolve_gpus(wish)[0]
    assert (choice.instance.type, choice.nodes) == (type, nodes)
    assert choice.said.startswith(f"{wish} is {nodes} x {type}")


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ("H1000:8", "did you mean `H100`"),
        ("A100:3", "fills no whole nodes"),
        ("A100-60GB:8", "40 GiB, 80 GiB"),
        ("A100:0", "fills no whole nodes"),
        (":8", "not an accelerator and a count"),
    ],
)
def test_a_wish_that_cannot_be_met(wish, said):
    with pytest.raises(SpecError, match=said):
        catalog.resolve_gpus(wish)


@pytest.mark.parametrize(
    ("expression", "types"),
    [
        ("gpu=H100,efa>=16", ["p5.48xlarge"]),
        ("gpu=h100", ["p5.48xlarge", "p5.4xlarge"]),
        ("neuron_cores>=64", ["trn2.48xlarge", "trn2u.48xlarge", "inf1.24xlarge"]),
        ("type=p5*,efa<32,gpus=8", ["p5en.48xlarge"]),
        ("gpu=A100, gpu_memory>=80Gi", ["p4de.24xlarge"]),
        ("family=p4d", ["p4d.24xlarge"]),
        ("network>=6T", ["p6-b300.48xlarge"]),
    ],
)
def test_where(expression, types):
    assert sorted(found.type for found in catalog.where(expression)) == sorted(types)


@pytest.mark.parametrize(
    ("expression", "said"),
    [("gpuu=H100", "did you mean `gpu`"), ("gpu>3", "no order"), ("efa", "not a condition"), ("efa>=x", "quantity")],
)
def test_a_bad_condition_says_what_is_wrong(expression, said):
    with pytest.raises(SpecError, match=said):
        catalog.where(expression)


def test_every_bad_condition_is_said_at_once():
    with pytest.raises(SpecError) as caught:
        catalog.where("gpuu=1,efa>=x,arch=arm64")
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(("vcpu", "cpus"), [(1, "0.94"), (2, "1.93"), (4, "3.92"), (96, "95.69"), (192, "191.45")])
def test_cpu_formula(vcpu, cpus):
    assert allocatable.cpu(vcpu) == Decimal(cpus)
