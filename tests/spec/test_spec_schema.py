"""The JSON Schema for editors: valid itself, lets every example through, and names what a field is."""

import functools
import json
import re
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_job_file import job

from raytrain_eks.spec.fields import all_models, field_docs, field_names
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import KINDS, load, model_of
from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.schema import json_schema
from raytrain_eks.spec.source import read_documents

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("jobs", "cluster_specs") for path in sorted((ROOT / folder).glob("*.yaml"))]
FILES = [path for path in FILES if any(f"kind: {kind}\n" in path.read_text() for kind in KINDS)]


@functools.cache
def validator(kind: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator(json_schema(model_of(kind)))


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_schema_is_valid_and_complete(kind):
    schema = json_schema(model_of(kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    assert "x-aside" not in json.dumps(schema)
    parts = {kind: schema, **schema["$defs"]}
    for model in all_models(model_of(kind)):
        properties = parts[model.__name__]["properties"]
        assert list(properties) == field_names(model)
        for name, doc in field_docs(model).items():
            assert properties[name]["description"] == doc


def patterns(node):
    if isinstance(node, dict):
        yield from [node["pattern"]] if isinstance(node.get("pattern"), str) else []
        node = list(node.values())
    for item in node if isinstance(node, list) else []:
        yield from patterns(item)


@pytest.mark.parametrize("kind", list(KINDS))
def test_patterns_are_javascripts(kind):
    """JSON Schema's patterns are ECMA-262's, which has no end-of-text mark, no inline flags and no named groups."""
    found = set(patterns(json_schema(model_of(kind))))
    assert len(found) > 5
    for pattern in found:
        assert not re.search(r"\\[AZ]|\(\?[iaLmsuxP]", pattern), pattern
        assert pattern.startswith("^"), pattern
        assert pattern.endswith("$"), pattern


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples_are_valid(path):
    (document,) = read_documents(path.read_text(), str(path))
    validator(type(load(path)).__name__).validate(document.data)


def accepts(data) -> bool:
    return validator("Job").is_valid(data)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "Upper"},
        {"kind": None},
        {"batch__tokens": "4X"},
        {"batch__tokens": 0},
        {"data__held_out": 0.05},
        {"data__train": "http://x"},
        {"checkpoint": {"every": "15 minutes"}},
        {"workers": {"cpus": "four"}},
        {"engine": {"kind": "deepsped"}},
        {"precision": "fp16"},
        {"colour": "red"},
        {"schedule": {"warmup": "3"}},
        {"data__pack": "yes"},
        {"stop": {"steps": 0}},
        {"optimizer": None},
    ],
)
def test_an_editor_sees_these_mistakes(changes):
    assert not accepts(job(**changes))


@settings(deadline=None, max_examples=150)
@given(
    path=st.sampled_from(
        ["batch__tokens", "data__held_out", "schedule__warmup", "checkpoint__every", "workers__cpus", "stop__epochs"]
        + [
            "data__train",
            "optimizer__clip",
            "seed",
            "data__pack",
            "name",
            "storage",
            "failures__hang",
            "environment__A",
        ]
    ),
    value=st.integers(-3, 10**20)
    | st.floats(allow_nan=False)
    | st.booleans()
    | st.sampled_from(
        ["3%", "0.5%", "15m", "1d", "4M", "2.5k", "500m", ".5", "a", "s3://bucket/x", "s3:/", "x://y", "", " "]
    )
    | st.from_regex(r"[0-9]{1,3}(\.[0-9]{0,2})?[a-zA-Z%]{0,2}", fullmatch=True),
)
def test_what_the_reader_accepts_the_schema_accepts(path, value):
    data = job(**{path: value})
    try:
        Job.parse(data)
    except SpecError:
        return
    assert accepts(data)
