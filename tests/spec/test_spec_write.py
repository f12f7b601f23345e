"""YAML -> model -> YAML -> model, and text that every reader takes for the same."""

import json
import math
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from spec_job_file import job

from raytrain_eks.spec.engine import DeepSpeed, Torch
from raytrain_eks.spec.job import Job
from raytrain_eks.spec.load import load
from raytrain_eks.spec.source import read_documents
from raytrain_eks.spec.write import number, text, to_yaml

ROOT = Path(__file__).resolve().parents[2]
FILES = [path for folder in ("jobs", "cluster_specs") for path in sorted((ROOT / folder).glob("*.yaml"))]
FILES = [path for path in FILES if "kind: Job\n" in path.read_text() or "kind: Cluster\n" in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_file_survives_the_round_trip(path):
    model = load(path)
    written = to_yaml(model)
    again = type(model).read(written, "again.yaml")
    assert again == model
    assert again.model_fields_set == model.model_fields_set
    assert to_yaml(again) == written
    assert max(map(len, written.splitlines())) <= 130


def test_it_is_what_a_person_would_write():
    written = to_yaml(Job.parse(job(data__train="python-stdlib:", optimizer__learning_rate=2e-5, schedule={})))
    assert written == (
        "kind: Job\n"
        "name: first\n"
        "model: {config: {model_type: llama}}\n"
        "tokenizer: {train: {vocab_size: 1000}}\n"
        'data: {train: "python-stdlib:", sequence_length: 256}\n'
        "batch: {tokens: 4096}\n"
        "optimizer: {learning_rate: 2.0e-05}\n"
        "schedule: {}\n"
        "stop: {steps: 10}\n"
    )


@pytest.mark.parametrize("engine", [Torch(fsdp=True), DeepSpeed()])
def test_a_model_made_in_python_keeps_its_kind(engine):
    made = Job.parse(job()).model_copy(update={"engine": engine})
    object.__setattr__(made, "__pydantic_fields_set__", made.model_fields_set | {"engine"})
    assert Job.read(to_yaml(made), "").engine == engine


configs = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**15), 10**15)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=6).filter(
                lambda key: key != "<<"
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=150)
@given(
    config=st.dictionaries(st.sampled_from(["a", "b c", "no", "1"]), configs),
    prompts=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1)),
)
def test_any_config_survives_the_round_trip(config, prompts):
    model = Job.parse(job(model={"config": {**config, "model_type": "x"}}, sample={"prompts": prompts}))
    assert Job.read(to_yaml(model), "") == model


@given(
    st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["on", "1e3", "0o7", "1:30", "-", "a: b", "x #"])
)
def test_a_string_is_the_same_to_every_reader(value):
    for flow in (False, True):
        written = text(value, flow=flow)
        wrapped = f"[{written}]\n" if flow else f"- {written}\n"
        if "\0" not in value:
            assert read_documents(wrapped, "")[0].data == [value]
        if not any(ord(character) >= 0xD800 or character == "\x7f" for character in value):
            assert yaml.safe_load(wrapped) == [value]
        if written.startswith('"'):
            assert json.loads(written) == value


@given(st.floats())
def test_a_number_is_the_same_to_every_reader(value):
    for read in (yaml.safe_load, lambda written: read_documents(written, "")[0].data):
        found = read(number(value))
        assert isinstance(found, float)
        assert found == value or (math.isnan(found) and math.isnan(value))
