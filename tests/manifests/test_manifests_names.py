"""Names are legal, short enough, stable and different for different things."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raytrain_eks.manifests import names

LEGAL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?\Z")
likely = st.from_regex(r"[a-z0-9]{1,4}(-{1,2}[a-z0-9]{1,4}){0,3}", fullmatch=True)
part = likely | st.text(max_size=80) | st.text("ab-.2", max_size=70)
parts = st.lists(part, min_size=1, max_size=3).map(tuple)
MAKERS = [(names.resource, 63), (names.ray_job, 47), (names.ray_cron_job, 36)]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("llm-train", "a100"), "llm-train--a100"),
        (("llm",), "llm"),
        (("llm--x", "a"), "llm-x-a--oypbuaek7v"),
        (("1a",), "a--vapey6335u"),
        (("",), "x--a4cuuphhvk"),
    ],
)
def test_a_name_says_what_it_belongs_to(given, expected):
    assert names.resource(*given) == expected


@given(parts)
def test_any_name_is_legal_and_within_its_limit(given):
    for make, limit in MAKERS:
        name = make(*given)
        assert LEGAL.match(name)
        assert len(name) <= limit


@given(parts, parts)
def test_different_parts_have_different_names(one, other):
    for make, _ in MAKERS:
        assert (make(*one) == make(*other)) == (one == other)


def test_the_two_ways_to_split_a_name_differ():
    assert names.resource("a", "b-c") != names.resource("a-b", "c")
    shortened = names.resource("x" * 80)
    assert names.resource(shortened) != shortened
