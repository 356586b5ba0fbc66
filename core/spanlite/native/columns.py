"""Packed columns to arrays, in C. `library` is that of native.library; lengths are the caller's to check."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_64 = 0xFFFFFFFFFFFFFFFF


def unpack(library: ctypes.CDLL, planes: bytes, width: int, rows: int, base: int) -> NDArray[np.int64]:
    """base + each value, modulo 2^64; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unpack(planes, width, rows, base & _64, out.ctypes.data)
    return out


def unpack_index(
    library: ctypes.CDLL, planes: bytes, width: int, rows: int, base: int
) -> tuple[NDArray[np.int32], int]:
    """base + each value modulo 2^32, shape (rows,), and the largest value before base was added."""
    out = np.empty(rows, dtype=np.int32)
    most = library.spanlite_unpack_index(planes, width, rows, base & 0xFFFFFFFF, out.ctypes.data)
    return out, int(most)


def unzigzag(library: ctypes.CDLL, planes: bytes, width: int, rows: int) -> NDArray[np.int64]:
    """Each value with its sign; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unzigzag(planes, width, rows, out.ctypes.data)
    return out


def unzigzag_sums(library: ctypes.CDLL, planes: bytes, width: int, rows: int, first: int) -> NDArray[np.int64]:
    """first + the values up to each one, with their signs; shape (rows,)."""
    out = np.empty(rows, dtype=np.int64)
    library.spanlite_unzigzag_sums(planes, width, rows, first & _64, out.ctypes.data)
    return out


def starts(
    library: ctypes.CDLL,
    gap: NDArray[np.int64],
    duration: NDArray[np.int64],
    kind: NDArray[np.uint8],
    *,
    still: int,
    first: int,
) -> None:
    """Gaps to starts, in place; all contiguous, shape (n,). Spans of kind `still` let no time pass."""
    library.spanlite_starts(gap.ctypes.data, duration.ctypes.data, kind.ctypes.data, still, len(gap), first & _64)


def pack(library: ctypes.CDLL, values: NDArray[np.integer[Any]], *, zigzag: bool = False) -> tuple[int, int, bytes]:
    """Width, base and planes of a column of integers, shape (n,), that may lie apart in memory."""
    rows, size = len(values), values.itemsize
    signed = size == 8 or values.dtype.kind == "i"
    out, address = _room(rows * 8)
    base = _scratch.base
    width = library.spanlite_pack(
        values.ctypes.data, size, signed, values.strides[0], rows, zigzag, _scratch.base_at, address
    )
    return width, base.value, out[: width * rows].tobytes()


class _Scratch(threading.local):
    """Memory that a thread's calls use one after the other: to make and find an array takes longer than to pack it."""

    def __init__(self) -> None:
        self.out = np.empty(1 << 16, dtype=np.uint8)
        self.address = self.out.ctypes.data
        self.base = ctypes.c_int64()
        self.base_at = ctypes.byref(self.base)


_scratch = _Scratch()


def _room(size: int) -> tuple[NDArray[np.uint8], int]:
    """An array of at least `size` bytes, good until the next call, and where it is."""
    if size <= len(_scratch.out):
        return _scratch.out, _scratch.address
    out = np.empty(size, dtype=np.uint8)
    return out, out.ctypes.data


@dataclass(frozen=True, eq=False)
class Records:
    """How a table lies in memory: of each field its offset, size, sign (1 or 0), least and greatest value.

    All int64, shape (f,).

    Attributes:
        places: addresses of these five.
    """

    dtype: np.dtype[np.void]
    offset: NDArray[np.int64]
    size: NDArray[np.int64]
    sign: NDArray[np.int64]
    least: NDArray[np.int64]
    most: NDArray[np.int64]
    places: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        columns = (self.offset, self.size, self.sign, self.least, self.most)
        object.__setattr__(self, "places", tuple(column.ctypes.data for column in columns))


def pack_table(library: ctypes.CDLL, layout: Records, table: NDArray[np.void]) -> list[tuple[int, int, bytes]]:
    """Width, base and planes of each field of a contiguous table."""
    fields, rows = len(layout.offset), len(table)
    told = np.empty((2, fields), dtype=np.int64)
    told_at = told.ctypes.data
    out, address = _room(rows * table.itemsize * 2)  # a difference may be twice as wide as its values
    library.spanlite_pack_table(
        table.ctypes.data, table.itemsize, rows, *layout.places[:3], fields, told_at, told_at + 8 * fields, address
    )
    widths, bases = told.tolist()
    data = out[: sum(widths) * rows].tobytes()
    packed, at = [], 0
    for each, least in zip(widths, bases, strict=True):
        packed.append((each, least, data[at : at + each * rows]))
        at += each * rows
    return packed


def table(
    library: ctypes.CDLL, layout: Records, rows: int, packed: Sequence[tuple[int, int, bytes]]
) -> tuple[NDArray[np.void], int]:
    """A table of packed columns, and the number of the first field with a value beyond its limits, -1 if none.

    Args:
        packed: width, base and planes of each field; a width of 0 is one value.
    """
    made = np.empty(rows, dtype=layout.dtype)
    widths, bases, planes = zip(*packed, strict=True)
    fields = len(planes)
    wrong = library.spanlite_table(
        (ctypes.c_char_p * fields)(*planes),
        (ctypes.c_int64 * fields)(*widths),
        (ctypes.c_int64 * fields)(*bases),
        *layout.places[:2],
        *layout.places[3:],
        fields,
        rows,
        made.ctypes.data,
        layout.dtype.itemsize,
    )
    return made, int(wrong)


def count_fields(library: ctypes.CDLL, data: bytes, most: int) -> int:
    """Top-level fields of a protobuf message up to most + 1; -1 - the position after a tag of an unknown wire type."""
    return int(library.spanlite_count_fields(data, len(data), most))


class Claims(NamedTuple):
    """Of all rows of a batch: weighted time and bytes, weights, all summed, and the outermost starts."""

    time_ns: float
    executions: float
    moved: float
    first_ns: int
    last_ns: int


def claims(
    library: ctypes.CDLL,
    start_ns: NDArray[np.int64],
    duration_ns: NDArray[np.int64],
    moved: NDArray[np.int64],
    weight: NDArray[np.uint32],
    *,
    kind: NDArray[np.uint8],
    gauge: int,
) -> Claims:
    """What a batch of at least one row claims; what rows of kind `gauge` have for bytes is left out."""
    held = [np.ascontiguousarray(column) for column in (start_ns, duration_ns, moved, weight, kind)]
    sums, starts = np.empty(3), np.empty(2, dtype=np.int64)
    addresses = [column.ctypes.data for column in held]
    library.spanlite_claims(*addresses, gauge, len(start_ns), sums.ctypes.data, starts.ctypes.data)
    first, last = starts.tolist()
    time_ns, executions, all_moved = sums.tolist()
    return Claims(time_ns, executions, all_moved, first, last)


def take(library: ctypes.CDLL, values: NDArray[Any], index: NDArray[np.int32]) -> NDArray[Any]:
    """values[index]; both contiguous, values of 4 or 8 bytes each, every index in range (it is not checked)."""
    out = np.empty(len(index), dtype=values.dtype)
    library.spanlite_take(values.ctypes.data, values.dtype.itemsize, index.ctypes.data, len(index), out.ctypes.data)
    return out
