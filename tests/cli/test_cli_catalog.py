"""`raytrain-eks catalog`, through the door that people use."""

import json

import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.spec.source import read_documents


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code, *capsys.readouterr()


def test_one_type_for_people_names_source_and_date(capsys):
    code, shown, _ = run(capsys, "catalog", "p4d.24xlarge")
    assert code == 0
    assert "95.69 CPUs, 1082712Mi, 737 pods" in shown
    assert "karpenter" in shown
    assert "2026-08" in shown


@pytest.mark.parametrize("form", ["yaml", "json"])
def test_one_type_for_programs(capsys, form):
    code, shown, _ = run(capsys, "catalog", "trn2.48xlarge", "-o", form)
    data = json.loads(shown) if form == "json" else read_documents(shown, "x")[0].data
    assert code == 0
    assert data["accelerator"]["neuronCores"] == 128
    assert data["allocatable"] == {"cpu": "191450m", "memory": "1938410Mi", "pods": 100}
    assert data["date"] == "2026-08"


def test_where_lists_what_matches(capsys):
    code, shown, said = run(capsys, "catalog", "--where", "gpu=H100,efa>=16")
    assert code == 0
    assert [line.split()[0] for line in shown.splitlines()] == ["TYPE", "p5.48xlarge"]
    assert said.startswith("1 type;")


def test_conditions_may_be_given_one_by_one(capsys):
    together = run(capsys, "catalog", "--where", "gpu=H100,efa>=16")
    assert run(capsys, "catalog", "--where", "gpu=H100", "--where", "efa>=16") == together


def test_nothing_matches(capsys):
    assert run(capsys, "catalog", "--where", "gpu=H100,efa>64") == (0, "", "no instance type meets these conditions\n")
    assert run(capsys, "catalog", "--where", "gpu=H100,efa>64", "-o", "json")[1] == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["catalog", "p4d.24xlage"], 2, "did you mean `p4d.24xlarge`"),
        (["catalog", "--where", "gpuu=H100"], 2, "did you mean `gpu`"),
        (["catalog", "p4d.24xlarge", "--where", "efa>1"], 2, "not both"),
        (["catalog", ""], 2, "TYPE is empty; was a variable meant?"),
        (["catalog", "--where", ""], 2, "--where is empty; was a variable meant?"),
        (["catalog", "--where", "efa>1", "--where", ""], 2, "--where is empty; was a variable meant?"),
        (["catalog", "", "--where", ""], 2, "not both"),
        (["catalog", " "], 2, "no EC2 type of the catalogue"),
        (["catalog", "p4d.24xlarge,amd64"], 2, "no EC2 type of the catalogue"),
        (["catalog", "p4d.24xlarge\n"], 2, "no EC2 type of the catalogue"),
        (["catalog", "--where", ","], 2, "(empty)"),
    ],
)
def test_a_mistake_is_a_message(capsys, arguments, code, said):
    ended, shown, error = run(capsys, *arguments)
    assert (ended, shown) == (code, "")
    assert said in error
