"""Many cumulative points at once, from columns to MetricPoint bytes: those of `encode_point`, without its objects.

Every part of a message is laid out for all points together, as a table of bytes in which each value has room for its
longest; what is used of the table, row by row, is the message's part. Only cutting these apart is a step per point.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64, UInt64
from spanlite.contract.errors import PointError
from spanlite.contract.histogram import SCHEMA

_Bytes = NDArray[np.uint8]
_Mask = NDArray[np.bool_]

_NUMBERS = ("count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes")
"""Fields 5 to 11, varints."""
_NUMBER_TAGS = np.array([field << 3 for field in range(5, 12)], dtype=np.uint8)
_WINDOW_TAGS = np.array([2 << 3 | 1, 3 << 3 | 1], dtype=np.uint8)
_CUMULATIVE, _SCHEMA = b"\x20\x01", bytes([12 << 3, SCHEMA << 1])
_INDEX_TAG, _COUNT_TAG, _EXEMPLAR_TAG, _EPOCH_TAG = 13 << 3 | 2, 14 << 3 | 2, 15 << 3 | 2, b"\x81\x01"
_NARROW = 10
"""Columns up to which numpy is faster column by column than row by row."""
_TRACE_HEAD, _SPAN_TAG, _DURATION_TAG, _START_TAG = b"\x0a\x10", 2 << 3 | 1, 3 << 3, 4 << 3 | 1


@dataclass(frozen=True, slots=True)
class PointColumns:
    """Points without their series: one value a point, of the meaning and unit that it has in contract.points.Point.

    Attributes:
        exemplar_trace: 16-byte ids as V16; an exemplar's duration is `max_ns`.
        buckets: how many of the values of `bucket_index` and `bucket_count` belong to each point, in order.
    """

    window_start_ns: Int64
    window_end_ns: Int64
    count: Int64
    spans: Int64
    sum_ns: Int64
    min_ns: Int64
    max_ns: Int64
    warp_ns: Int64
    bytes: Int64
    exemplar_trace: NDArray[np.void]
    exemplar_span: UInt64
    exemplar_start_ns: Int64
    buckets: Int64
    bucket_index: Int32
    bucket_count: Int64


ROW_COLUMNS = tuple(field.name for field in fields(PointColumns) if not field.name.startswith("bucket"))
"""Those with one value a point, but for `buckets`."""


def encode_cumulative(series: Sequence[bytes], columns: PointColumns, epoch: int) -> list[bytes]:
    """The Kafka value of each point.

    Args:
        series: of each point, as series_codec.series_field gives it.

    Raises:
        PointError: reason value: a number does not fit its field, such as a sum that has wrapped around.
    """
    if not len(series):
        return []
    _check(columns, epoch)
    index, index_ends = _packed(_zigzag(columns.bucket_index), columns.buckets)
    counts, count_ends = _packed(columns.bucket_count.astype(np.uint64), columns.buckets)
    head = _head(columns, np.diff(index_ends, prepend=0))
    middle = _length_delimited(_COUNT_TAG, np.diff(count_ends, prepend=0))
    tail = _tail(columns, epoch)
    parts = (_cut(*_flat(head)), _cut(index, index_ends), _cut(*_flat(middle)), _cut(counts, count_ends))
    return list(map(b"".join, zip(series, *parts, _cut(*_flat(tail)), strict=True)))


class _Cells(NamedTuple):
    """A table of bytes, shape (points, room), and which of them are used."""

    value: _Bytes
    used: _Mask


def _head(columns: PointColumns, index_bytes: Int64) -> _Cells:
    """Fields 2 to 12, and the beginning of 13."""
    windows = _fixed(np.stack([columns.window_start_ns, columns.window_end_ns], axis=1), _WINDOW_TAGS)
    numbers = np.stack([getattr(columns, name) for name in _NUMBERS], axis=1).astype(np.uint64)
    rows = len(numbers)
    parts = [
        windows,
        _constant(_CUMULATIVE, rows),
        _tagged(numbers, _NUMBER_TAGS),
        _constant(_SCHEMA, rows),
        _length_delimited(_INDEX_TAG, index_bytes),
    ]
    return _side_by_side(parts)


def _tail(columns: PointColumns, epoch: int) -> _Cells:
    """Fields 15 and 16."""
    rows = len(columns.count)
    trace = np.ascontiguousarray(columns.exemplar_trace).view(np.uint8).reshape(rows, 16)
    inner = _side_by_side(
        [
            _constant(_TRACE_HEAD, rows),
            _Cells(trace, np.ones((rows, 16), dtype=bool)),
            _fixed(columns.exemplar_span[:, None], np.array([_SPAN_TAG], dtype=np.uint8)),
            _tagged(columns.max_ns[:, None].astype(np.uint64), np.array([_DURATION_TAG], dtype=np.uint8)),
            _fixed(columns.exemplar_start_ns[:, None], np.array([_START_TAG], dtype=np.uint8)),
        ]
    )
    opening = _length_delimited(_EXEMPLAR_TAG, inner.used.sum(axis=1))
    closing = _constant(_EPOCH_TAG + epoch.to_bytes(8, "little") if epoch else b"", rows)
    return _side_by_side([opening, inner, closing])


def _packed(values: UInt64, buckets: Int64) -> tuple[bytes, Int64]:
    """Varints one after the other, and where those of each point end."""
    data, ends = _flat(_varints(values))
    behind = np.cumsum(buckets)
    return data, np.concatenate([np.zeros(1, dtype=np.int64), ends])[behind]


def _varints(values: UInt64) -> _Cells:
    """Each value as a row, as wide as the greatest needs."""
    width = max(1, (int(values.max(initial=0)).bit_length() + 6) // 7)
    dtype = np.uint16 if width <= 2 else np.uint32 if width <= 4 else np.uint64
    shifted: NDArray[Any] = values.astype(dtype)[..., None] >> np.arange(0, 7 * width, 7).astype(dtype)
    used = shifted > 0
    used[..., 0] = True
    cells = shifted.astype(np.uint8) & np.uint8(0x7F)
    cells[..., :-1] |= used[..., 1:].view(np.uint8) << np.uint8(7)
    return _Cells(cells, used)


def _tagged(values: UInt64, tags: _Bytes) -> _Cells:
    """A varint field of each column, left out where it is 0; shape (points, columns)."""
    cells, used = _varints(values)
    rows, columns, width = cells.shape
    table = np.empty((rows, columns, 1 + width), dtype=np.uint8)
    table[..., 0], table[..., 1:] = tags, cells
    there = np.empty(table.shape, dtype=bool)
    there[..., 0], there[..., 1:] = True, used
    there &= (values != 0)[..., None]
    return _Cells(table.reshape(rows, -1), there.reshape(rows, -1))


def _fixed(values: NDArray[Any], tags: _Bytes) -> _Cells:
    """A 64-bit field of each column, left out where it is 0; shape (points, columns)."""
    rows, columns = values.shape
    table = np.empty((rows, columns, 9), dtype=np.uint8)
    table[..., 0] = tags
    table[..., 1:] = np.ascontiguousarray(values).view(np.uint8).reshape(rows, columns, 8)
    used = np.repeat(values != 0, 9, axis=1)
    return _Cells(table.reshape(rows, -1), used)


def _length_delimited(tag: int, sizes: Int64) -> _Cells:
    """Tag and length of a field of so many bytes, left out where there are none."""
    return _tagged(sizes[:, None].astype(np.uint64), np.array([tag], dtype=np.uint8))


def _constant(data: bytes, rows: int) -> _Cells:
    shape = (rows, len(data))
    return _Cells(np.broadcast_to(np.frombuffer(data, dtype=np.uint8), shape), np.ones(shape, dtype=bool))


def _side_by_side(parts: Sequence[_Cells]) -> _Cells:
    return _Cells(*(np.concatenate(each, axis=1) for each in zip(*parts, strict=True)))


def _flat(cells: _Cells) -> tuple[bytes, Int64]:
    """The used bytes row by row, and where each row ends."""
    used = cells.used
    if used.shape[1] > _NARROW:
        length = np.count_nonzero(used, axis=1)
    else:
        length = used[:, 0].astype(np.int64)
        for column in range(1, used.shape[1]):
            length += used[:, column]
    return cells.value[used].tobytes(), np.cumsum(length)


def _cut(data: bytes, ends: Int64) -> Iterator[bytes]:
    return (data[begin:end] for begin, end in pairwise([0, *ends.tolist()]))


def _zigzag(values: Int32) -> UInt64:
    wide = values.astype(np.int64)
    return (wide << 1 ^ wide >> 63).view(np.uint64)


def _check(columns: PointColumns, epoch: int) -> None:
    for name in (*_NUMBERS, "bucket_count"):
        least = int(getattr(columns, name).min(initial=0))
        if least < 0:
            raise PointError("value", f"points cannot be encoded: a {name} of {least}")
    if not 0 <= epoch < 1 << 64:
        raise PointError("value", f"points cannot be encoded: epoch {epoch} is no uint64")
