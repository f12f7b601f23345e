"""What the writer writes, three readers read back the same."""

import io
import json
import string

import pytest
import yaml as pyyaml
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from raytrain_eks.manifests import text

HOSTILE = [
    '2e-5', '0o17', '017', '0x1F', 'on', 'off', 'yes', 'No', 'y', 'n', '12:30:45', '190:20:30', '1_000', '~',
    'null', 'Null', 'NULL', '=', '<<', 'true', 'True', 'FALSE', '', ' ', ' a', 'a ', 'a: b', 'a:b', 'a:',
    'a #b', 'a#b', '# a', '- a', '-', '---', '...', '? a', '!tag', '&a', '*a', '|', '>', '%a', '@a', '`a`',
    '{a}', '[a]', 'a,b', "'a'", '"a"', "a'b", 'a"b', 'a\\b', 'a\nb', 'a\n', '\na', 'a\n\nb\n', 'a\n\n', ' a\nb',
    'a \nb', 'a\n b', '\ta\nb', 'a\tb', 'a\rb', 'a\r\nb', '\x00', '\x07', '\x7f', '\x85', '\u2028', '\u2029',
    '\ufeff', '\ufeffa', '\xa0', 'é', '日本', '😀', '\uffff', '2001-12-14', '2001-12-14t21:59:43.10-05:00', '1.0',
    '1e3', '1.5e3', '.5', '.inf', '-.INF', '.nan', 'nan', '+1', '-1', '0b11', '0.0.0.0', '10.0.0.1', '500m',
    '8Gi', '1Ei', '1E', 'e3', '$HOME', '${A}', '$(A)', 'a && b', 'a | b', 'a -b',
    'echo "it\'s" && true\nexit 0\n', '#!/bin/bash\nset -e\n', 'key: |\n  x', 'a\n---\nb', 'a\n...\n',
    "x" * 5000, '/', '/a b', '(a)', 'a = b', 'a =', 'a ~', 'a <b', 'a >b',
]  # fmt: skip

hostile = st.sampled_from(HOSTILE) | st.text(max_size=30) | st.text(string.printable, max_size=30)
hostile = hostile.filter(lambda each: not any(0xD800 <= ord(letter) <= 0xDFFF for letter in each))
leaf = (
    hostile
    | st.booleans()
    | st.none()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)
tree = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(hostile.filter(lambda k: len(k) < 1000), inner, max_size=3)
    ),
    max_leaves=8,
)


def readers(written: str):
    ruamel = YAML(typ="safe", pure=True)
    ruamel.version = (1, 2)
    yield "YAML 1.1", pyyaml.load(written, Loader=pyyaml.SafeLoader)
    yield "YAML 1.1 (C)", pyyaml.load(written, Loader=getattr(pyyaml, "CSafeLoader", pyyaml.SafeLoader))
    yield "YAML 1.2", ruamel.load(io.StringIO(written))


def same(read, meant) -> bool:
    """Equal, and of equal types: True is not 1."""
    return json.dumps(read, sort_keys=True) == json.dumps(meant, sort_keys=True)


@pytest.mark.parametrize("value", HOSTILE)
def test_a_hostile_string_reads_back_as_itself_as_value_key_and_entry(value):
    meant = {"value": value, "entries": [value, [value], {"k": value, "l": 1}], "nested": {"deep": {"er": value}}}
    meant |= {value: value} if len(value) < 1000 else {}
    for name, read in readers(text.yaml([meant])):
        assert same(read, meant), name
    assert json.loads(text.json_text([meant]))["items"] == [meant]


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.dictionaries(hostile.filter(lambda key: len(key) < 1000), tree, min_size=1, max_size=4))
def test_any_tree_reads_back_the_same(meant):
    written = text.yaml([meant])
    assert written == text.yaml([meant])
    for name, read in readers(written):
        assert same(read, meant), name
    assert same(json.loads(text.json_text([meant]))["items"][0], meant)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("p4d.24xlarge", "p4d.24xlarge"),
        ("500m", "500m"),
        ("8", '"8"'),
        ("2e-5", '"2e-5"'),
        ("on", '"on"'),
        ("s3://bucket/a b", "s3://bucket/a b"),
        (1e-05, "1.0e-05"),
        (1e22, "1.0e+22"),
        (True, "true"),
        ("a\tb", '"a\\tb"'),
    ],
)
def test_a_string_is_plain_only_when_nothing_else_can_be_read(value, written):
    assert text.scalar(value) == written


def test_the_order_of_keys_is_kubernetes_own():
    body = {"spec": {"b": 1, "a": 2}, "kind": "X", "metadata": {"labels": {}, "name": "name"}, "apiVersion": "v1"}
    lead = "apiVersion: v1\nkind: X\nmetadata:\n  name: name\n  labels: {}\nspec:\n  b: 1\n  a: 2\n"
    assert text.yaml([body, {"kind": "Y"}]) == f'{lead}---\nkind: "Y"\n'


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", object(), b"x", {1: 2}, {"k" * 2000: 1}])
def test_what_no_manifest_can_hold_is_refused(value):
    with pytest.raises(ValueError, match="of a manifest"):
        text.yaml([{"value": value}])
