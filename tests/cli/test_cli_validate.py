"""`raytrain-eks validate`, through the door that people use."""

import io
import json
import sys
import types

import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.spec.load import load
from raytrain_eks.spec.write import to_yaml


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["validate", *map(str, arguments)])
    return ended.value.code, *capsys.readouterr()


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory with data, a model, and a cluster file; a function that writes a job there."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama", "max_position_embeddings": 128}))
    (tmp_path / "cluster.yaml").write_text(
        "kind: Cluster\nname: c\nregion: us-west-2\nzone: us-west-2a\nworkers:\n"
        "  - {name: a100, instance: p4d.24xlarge, nodes: 4}\n  - {name: cpu, instance: m6i.2xlarge, nodes: 2}\n"
    )

    def write(**changes):
        fields = {
            "kind": "Job",
            "name": "first",
            "model": "{config: {model_type: llama}}",
            "tokenizer": "{train: {vocab_size: 1000}}",
            "data": "{train: text, sequence_length: 64}",
            "batch": "{tokens: 640}",
            "optimizer": "{learning_rate: 0.001}",
            "stop": "{steps: 10}",
        }
        lines = [f"{key}: {value}\n" for key, value in {**fields, **changes}.items() if value is not None]
        (tmp_path / "job.yaml").write_text("".join(lines))
        return "job.yaml"

    return write


def test_the_examples_are_valid(capsys, root, monkeypatch):
    monkeypatch.chdir(root)
    code, shown, said = run(capsys, "jobs/quickstart.yaml", "cluster_specs")
    assert code == 0
    assert shown.splitlines()[0] == "jobs/quickstart.yaml: Job quickstart, valid"
    assert "all valid" in said


def test_problems_of_all_files_in_one_run(capsys, here, tmp_path):
    here(batch="{tokens: 100}", colour="red")
    (tmp_path / "other.yaml").write_text("kind: Job\n\tname: x\n")
    code, shown, said = run(capsys, "job.yaml", "other.yaml", "cluster.yaml")
    assert code == 3
    assert "job.yaml:6:17  batch.tokens = 100\n  must be a multiple of data.sequence_length, which is 64" in shown
    assert "unknown field" in shown
    assert "other.yaml:2:1" in shown
    assert "cluster.yaml: Cluster c, valid" in shown
    assert said == "3 problems in 2 files of 3\n"


def test_for_programs(capsys, here):
    here(batch="{tokens: 100}")
    code, shown, _ = run(capsys, "job.yaml", "-o", "json")
    (result,) = json.loads(shown)
    assert code == 3
    assert (result["file"], result["kind"], result["name"], result["valid"]) == ("job.yaml", "Job", "first", False)
    (problem,) = result["problems"]
    assert problem["path"] == "batch.tokens"
    assert (problem["line"], problem["column"], problem["value"]) == (6, 17, "100")
    assert set(problem) == {"file", "path", "line", "column", "value", "rule", "fix"}


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({"data": "{train: txt, sequence_length: 64}"}, "data.train = txt", "there is no such file or folder"),
        ({"data": "{train: empty, sequence_length: 64}"}, "data.train = empty", "the folder is empty"),
        ({"data": "{train: [{path: nope}], sequence_length: 64}"}, "data.train.0.path = nope", "no such file"),
        ({"data": "{train: text, evaluate: nope, sequence_length: 64}"}, "data.evaluate = nope", "no such file"),
        ({"model": "{name: ./text}", "tokenizer": None}, "model.name = ./text", "has no config.json"),
        ({"model": "{name: /nowhere}", "tokenizer": None}, "model.name = /nowhere", "no such folder"),
        (
            {"model": "{name: model}", "tokenizer": None, "data": "{train: text, sequence_length: 160}"},
            "data.sequence_length = 160",
            "which is 128",
        ),
        ({"tokenizer": "{name: ./text}"}, "tokenizer.name = ./text", "has no tokenizer"),
        ({"cluster": "nope.yaml"}, "cluster = nope.yaml", "no such file"),
        ({"cluster": "job.yaml"}, "cluster = job.yaml", "1 problem itself"),
        ({"cluster": "text"}, "cluster = text", "Is a directory"),
        ({"cluster": "cluster.yaml"}, "job.yaml:1:1  workers", "several worker groups: a100, cpu"),
        ({"cluster": "cluster.yaml", "workers": "{group: a10}"}, "workers.group = a10", "did you mean `a100`?"),
        ({"cluster": "cluster.yaml", "workers": "{group: cpu, nodes: 3}"}, "workers.nodes = 3", "at most 2 nodes"),
    ],
)
def test_what_a_job_names_must_be_there(capsys, here, changes, place, words):
    here(**changes)
    code, shown, said = run(capsys, "job.yaml")
    assert code == 3, shown
    assert place in shown
    assert words in shown
    assert said.startswith("1 problem in 1 file")


