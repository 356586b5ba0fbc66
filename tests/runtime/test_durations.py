"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.errors import UsageError
from spanlite.runtime.durations import parse_duration_ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1ns", 1),
        ("1us", 1_000),
        ("500ms", 500_000_000),
        ("10s", 10_000_000_000),
        ("1.5m", 90_000_000_000),
        ("2h", 7_200_000_000_000),
        ("0.1s", 100_000_000),
        ("0.000000001s", 1),
        ("1.9ns", 1),
        (" 10s ", 10_000_000_000),
        ("2562047h", 9_223_369_200_000_000_000),
        ("0.3s", 300_000_000),
        ("9007199.254740993s", 9_007_199_254_740_993),
    ],
)
def test_units_and_fractions(text: str, ns: int) -> None:
    """Proves each unit, and that fractions are decimal: the last is no float64."""
    assert parse_duration_ns(text) == ns


@given(st.integers(1, 10**15))
def test_whole_nanoseconds_come_back(ns: int) -> None:
    """Proves exactness for whole numbers and for nine decimals of a second."""
    assert parse_duration_ns(f"{ns}ns") == ns
    assert parse_duration_ns(f"{ns // 10**9}.{ns % 10**9:09}s") == ns


@pytest.mark.parametrize(
    "text",
    [
        "",
        "10",
        "s",
        "10 s",
        "-1s",
        "+1s",
        "1e3s",
        "0s",
        "0.4ns",
        "1d",
        "1S",
        "1.s",
        ".5s",
        "1s1s",
        "inf",
        "nan",
        "1s\n2",
        "2562048h",
        "9" * 400 + "s",
        "١s",
    ],
)
def test_other_forms_are_refused(text: str) -> None:
    """Proves that the error quotes the text and shows a right one."""
    with pytest.raises(UsageError, match="is no duration") as caught:
        parse_duration_ns(text)
    assert str(caught.value).startswith(repr(text))
    assert "such as 10s" in str(caught.value)
