"""Quantities, counts, shares and durations."""

import re
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from raytrain_eks.spec import quantity
from raytrain_eks.spec.cluster_nodes import Disk
from raytrain_eks.spec.cluster_storage import LustreSize
from raytrain_eks.spec.quantity import Canonical, Count, Cpu, Interval, Memory, Share, StepsOrShare


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1.5Gi", 1610612736),
        ("500m", Decimal("0.5")),
        ("200G", 200_000_000_000),
        ("1e3", 1000),
        (4, 4),
        ("8388607Ti", 8388607 * 1024**4),
        ("1.000000000000000000000000001Ei", Decimal("1.000000000000000000000000001") * 1024**6),
    ],
)
def test_quantities_are_exact(text, value):
    with_room = Decimal(value) if not isinstance(value, Decimal) else value
    assert abs(quantity.parse(text) - with_room) <= with_room * Decimal("1e-27")


@pytest.mark.parametrize(
    "text", ["", "Gi", "1 Gi", "1K", "1gi", "1e99999", "1" * 50, "٣", "inf", "nan", "--1", "1.2.3"]
)
def test_what_is_no_quantity_is_refused_at_once(text):
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("type", "value", "words"),
    [
        (Memory, 64, "needs a unit, a bare number would be bytes: write 64Gi or 64Mi"),
        (Memory, "64", "write 64Gi or 64Mi"),
        (Memory, 1e30, "needs a unit"),
        (Memory, 0, "must be a positive whole number of bytes, such as 64Gi"),
        (Memory, "0.0", "must be a positive whole number of bytes, such as 64Gi"),
        (Memory, "0m", "write 512Mi"),
        (Memory, "1..2", "must be a memory quantity, such as 64Gi"),
        (Memory, 10**13, "write 64Gi or 64Mi"),
        (Count, "0_0", "positive whole number, such as 4096"),
        (Memory, "128m", "`m` is one thousandth of a byte here: write 128Mi"),
        (Memory, "0Gi", "positive"),
        (Memory, "1.3Ki", "whole number of bytes"),
        (Memory, "64GB", "must be a memory quantity"),
        (Memory, True, "must be a memory quantity"),
        (Memory, [], "must be a memory quantity"),
        (Cpu, 0, "must be positive"),
        (Cpu, "1.00001", "no finer than"),
        (Cpu, "four", "must be a CPU quantity"),
        (Cpu, float("inf"), "must be a CPU quantity"),
        (Count, 0, "positive whole number"),
        (Count, "4_096", "write 4096"),
        (Count, "1,000", "write 1000"),
        (Count, "4m", "positive whole number"),
        (Count, "0.1k1", "positive whole number"),
        (Count, True, "positive whole number"),
        (Count, 10**30, "positive whole number"),
        (Count, None, "positive whole number"),
        (Share, 0.03, "write 3.00%"),
        (Share, 3, "share between 0% and 100%"),
        (Share, "101%", "share between 0% and 100%"),
        (Share, "%", "share between 0% and 100%"),
        (Share, "nan%", "share between 0% and 100%"),
        (Interval, 0, "number of steps"),
        (Interval, "15", None),
        (Interval, "15min", "number of steps"),
        (Interval, "9" * 39 + "d", "number of steps"),
        (StepsOrShare, -1, "number of steps"),
        (StepsOrShare, "10", "number of steps"),
        (StepsOrShare, "300%", "share between"),
    ],
)
def test_rules_of_the_types(type, value, words):
    adapter = TypeAdapter(type)
    if words is None:
        adapter.validate_python(value)
        return
    with pytest.raises(ValidationError) as raised:
        adapter.validate_python(value)
    assert words in str(raised.value)


def canonical(type):
    return next(entry.of for entry in type.__metadata__ if isinstance(entry, Canonical))


@pytest.mark.parametrize(
    ("type", "spellings"),
    [
        (Count, [4_000_000, "4M", "4000k", "4000000"]),
        (Share, ["3%", "3.0%", "03%", "3 %"]),
        (Interval, ["1h", "60m", "3600s"]),
        (Memory, ["1Gi", "1024Mi", "1073741824.0Ki"][:2]),
        (Cpu, ["0.5", "500m", ".5"]),
        (StepsOrShare, ["10%", "10.00%"]),
    ],
)
def test_spellings_of_one_value_are_one_value(type, spellings):
    assert len({canonical(type)(spelling) for spelling in spellings}) == 1


@given(st.integers(1, 10**15))
def test_counts_with_a_suffix_are_the_numbers(number):
    assert quantity.count(f"{number}k") == number * 1000
    assert quantity.count(number) == quantity.count(str(number)) == number


@given(st.text(max_size=60) | st.integers() | st.floats() | st.none() | st.booleans())
def test_any_value_is_read_or_refused_with_a_rule(value):
    for type in (Memory, Cpu, Count, Share, Interval, StepsOrShare):
        try:
            TypeAdapter(type).validate_python(value)
        except ValidationError as error:
            assert error.error_count() == 1  # noqa: PT017 (no error is fine as well)


@pytest.mark.parametrize(("text", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7200), ("1d", 86400), ("500ms", 0.5)])
def test_durations_in_seconds(text, seconds):
    assert quantity.seconds(text) == seconds


NUMBERS = st.one_of(
    st.integers(-(10**20), 10**20),
    st.floats(allow_nan=True, allow_infinity=True),
    st.from_regex(r"[-+]?[0-9]{0,8}[._,]?[0-9]{0,4}([eE][+-]?[0-9]{1,3})?(m|Gi|Ki)?", fullmatch=True),
)


@given(NUMBERS)
def test_what_a_message_tells_to_write_is_legal(value):
    """For a memory, a file system's size, a disk and a count alike: no proposal is refused in its turn."""
    for kind in (Memory, Count, LustreSize, Disk):
        reader = TypeAdapter(kind)
        try:
            reader.validate_python(value)
        except ValidationError as error:
            for proposed in re.findall(r"(?:write|or) ([0-9][0-9.a-zA-Z]*)", error.errors()[0]["msg"]):
                reader.validate_python(proposed)
