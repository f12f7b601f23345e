"""Machine output: the same data in three forms, read back as it was."""

import json

import pytest
import yaml as pyyaml
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.cli import output
from raytrain_eks.spec.source import read_documents

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(codec="utf-8", exclude_categories=("C",))),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", "rule", "fix"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(["name", "value"]), plain, min_size=1))
def test_yaml_reads_back_the_same(data):
    text = output.as_yaml(data)
    assert read_documents(text, "x")[0].data == data
    assert pyyaml.safe_load(text) == data


@pytest.mark.parametrize(
    "text", ["2e-5", "0o17", "on", "yes", "12:30:45", "1_000", "", "null", "2026-08-01", "0x1F", "-.5", "="]
)
def test_texts_that_look_like_something_else_are_quoted(text):
    assert output.as_yaml({"value": text}) == f'value: "{text}"\n'


def test_columns_are_aligned_and_nothing_has_colour_off_a_terminal(capsys):
    text = output.aligned(["TYPE", "EFA"], [["p4d.24xlarge", 4], ["p5", None]], right=["EFA"])
    assert text == "TYPE          EFA\np4d.24xlarge    4\np5              -"
    assert output.aligned(["TYPE"], []) == ""
    output.write("table", {}, table=lambda: text)
    output.write("json", [{"b": 1, "a": "é"}], table=lambda: text)
    shown = capsys.readouterr().out
    assert shown.startswith(text + "\n")
    assert json.loads(shown.removeprefix(text)) == [{"b": 1, "a": "é"}]


def test_no_color_switches_colours_off_on_a_terminal(monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert output.bold("x") == "\x1b[1mx\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert output.bold("x") == "x"


def test_pairs_leave_out_what_is_not_known():
    assert output.pairs({"type": "p5", "efa bandwidth": None}) == "type  p5"
