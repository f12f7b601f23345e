"""`raytrain-eks plan`."""

import json
import re

import pytest
from click.testing import CliRunner

from raytrain_eks.cli.plan import command
from raytrain_eks.spec.problem import SpecError

JOBS = ("llama3-8b-sft-a100", "llama3-70b-p5", "bert-large-trn1", "quickstart", "quickstart_sweep")


def planned(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, list(words), standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return int(result.return_value or 0), result.stdout, result.stderr


@pytest.mark.parametrize("name", JOBS)
def test_job_files(name, root, monkeypatch):
    monkeypatch.chdir(root)
    code, text, _ = planned(f"jobs/{name}.yaml")
    assert code == 0
    assert "parameters" in text
    assert "global batch" in text


@pytest.mark.parametrize("name", ["gpu-a100", "trn1", "cpu-kind"])
def test_cluster_files(name, root):
    files = list((root / "cluster_specs").glob(f"{name}*.yaml"))
    for file in files:
        code, text, _ = planned(str(file))
        assert code == 0
        assert text.startswith("WHAT")
        assert "head" in text


def test_a_job_that_does_not_fit_is_told_what_would(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = (root / "jobs" / "llama3-8b-sft-a100.yaml").read_text()
    file = tmp_path / "job.yaml"
    file.write_text(text.replace("zero: 3, activation_checkpointing: full", "zero: 1"))
    code, out, err = planned(str(file), "-o", "json")
    found = json.loads(out)
    assert (code, found["fits"]) == (3, False)
    assert {"kind": "torch", "fsdp": True} in found["alternatives"]
    assert "this would, with `micro: 1`: engine: {kind: torch, fsdp: true}" in err


def test_an_engine_for_other_accelerators_is_refused(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = (root / "jobs" / "bert-large-trn1.yaml").read_text()
    file = tmp_path / "job.yaml"
    file.write_text(text.replace("kind: xla", "kind: torch"))
    with pytest.raises(SpecError, match="torch_xla only"):
        planned(str(file))


@pytest.mark.parametrize(
    ("old", "new", "place", "rule"),
    [
        ("cluster: cluster_specs/gpu-a100.yaml", "cluster: nowhere.yaml", "job.yaml:5:10  cluster", "no such file"),
        ("nodes: 4", "nodes: 99", "workers.nodes = 99", "at most 16 nodes"),
        ("group: a100", "group: a1000", "workers.group = a1000", "no such group"),
    ],
)
def test_what_is_wrong_has_its_place_in_the_job_file(old, new, place, rule, root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    text = (root / "jobs" / "llama3-8b-sft-a100.yaml").read_text()
    assert old in text
    file = tmp_path / "job.yaml"
    file.write_text(text.replace(old, new))
    with pytest.raises(SpecError) as refused:
        planned(str(file))
    assert f"{file}:" in str(refused.value)
    assert place in str(refused.value)
    assert rule in str(refused.value)


def test_a_sweep_whose_job_is_missing_says_where(root, tmp_path, monkeypatch):
    monkeypatch.chdir(root)
    file = tmp_path / "sweep.yaml"
    file.write_text(
        (root / "jobs" / "quickstart_sweep.yaml").read_text().replace("jobs/quickstart.yaml\n", "no.yaml\n")
    )
    with pytest.raises(SpecError, match=r"sweep.yaml:\d+:\d+  job = no.yaml"):
        planned(str(file))


@pytest.mark.parametrize(
    ("count", "engine", "idle"),
    [(8, "torch", None), (12, "torch", 4), (16, "torch, tensor: 2", None), (24, "torch, tensor: 2", 8)],
)
def test_workers_that_get_no_sequence_are_told(root, tmp_path, monkeypatch, count, engine, idle):
    monkeypatch.chdir(root)
    text = (root / "jobs" / "quickstart.yaml").read_text()
    text = re.sub(r"(?m)^workers: .*$", f"workers: {{count: {count}}}", text)
    text = re.sub(r"(?m)^batch: .*$", "batch: {sequences: 8}", text)
    file = tmp_path / "job.yaml"
    file.write_text(re.sub(r"(?m)^engine: .*\n", "", text) + f"engine: {{kind: {engine}}}\n")
    code, out, err = planned(str(file), "-o", "json")
    rows = {row["what"]: row["value"] for row in json.loads(out)["plan"]}
    assert code == 0
    assert rows.get("idle workers") == idle
    assert (f"{idle} of {count} workers would idle: 8 sequences a step" in err) == (idle is not None)
