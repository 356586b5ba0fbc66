"""Label values."""

from __future__ import annotations

import pytest

from spanlite.exporters.labels import MAX_LENGTH, label_value


@pytest.mark.parametrize("text", ["gemm", "", 'a"b', "a\nb", "a\\b", "void f<int>(Größe)", "x" * MAX_LENGTH])
def test_short_text_that_formats_can_escape_is_kept(text: str) -> None:
    """Proves that quoting is left to the formats and nothing readable is changed."""
    assert label_value(text) == text


@pytest.mark.parametrize(
    "text", ["a\0b", "a\rb", "a\x7fb", "a\x85b", "a\ud800b", "x" * (MAX_LENGTH + 1), "y" * 1_000_000]
)
def test_unfit_or_long_text_becomes_short_valid_utf8(text: str) -> None:
    """Proves that what would break a parser cannot reach it."""
    value = label_value(text)
    assert len(value) <= MAX_LENGTH
    assert value.encode("utf-8")
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in value)


def test_names_that_differ_only_in_what_is_lost_stay_apart() -> None:
    """Proves that two kernels are never counted as one because their labels were cut or cleaned."""
    texts = ["a\0", "a\1", "a\ud800", "a\N{REPLACEMENT CHARACTER}", *("p" * 500 + str(n) for n in range(100))]
    assert len({label_value(text) for text in texts}) == len(texts)
