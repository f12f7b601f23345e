"""The YAML reader: the core schema, places, what it refuses, and that nothing makes it hang or crash."""

import math
import time

import pytest

from raytrain_eks.spec.problem import SpecError
from raytrain_eks.spec.source import EXPANDED, read_documents, scalar
from raytrain_eks.spec.yaml_nodes import DEPTH


def data(text: str):
    return [document.data for document in read_documents(text, "f.yaml")]


def problem(text: str):
    with pytest.raises(SpecError) as raised:
        read_documents(text, "f.yaml")
    return raised.value.problems[0]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("on", "on"),
        ("yes", "yes"),
        ("12:30", "12:30"),
        ("017", 17),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("2e-5", 2e-5),
        ("1.", 1.0),
        (".5", 0.5),
        ("1.33", 1.33),
        ("~", None),
        ("", None),
        ("True", True),
        ("-.inf", -math.inf),
        ("2026-01-01", "2026-01-01"),
        ("9" * 5000, math.inf),
    ],
)
def test_plain_scalars_follow_the_core_schema_of_yaml_1_2(text, value):
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}),
        ("a: !!str 3\nb: !!int '3'\nc: ! 4", {"a": "3", "b": 3, "c": "4"}),
        ("\ufeffa: 1", {"a": 1}),
        ("a: 1\r\nb:\r\n  - 2\r\n", {"a": 1, "b": [2]}),
        ("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}),
        ("1: x\ntrue: y", {"1": "x", "true": "y"}),
        ("%YAML 1.1\n---\na: on", {"a": "on"}),
    ],
)
def test_documents_become_plain_data(text, value):
    assert data(text) == [value]


@pytest.mark.parametrize("text", ["", "# only a comment\n", "---\n", "---\n---\n# nothing\n", "~", "\n\n"])
def test_nothing_written_is_no_document(text):
    assert data(text) == []


def test_places_of_keys_and_values_are_counted_from_one():
    (document,) = read_documents("a: 1\nb:\n  - c:   2\n", "f.yaml")
    assert document.values[("a",)] == (1, 4)
    assert document.keys[("b",)] == (2, 1)
    assert document.keys[("b", 0)] == (3, 5)
    assert document.values[("b", 0, "c")] == (3, 10)
    assert document.texts[("b", 0, "c")] == "2"
    assert document.place(("b", 0, "missing")) == (3, 5)


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("a:\n\tb: 1", 2, 1, "tab"),
        ("a: b: c", 1, 5, "colon"),
        ("a: 1\n b: 2", 2, 3, "indented too far"),
        ("a: [1, 2", 1, 9, "ends inside the list that opens on line 1"),
        ("a: 'x", 1, 6, "quoted text that opens on line 1"),
        ("files: *.py", 1, 8, "alias"),
        ("a: @b", 1, 4, "cannot start with `@`"),
        ("a: %b", 1, 4, "cannot start with `%`"),
        ("a: `b`", 1, 4, "cannot start with"),
        ('a: "\\d"', 1, 6, "escape character 'd'"),
        ("a: \x07", 1, 4, "unacceptable character"),
        ("a: 1\n  b\nc: 2\nd", 5, 1, ""),
        ("a:\n  b: 1\n c: 2", 3, 2, "line up"),
        ("%YAML x\n---\na: 1", 1, 7, "directive"),
        ('"\\UFFFFFFFF"', None, None, "not valid YAML"),
        ("a: &a [*a]", 1, 8, "no end"),
        ("a: !foo 1", 1, 4, "tag !foo"),
        ("a: !!python/object:os.system x", 1, 4, "tag"),
        ("a: 1\na: 2", 2, 1, "twice"),
        ("x: {a: 1, a: 2}", 1, 11, "twice"),
        ("<<: {a: 1}", 1, 1, "merge keys"),
        ("? [a]\n: 1", 1, 3, "plain word"),
        (": 1", 1, 1, "key is missing"),
        ('a: "\\ud800"', 1, 4, "surrogate"),
        ('a: "x\\0"', 1, 4, "NUL"),
    ],
)
def test_what_is_refused_says_where_and_why(text, line, column, words):
    found = problem(text)
    assert words in found.rule
    if words:
        assert (found.line, found.column) == (line, column)
    assert found.file == "f.yaml"


def test_what_is_wrong_with_the_tree_can_be_reported_with_the_rest():
    (document,) = read_documents("a: 1\na: 2\n<<: 3\nb: !x 1\n", "f.yaml", lenient=True)
    assert document.data == {"a": 1, "b": None}
    assert [found.line for found in document.problems] == [2, 3, 4]


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(12)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, f"more than {EXPANDED}"),
        ("[" * 20_000, f"deeper than {DEPTH}"),
        ("- " * 20_000, f"deeper than {DEPTH}"),
        ("{a: " * 20_000, f"deeper than {DEPTH}"),
        ("? " * 20_000, f"deeper than {DEPTH}"),
    ],
)
def test_bombs_are_refused_before_they_go_off(text, words):
    began = time.process_time()
    assert words in problem(text).rule
    assert time.process_time() - began < 20, "it would otherwise take minutes, or all memory"
