"""A model that was accepted for prepared data is asked about once, and again when anything of the question changes."""

from types import SimpleNamespace

import pytest

from raytrain_eks.spec.job import Job
from raytrain_eks.spec.problem import Problem, SpecError
from raytrain_eks.train import model
from raytrain_eks.train.accepted import check_model

CONFIG = {"model_type": "llama", "hidden_size": 64}


def job(**top) -> Job:
    fields = {
        "name": "j",
        "model": {"config": CONFIG},
        "tokenizer": {"train": {"vocab_size": 512}},
        "data": {"train": "x", "sequence_length": 64},
        "batch": {"sequences": 8},
        "optimizer": {"learning_rate": 1e-3},
        "stop": {"steps": 10},
    }
    return Job.parse(fields | top)


@pytest.fixture
def asked(monkeypatch):
    """Names of the jobs that transformers was asked about."""
    names: list[str] = []
    monkeypatch.setattr(model, "model_config", lambda job, _tokenizer: names.append(job.name))
    return names


def prepared(folder):
    return SimpleNamespace(url=str(folder), tokenizer=lambda: None)


@pytest.mark.parametrize(
    ("again", "times"),
    [
        ({}, 1),
        ({"name": "other", "optimizer": {"learning_rate": 1}, "stop": {"steps": 9}}, 1),
        ({"model": {"config": CONFIG | {"hidden_size": 65}}}, 2),
        ({"data": {"train": "x", "sequence_length": 65}}, 2),
        ({"task": "mlm", "model": {"config": CONFIG | {"model_type": "bert"}}}, 2),
    ],
)
def test_asked_again_only_when_the_question_is_another(again, times, asked, tmp_path):
    check_model(job(), prepared(tmp_path))
    check_model(job(**again), prepared(tmp_path))
    assert len(asked) == times


def test_other_data_may_have_another_tokenizer(asked, tmp_path):
    check_model(job(), prepared(tmp_path / "a"))
    check_model(job(), prepared(tmp_path / "b"))
    assert len(asked) == 2


def test_what_a_name_stands_for_may_change(asked, tmp_path):
    named = job(model={"name": "m"}, tokenizer=None)
    check_model(named, prepared(tmp_path))
    check_model(named, prepared(tmp_path))
    assert len(asked) == 2


def test_what_is_refused_is_refused_each_time(monkeypatch, tmp_path):
    def refuse(_job, _tokenizer):
        raise SpecError([Problem(path="model.config", rule="no")])

    monkeypatch.setattr(model, "model_config", refuse)
    for _ in range(2):
        with pytest.raises(SpecError):
            check_model(job(), prepared(tmp_path))