@pytest.mark.parametrize(
    "changes",
    [
        {"model": "{name: org/on-the-hub}", "tokenizer": None},
        {"data": "{train: s3://bucket/x, sequence_length: 64}"},
        {"cluster": "cluster.yaml", "workers": "{group: a100, nodes: 4}"},
        # absolute paths of a job for a cluster are those of the cluster's nodes
        {
            "cluster": "cluster.yaml",
            "workers": "{group: a100}",
            "data": "{train: /shared/x, sequence_length: 64}",
            "model": "{name: /shared/m}",
            "tokenizer": None,
        },
    ],
)
def test_what_lies_elsewhere_is_not_looked_for(capsys, here, changes):
    here(**changes)
    assert run(capsys, "job.yaml")[:2] == (0, "job.yaml: Job first, valid\n")


def test_instances_are_checked_against_the_catalogue(capsys, here, tmp_path):
    text = (tmp_path / "cluster.yaml").read_text().replace("p4d.24xlarge", "p4d.24xlage")
    (tmp_path / "cluster.yaml").write_text(text)
    code, shown, _ = run(capsys, "cluster.yaml")
    assert code == 3
    assert "did you mean `p4d.24xlarge`" in shown


def test_standard_input(capsys, root, monkeypatch):
    monkeypatch.chdir(root)
    text = to_yaml(load("jobs/quickstart.yaml"))
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(text.encode())))
    assert run(capsys, "-")[:2] == (0, "(stdin): Job quickstart, valid\n")


def test_a_folder(capsys, here, tmp_path):
    here()
    (tmp_path / "pod.yaml").write_text("apiVersion: v1\nkind: Pod\n")
    (tmp_path / ".hidden.yaml").write_text("nothing")
    code, shown, said = run(capsys, ".")
    assert (code, shown) == (0, "cluster.yaml: Cluster c, valid\njob.yaml: Job first, valid\n")
    assert said.startswith("1 Kubernetes manifest left out")
    code, shown, _ = run(capsys, "pod.yaml")
    assert code == 3
    assert "raytrain-eks lint" in shown


@pytest.mark.parametrize(
    ("argument", "code", "words"),
    [
        ("jbo.yaml", 3, "did you mean `job.yaml`?"),
        ("nowhere/x.yaml", 3, "No such file"),
        ("empty", 2, "no file in this"),
    ],
)
def test_what_cannot_be_read(capsys, here, argument, code, words):
    here()
    ended, shown, said = run(capsys, argument)
    assert ended == code
    assert words in shown + said


def test_no_file_is_wrong_usage(capsys):
    code, _, said = run(capsys)
    assert code == 2
    assert "Missing argument" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('ray: {version: "2.9.0"}', "token authentication needs Ray 2.52.0"),
        ("operator: {feature_gates: {RayCronJobs: true}}", "did you mean `RayCronJob`?"),
        ("provisioner: {ami: al2@latest}", "Amazon Linux 2 AMIs are for Kubernetes 1.32; the cluster is 1.33 (RT303)"),
        ('kubernetes: "1.5"', "kubernetes = 1.5"),
        (
            "head: {instance: m7g.2xlarge}\nray: {image: 'rayproject/ray:2.60.0-py311-gpu'}",
            "is built for amd64, and the pod's nodes are arm64: exec format error (RT110)",
        ),
    ],
)
def test_a_cluster_file_is_as_valid_as_what_it_renders_to(capsys, here, tmp_path, line, words):
    with (tmp_path / "cluster.yaml").open("a") as file:
        file.write(f"{line}\n")
    code, shown, _ = run(capsys, "cluster.yaml")
    assert code == 3
    assert words in shown


def test_an_empty_name_is_not_this_folder(capsys, here):
    assert run(capsys, "") == (2, "", "a FILE's name is empty; was a variable meant?\n")
