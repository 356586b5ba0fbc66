"""Sizes as people write them."""

from __future__ import annotations

import pytest

from spanlite.contract.errors import UsageError
from spanlite.runtime.sizes import parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1GiB", 1_073_741_824),
        ("1.5 MiB", 1_572_864),
        ("512KiB", 524_288),
        ("2TiB", 2_199_023_255_552),
        ("3GB", 3_000_000_000),
        ("7kB", 7_000),
        ("4096", 4_096),
        (" 1B ", 1),
    ],
)
def test_sizes_are_read(text: str, size: int) -> None:
    """Powers of 1024 with an i, of 1000 without, bytes alone."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GiB", "1XiB", "-1GiB", "1e9", "0", "0.1B", "1 G", "9999999TiB", "1GiB1"])
def test_anything_else_is_refused_with_the_units(text: str) -> None:
    """No guess is made at what was meant."""
    with pytest.raises(UsageError, match="KiB, MiB, GiB"):
        parse_size(text)
