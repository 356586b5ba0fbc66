"""Integer columns as byte planes: lossless, narrowest, and checked before memory is taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes, pack, pack_zigzag, unpack, unpack_index, unpack_zigzag, unzigzag, zigzag

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_VALUES = st.lists(
    st.one_of(st.integers(_LOWEST, _HIGHEST), st.integers(-300, 300), st.sampled_from([_LOWEST, -1, 0, _HIGHEST])),
    max_size=50,
)


def _array(values: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


@given(_VALUES)
def test_packed_values_come_back_to_the_bit(values: list[int]) -> None:
    """Both packings keep every int64, the lowest and the highest in one column included."""
    assert unpack(pack(_array(values)), len(values), "c").tolist() == values
    assert unpack_zigzag(pack_zigzag(_array(values)), len(values), "c").tolist() == values


def test_zigzag_follows_protobuf_s_rule() -> None:
    """0, -1, 1, -2, 2 are 0, 1, 2, 3, 4, and the two ends of int64 the last two uint64."""
    values = _array([0, -1, 1, -2, 2, _HIGHEST, _LOWEST])
    assert zigzag(values).tolist() == [0, 1, 2, 3, 4, 2**64 - 2, 2**64 - 1]
    assert unzigzag(zigzag(values)).tolist() == values.tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_zigzag_is_undone_in_every_width(dtype: type[np.unsignedinteger]) -> None:
    """The largest number of each width is -(2^(bits-1)), the one before it 2^(bits-1) - 1."""
    most, half = int(np.iinfo(dtype).max), (int(np.iinfo(dtype).max) + 1) // 2
    assert unzigzag(np.array([0, 1, most - 1, most], dtype=dtype)).tolist() == [0, -1, half - 1, -half]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], Planes(0, 0, b"")),
        ([-7, -7, -7], Planes(0, -7, b"")),
        ([10, 265], Planes(1, 10, b"\x00\xff")),
        ([10, 266], Planes(2, 10, b"\x00\x00\x00\x01")),
        ([0, 0x010203], Planes(4, 0, b"\x00\x03\x00\x02\x00\x01\x00\x00")),
        ([_LOWEST, _HIGHEST], Planes(8, _LOWEST, b"\x00\xff" * 8)),
    ],
)
def test_the_narrowest_width_is_taken_and_bytes_lie_in_planes(values: list[int], expected: Planes) -> None:
    """Lowest bytes of all values first, then all second bytes: spelled out by hand."""
    assert pack(_array(values)) == expected


@pytest.mark.parametrize(
    ("most", "width"), [(0, 0), (255, 1), (256, 2), (65535, 2), (65536, 4), (2**32 - 1, 4), (2**32, 8)]
)
def test_the_width_changes_exactly_at_the_powers_of_256(most: int, width: int) -> None:
    """The span between the lowest and the highest value decides."""
    assert pack(_array([-5, most - 5])).width == width


@pytest.mark.parametrize(
    "read",
    [
        lambda p, n: unpack(p, n, "gap"),
        lambda p, n: unpack_zigzag(p, n, "gap"),
        lambda p, n: unpack_index(p, n, "gap", 9),
    ],
)
@pytest.mark.parametrize(
    ("planes", "rows", "reason"),
    [
        (Planes(3, 0, b"\x00" * 6), 2, "column_width"),
        (Planes(16, 0, b"\x00" * 32), 2, "column_width"),
        (Planes(1, 0, b"\x00"), 2, "column_length"),
        (Planes(2, 0, b"\x00" * 5), 2, "column_length"),
        (Planes(0, 5, b"\x00"), 2, "column_length"),
        (Planes(8, 0, b""), 2, "column_length"),
    ],
)
def test_wrong_widths_and_lengths_are_refused_with_the_column_s_name(
    read: object, planes: Planes, rows: int, reason: str
) -> None:
    """Every reader checks before it takes memory, and says which column is wrong."""
    with pytest.raises(BatchError, match="column gap") as caught:
        read(planes, rows)  # type: ignore[operator]  # one of three readers
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("planes", "lowest", "highest"),
    [
        (Planes(0, 9, b""), 9, 9),
        (Planes(0, -1, b""), -1, -1),
        (Planes(1, 8, b"\x00\x01"), 8, 9),
        (Planes(1, -1, b"\x05\x06"), -1, 5),
        (Planes(8, 0, b"\x00\xff" * 8), 0, 2**64 - 1),
        (Planes(4, 0, b"\x00\x00" * 3 + b"\x00\x80"), 0, 2**31),
        (Planes(0, 2**63 - 1, b""), 2**63 - 1, 2**63 - 1),
    ],
)
def test_an_index_outside_its_table_is_refused(planes: Planes, lowest: int, highest: int) -> None:
    """No value, not even one that wraps in 32 bits, gets past the check."""
    with pytest.raises(BatchError, match=f"entries {lowest} to {highest} of 9") as caught:
        unpack_index(planes, 2, "config", 9)
    assert caught.value.reason == "index"


def test_an_index_column_of_no_rows_asks_for_no_table() -> None:
    """An empty batch may have empty tables."""
    assert unpack_index(Planes(0, 0, b""), 0, "config", 0).tolist() == []
