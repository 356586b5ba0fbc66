"""One column of integers to bytes and back: frame of reference, the narrowest width, split into byte planes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64, UInt64
from spanlite.contract.errors import BatchError
from spanlite.native import columns as native
from spanlite.native import library

WIDTHS = (0, 1, 2, 4, 8)
_WIDTH_OF_BYTES = (0, 1, 2, 4, 4, 8, 8, 8, 8)


class Planes(NamedTuple):
    """A packed column: proto Column."""

    width: int
    base: int
    data: bytes


def zigzag(values: Int64) -> UInt64:
    """Small magnitudes to small unsigned numbers: 0, -1, 1, -2 → 0, 1, 2, 3."""
    return np.asarray((values << 1) ^ (values >> 63)).view(np.uint64)


def unzigzag(raw: NDArray[np.unsignedinteger[Any]]) -> Int64:
    """The inverse of zigzag; narrow numbers are undone in their own width, which moves fewer bytes."""
    one = raw.dtype.type(1)
    sign = raw & one
    np.negative(sign, out=sign)
    sign ^= raw >> one
    return sign.view(f"<i{raw.dtype.itemsize}").astype(np.int64, copy=False)


def pack(values: NDArray[np.integer[Any]]) -> Planes:
    """Packs integers of any type (uint64 goes by its bits as int64) against their smallest one."""
    if (fast := library()) is not None:
        return Planes(*native.pack(fast, values))
    if values.dtype == np.uint64:
        values = values.view(np.int64)
    if len(values) == 0:
        return Planes(0, 0, b"")
    base, most = int(values.min()), int(values.max())
    if base == most:
        return Planes(0, base, b"")
    # Narrow types stay narrow, which moves fewer bytes, unless the difference would not fit them.
    if values.dtype.itemsize < 8 and most - base >= 1 << (8 * values.dtype.itemsize - 1):
        values = values.astype(np.int64)
    if values.dtype.itemsize == 8:
        return _split(values.view(np.uint64) - np.uint64(base & 0xFFFFFFFFFFFFFFFF), most - base, base)
    return _split(values - values.dtype.type(base), most - base, base)


def pack_zigzag(values: Int64) -> Planes:
    """Packs values that lie around zero."""
    if (fast := library()) is not None:
        return Planes(*native.pack(fast, values, zigzag=True))
    raw = zigzag(values)
    return _split(raw, int(raw.max()) if len(raw) else 0, 0)


def unpack(planes: Planes, rows: int, column: str) -> Int64:
    """Values of a column that was packed by `pack`, shape (rows,).

    Raises:
        BatchError: the width is none of WIDTHS or the data is not width * rows long.
    """
    if planes.width == 0:
        check_planes(planes, rows, column)
        return np.full(rows, planes.base, dtype=np.int64)
    if (fast := library()) is not None:
        check_planes(planes, rows, column)
        return native.unpack(fast, planes.data, planes.width, rows, planes.base)
    raw = _join(planes, rows, column).astype(np.uint64)
    raw += np.uint64(planes.base & 0xFFFFFFFFFFFFFFFF)
    return raw.view(np.int64)


def unpack_together(columns: Sequence[tuple[str, Planes]], rows: int) -> Int64:
    """Values of columns of one width that were packed by `pack`, by name, shape (len(columns), rows).

    Raises:
        BatchError: as `unpack`.
    """
    for name, planes in columns:
        check_planes(planes, rows, name)
    width = columns[0][1].width
    split = np.frombuffer(b"".join(planes.data for _, planes in columns), dtype=np.uint8)
    joined = np.ascontiguousarray(split.reshape(len(columns), width, rows).transpose(0, 2, 1))
    whole = joined.view(f"<u{width}").reshape(len(columns), rows).astype(np.uint64)
    whole += np.array([planes.base & 0xFFFFFFFFFFFFFFFF for _, planes in columns], dtype=np.uint64)[:, None]
    return whole.view(np.int64)


def unpack_index(planes: Planes, rows: int, column: str, size: int) -> NDArray[np.int32]:
    """Values of a column that was packed by `pack` and points into a table of `size` entries.

    Raises:
        BatchError: as `unpack`, or reason index for a value outside 0 … size - 1.
    """
    if planes.width == 0:
        check_planes(planes, rows, column)
        lowest = highest = planes.base
        index = np.full(rows, planes.base if 0 <= planes.base < size else 0, dtype=np.int32)
    elif (fast := library()) is not None:
        check_planes(planes, rows, column)
        index, most = native.unpack_index(fast, planes.data, planes.width, rows, planes.base)
        lowest, highest = planes.base, planes.base + most
    else:
        raw = _join(planes, rows, column)
        lowest = planes.base
        highest = planes.base + (int(raw.max()) if rows else 0)
        index = raw.astype(np.int32)
        index += np.int32(planes.base if 0 <= planes.base < size else 0)
    if rows and not (lowest >= 0 and highest < size):
        raise BatchError("index", f"column {column} points at entries {lowest} to {highest} of {size}")
    return index


def unpack_zigzag(planes: Planes, rows: int, column: str) -> Int64:
    """Values of a column that was packed by `pack_zigzag`."""
    if planes.width == 0:
        check_planes(planes, rows, column)
        return np.zeros(rows, dtype=np.int64)
    if (fast := library()) is not None:
        check_planes(planes, rows, column)
        return native.unzigzag(fast, planes.data, planes.width, rows)
    return unzigzag(_join(planes, rows, column))


def unpack_zigzag_sums(planes: Planes, rows: int, column: str, first: int) -> Int64:
    """`first` and the values of `unpack_zigzag` up to each row, added up modulo 2^64."""
    fast = library()
    if planes.width and fast is not None:
        check_planes(planes, rows, column)
        return native.unzigzag_sums(fast, planes.data, planes.width, rows, first)
    steps = unpack_zigzag(planes, rows, column)
    steps[:1] += first
    return np.cumsum(steps, out=steps)


def _split(raw: NDArray[np.integer[Any]], most: int, base: int) -> Planes:
    """Planes of values 0 … most."""
    width = _WIDTH_OF_BYTES[(most.bit_length() + 7) // 8]
    if width == 0:
        return Planes(0, base, b"")
    narrow = raw.astype(f"<u{width}")
    if width == 1:
        return Planes(1, base, narrow.tobytes())
    return Planes(width, base, narrow.view(np.uint8).reshape(-1, width).T.tobytes())


def check_planes(planes: Planes, rows: int, column: str) -> None:
    """Refuses a column that is not `width` bytes wide in each of `rows` rows.

    Raises:
        BatchError: reasons column_width, column_length.
    """
    if planes.width not in WIDTHS:
        raise BatchError("column_width", f"column {column} has width {planes.width}; it must be one of {WIDTHS}")
    if len(planes.data) != planes.width * rows:
        raise BatchError(
            "column_length",
            f"column {column} has {len(planes.data)} bytes, not {planes.width * rows} for {rows} rows",
        )


def _join(planes: Planes, rows: int, column: str) -> NDArray[np.unsignedinteger[Any]]:
    check_planes(planes, rows, column)
    width = planes.width
    split = np.frombuffer(planes.data, dtype=np.uint8).reshape(width, rows)
    if width == 1:
        return np.asarray(split[0])
    if width == 2:
        return np.asarray(split[1].astype(np.uint16) << np.uint16(8) | split[0])
    joined: NDArray[np.uint8] = np.empty((rows, width), dtype=np.uint8)
    for plane in range(width):
        joined[:, plane] = split[plane]
    whole: NDArray[np.unsignedinteger[Any]] = joined.view(f"<u{width}").reshape(rows)
    return whole
