"""`raytrain-eks explain`, through the door that people use."""

import json

import jsonschema
import pytest

from raytrain_eks.cli.main import main
from raytrain_eks.lint.registry import rules
from raytrain_eks.spec.explain import explain
from raytrain_eks.spec.load import KINDS
from raytrain_eks.spec.source import read_documents


def run(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["explain", *arguments])
    return ended.value.code, *capsys.readouterr()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("job.data.sequence_length", ["(required)", "whole number, at least 8", "Tokens of a training sequence"]),
        ("job.schedule.kind", ["cosine, linear, constant, wsd", "default", "`wsd`"]),
        ("job.batch.tokens", ["whole number, at least 1 or text such as 512k or 4M"]),
        ("job.engine.zero", ["0, 1, 2, 3", "optimizer state (1)"]),
        ("job.engine.kind", ["auto, torch, deepspeed", "deepspeed: DeepSpeed's ZeRO."]),
        ("job.checkpoint", ["every", "15m", "keep_best"]),
        ("cluster.workers.capacity", ["`on-demand`, `spot`", "reservations"]),
        ("cluster.workers", ["list of mapping", "instance", "efa"]),
        ("job", ["One training run.", "required  The run's name", "pretrain"]),
        ("Cluster", ["region", "workers"]),
    ],
)
def test_a_field(capsys, path, words):
    code, shown, said = run(capsys, path)
    assert (code, said) == (0, "")
    for word in words:
        assert word in shown


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("job.data.sequence_lenght", "did you mean `job.data.sequence_length`?"),
        ("job.dta.train", "did you mean `job.data`?"),
        ("jobs.data", "did you mean `job.data`?"),
        ("pod", "paths begin with job or cluster"),
        ("job.name.first", "job.name has no fields below it"),
        ("job.zzzzz", "there are kind, name"),
        ("RT99", "did you mean RT"),
        ("QQ1", "they run from"),
        ("RayCluster/x", "-f FILE"),
    ],
)
def test_what_is_not_there(capsys, target, words):
    code, shown, said = run(capsys, target)
    assert (code, shown) == (2, "")
    assert words in said


@pytest.mark.parametrize("arguments", [[], ["job", "--schema", "job"]])
def test_one_thing_at_a_time(capsys, arguments):
    code, _, said = run(capsys, *arguments)
    assert code == 2
    assert "give one thing to explain" in said


def paths(path):
    yield path
    for field in explain(path).fields:
        yield from paths(field.path)


@pytest.mark.parametrize("kind", [kind.lower() for kind in KINDS])
def test_every_field_can_be_explained(kind):
    found = list(paths(kind))
    assert len(found) > 50
    for path in found:
        told = explain(path)
        assert told.text, path
        assert told.type, path


def test_for_programs(capsys):
    code, shown, _ = run(capsys, "job.schedule", "-o", "json")
    assert code == 0
    data = json.loads(shown)
    assert data["path"] == "job.schedule"
    assert {field["path"] for field in data["fields"]} >= {"job.schedule.kind", "job.schedule.warmup"}
    code, shown, _ = run(capsys, "job.schedule.kind", "-o", "yaml")
    assert read_documents(shown, "")[0].data["values"] == ["cosine", "linear", "constant", "wsd"]


@pytest.mark.parametrize("kind", ["job", "cluster", "sweep"])
def test_the_schema(capsys, kind):
    code, shown, _ = run(capsys, "--schema", kind)
    assert code == 0
    schema = json.loads(shown)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    jsonschema.Draft202012Validator.check_schema(schema)
    assert read_documents(run(capsys, "--schema", kind, "-o", "yaml")[1], "")[0].data == schema


def test_every_rule(capsys):
    for id in rules():
        code, shown, _ = run(capsys, id.lower())
        assert code == 0
        assert shown.startswith(id)
        assert "lint-ignore" in shown


def test_an_object_and_a_part_of_it(capsys, root):
    file = str(root / "cluster_specs/gpu-a100.yaml")
    code, shown, _ = run(capsys, "-f", file, "RayCluster/gpu-a100")
    assert code == 0
    assert len(shown.splitlines()) > 3
    for target, words in [
        ("RayCluster/nope", "no object"),
        ("RayCluster/gpu-a100.spec.nope", "has no"),
        ("job", "KIND/NAME"),
    ]:
        code, shown, said = run(capsys, "-f", file, target)
        assert (code, shown) == (2, "")
        assert words in said
