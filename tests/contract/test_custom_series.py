"""Series of custom metrics as text: one text a series, whatever its labels hold, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.customs import (
    LABELS,
    NAME_CHARS,
    VALUE_CHARS,
    fit_label,
    fit_name,
    fit_value,
    parse_series,
    write_series,
)

NAMES = st.text().map(fit_name)
LABEL_SETS = st.dictionaries(st.text().map(fit_label), st.text().map(fit_value), max_size=LABELS)


def test_a_series_is_written_as_prometheus_does() -> None:
    """Labels sorted by name; backslash, quote and line feed escaped; no braces without labels."""
    assert write_series("rope.cosine_compute_ms", {"sequence": "7", "layer": "3"}) == (
        'rope.cosine_compute_ms{layer="3",sequence="7"}'
    )
    assert write_series("a", {"b": '\\"\n'}) == 'a{b="\\\\\\"\\n"}'
    assert write_series("a", {}) == "a"


@given(NAMES, LABEL_SETS)
def test_what_was_written_is_read_back(name: str, labels: dict[str, str]) -> None:
    """Any fit name and labels come back, from labels in any order."""
    text = write_series(name, labels)
    assert parse_series(text) == (name, labels)
    assert write_series(name, dict(reversed(labels.items()))) == text


@given(st.text() | st.from_regex(r"[a-z]{1,3}\{[a-z\"=,\\]{0,12}\}"))
def test_no_text_is_read_as_another(text: str) -> None:
    """What is read writes itself again, with its labels in order; anything else is refused."""
    try:
        name, labels = parse_series(text)
    except ValueError:
        return
    assert sorted(write_series(name, labels)) == sorted(text)


@pytest.mark.parametrize(
    "text",
    [
        *("", "1a", "a{", "a{}", 'a{b="c"', 'a{b="c"}x', 'a{b="c",}', 'a{,b="c"}', 'a{b="c",b="d"}', "a{b=c}"),
        *('a{b="\\x"}', 'a{b="\n"}', 'a{b="\ud800"}', "ä", 'a{ä="c"}', f"{'a' * (NAME_CHARS + 1)}", "a b"),
        f'a{{b="{"x" * (VALUE_CHARS + 1)}"}}',
        "a{" + ",".join(f'l{n}="x"' for n in range(LABELS + 1)) + "}",
    ],
)
def test_what_is_no_series_is_refused(text: str) -> None:
    """Cut off, doubled, unescaped, foreign letters, too long, too many."""
    with pytest.raises(ValueError):
        parse_series(text)


def test_long_values_stay_apart() -> None:
    """Two values that differ at their end only are two, and both are short."""
    one, other = (fit_value("x" * 10_000 + end) for end in "ab")
    assert one != other
    assert len(one) == len(other) == VALUE_CHARS
