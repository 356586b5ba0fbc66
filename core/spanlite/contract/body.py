"""SpanColumns in process to the SpanColumns message and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from spanlite.contract.columns import (
    COUNTER,
    GAUGE,
    KERNEL,
    MEMCPY,
    MEMSET,
    RANGE,
    Int32,
    Int64,
    SpanColumns,
    UInt8,
    UInt32,
    make_columns,
)
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import pack, pack_zigzag, unpack, unpack_index, unpack_zigzag, unpack_zigzag_sums
from spanlite.contract.tables import column_message, decode_tables, encode_table, encode_traces, plain, planes_of
from spanlite.contract.wire import check_field_count
from spanlite.native import columns as native
from spanlite.native import library
from spanlite.native.bodies import Kinds
from spanlite.v1 import batch_pb2

if TYPE_CHECKING:
    from spanlite.contract.codec import Limits

_COLUMN_FIELDS = 1024
"""Most fields of a body beside its texts; 17 are known now."""
_WITH_BYTES = (MEMCPY, MEMSET, COUNTER, GAUGE)
KINDS = Kinds(GAUGE + 1, RANGE, sum(1 << kind for kind in _WITH_BYTES))
"""The kinds, for `native.bodies`."""
_HAS_BYTES = np.isin(np.arange(GAUGE + 1), _WITH_BYTES)
"""Whether rows of a kind have a value in column `bytes`, by kind."""


def encode_body(columns: SpanColumns, first_start_ns: int) -> bytes:
    """Serialised columns; starts are told as gaps from `first_start_ns` on."""
    kind = columns.kind
    message = batch_pb2.SpanColumns(
        strings=columns.strings,
        configs=batch_pb2.Configs(**encode_table(columns.configs)),
        places=batch_pb2.Places(**encode_table(columns.places)),
        nodes=batch_pb2.Nodes(**encode_table(columns.nodes)),
        traces=encode_traces(columns.traces),
        gap=column_message(pack_zigzag(_gaps(columns, first_start_ns))),
        duration=column_message(pack(columns.duration_ns)),
        config=column_message(pack(columns.config)),
        place=column_message(pack(columns.place)),
        node=column_message(pack(columns.node)),
        kind=column_message(pack(kind)),
        stage=column_message(pack(columns.stage)),
        trace=column_message(pack(columns.trace + np.int32(1))),
        parent=column_message(pack_zigzag(_steps(columns.parent + 1))),
        correlation=column_message(pack_zigzag(_steps(columns.correlation))),
        bytes=column_message(pack(columns.bytes[_has_bytes(kind)])),
        range_number=column_message(pack(columns.range_number[columns.is_range])),
    )
    if len(columns) and not (columns.weight == 1).all():
        message.weight.CopyFrom(column_message(pack(columns.weight)))
    return message.SerializeToString(deterministic=True)


def decode_body(body: bytes, rows: int, first_start_ns: int, *, limits: Limits, weight: int = 1) -> SpanColumns:
    """The columns of a serialised SpanColumns message; `weight` is that of all rows where the column is absent.

    Raises:
        BatchError: reasons fields, not_protobuf, column_width, column_length, table_rows, string_bytes, index, value.
    """
    check_field_count(body, limits.table_rows + _COLUMN_FIELDS, "the body")
    message = batch_pb2.SpanColumns()
    try:
        message.ParseFromString(body)
    except DecodeError as error:
        raise BatchError("not_protobuf", f"the body: {error}") from error
    tables = decode_tables(message, limits)
    kind = _kinds(message.kind, rows)
    duration = plain(message.duration, rows, "duration")
    if rows and duration.min() < 0:
        raise BatchError("value", "a duration is negative")
    is_range = kind == RANGE
    return make_columns(
        _starts(unpack_zigzag(planes_of(message.gap), rows, "gap"), duration, kind, first_start_ns),
        duration,
        tables=tables,
        kind=kind,
        config=_index(message.config, rows, "config", len(tables[1])),
        place=_index(message.place, rows, "place", len(tables[2])),
        node=_index(message.node, rows, "node", len(tables[3])),
        stage=_index(message.stage, rows, "stage", len(tables[0])),
        trace=_index(message.trace, rows, "trace", len(tables[4]) + 1) - 1,
        parent=_sums(message.parent, rows, "parent", -1),
        correlation=_sums(message.correlation, rows, "correlation", 0),
        bytes=_scatter(message.bytes, _has_bytes(kind), 0, "bytes", signed=kind == GAUGE),
        range_number=_scatter(message.range_number, is_range, -1, "range_number"),
        weight=_weights(message, rows, weight),
    )


def _kinds(column: batch_pb2.Column, rows: int) -> UInt8:
    kind = plain(column, rows, "kind")
    if rows and not (kind.min() >= KERNEL and kind.max() <= GAUGE):
        raise BatchError("value", f"kinds {int(kind.min())} to {int(kind.max())}; known are {KERNEL} to {GAUGE}")
    return kind.astype(np.uint8)


def _weights(message: batch_pb2.SpanColumns, rows: int, absent: int) -> UInt32:
    if not message.HasField("weight"):
        return np.full(rows, absent, dtype=np.uint32)
    weight = plain(message.weight, rows, "weight")
    if rows and not (weight.min() >= 1 and weight.max() < 1 << 32):
        raise BatchError(
            "value", f"weights {int(weight.min())} to {int(weight.max())}; a span stands for 1 to 2^32 - 1"
        )
    return weight.astype(np.uint32)


def _sums(column: batch_pb2.Column, rows: int, name: str, first: int) -> Int64:
    return unpack_zigzag_sums(planes_of(column), rows, name, first)


def _gaps(columns: SpanColumns, first_start_ns: int) -> Int64:
    advance = np.where(columns.is_range, 0, columns.duration_ns)
    gaps = columns.start_ns.copy()
    gaps[1:] -= columns.start_ns[:-1] + advance[:-1]
    gaps[:1] -= first_start_ns
    return gaps


def _starts(gap: Int64, duration: Int64, kind: UInt8, first_start_ns: int) -> Int64:
    """Starts, in place of the gaps: the array is this module's own, fresh from unpack_zigzag."""
    if (fast := library()) is not None:
        native.starts(fast, gap, duration, kind, still=RANGE, first=first_start_ns)
        return gap
    gap[1:] += np.where(kind[:-1] == RANGE, 0, duration[:-1])
    gap[:1] += first_start_ns
    return np.cumsum(gap, out=gap)


def _steps(values: Int64) -> Int64:
    steps = values.copy()
    steps[1:] -= values[:-1]
    return steps


def _has_bytes(kind: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.asarray(_HAS_BYTES[kind])


def _index(column: batch_pb2.Column, rows: int, name: str, size: int) -> Int32:
    return unpack_index(planes_of(column), rows, name, size)


def _scatter(
    column: batch_pb2.Column,
    mask: NDArray[np.bool_],
    neutral: int,
    name: str,
    *,
    signed: NDArray[np.bool_] | None = None,
) -> Int64:
    """Values of the rows of a mask; none may be negative but those of the rows in `signed`, which are bits."""
    full = np.full(len(mask), neutral, dtype=np.int64)
    chosen = int(np.count_nonzero(mask))
    values = unpack(planes_of(column), chosen, name)
    if chosen:
        if values.min() < 0 and (signed is None or (values[~signed[mask]] < 0).any()):
            raise BatchError("value", f"column {name} holds a negative value")
        full[mask] = values
    return full
