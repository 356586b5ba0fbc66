"""SpanColumns in process to the SpanColumns message and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from spanlite.contract.columns import (
    CONFIG,
    NODE,
    PLACE,
    TRACE,
    Int32,
    Int64,
    Kind,
    SpanColumns,
    Table,
    UInt8,
    UInt32,
    make_columns,
)
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes, pack, pack_zigzag, unpack, unpack_index, unpack_zigzag
from spanlite.contract.wire import check_field_count
from spanlite.v1 import batch_pb2

if TYPE_CHECKING:
    from spanlite.contract.codec import Limits

_COLUMN_FIELDS = 1024
"""Most fields of a body beside its texts; 17 are known now."""


def encode_body(columns: SpanColumns, first_start_ns: int) -> bytes:
    """Serialised columns; starts are told as gaps from `first_start_ns` on."""
    kind = columns.kind
    message = batch_pb2.SpanColumns(
        strings=columns.strings,
        configs=batch_pb2.Configs(**_encode_table(columns.configs)),
        places=batch_pb2.Places(**_encode_table(columns.places)),
        nodes=batch_pb2.Nodes(**_encode_table(columns.nodes)),
        traces=_encode_traces(columns.traces),
        gap=_message(pack_zigzag(_gaps(columns, first_start_ns))),
        duration=_message(pack(columns.duration_ns)),
        config=_message(pack(columns.config.astype(np.int64))),
        place=_message(pack(columns.place.astype(np.int64))),
        node=_message(pack(columns.node.astype(np.int64))),
        kind=_message(pack(kind.astype(np.int64))),
        stage=_message(pack(columns.stage.astype(np.int64))),
        trace=_message(pack(columns.trace.astype(np.int64) + 1)),
        parent=_message(pack_zigzag(_steps(columns.parent + 1))),
        correlation=_message(pack_zigzag(_steps(columns.correlation))),
        bytes=_message(pack(columns.bytes[_moves_bytes(kind)])),
        range_number=_message(pack(columns.range_number[kind == Kind.RANGE])),
    )
    if len(columns) and not (columns.weight == 1).all():
        message.weight.CopyFrom(_message(pack(columns.weight.astype(np.int64))))
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
    tables = _decode_tables(message, limits)
    kind = _kinds(message.kind, rows)
    duration = _plain(message.duration, rows, "duration")
    if rows and duration.min() < 0:
        raise BatchError("value", "a duration is negative")
    is_range = kind == Kind.RANGE
    gap = unpack_zigzag(_planes(message.gap), rows, "gap")
    return make_columns(
        _starts(gap, np.where(is_range, 0, duration) if is_range.any() else duration, first_start_ns),
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
        bytes=_scatter(message.bytes, _moves_bytes(kind), 0, "bytes"),
        range_number=_scatter(message.range_number, is_range, -1, "range_number"),
        weight=_weights(message, rows, weight),
    )


def _kinds(column: batch_pb2.Column, rows: int) -> UInt8:
    kind = _plain(column, rows, "kind")
    if rows and not (kind.min() >= Kind.KERNEL and kind.max() <= Kind.RANGE):
        raise BatchError("value", f"kinds {int(kind.min())} to {int(kind.max())}; known are 1 to 4")
    return kind.astype(np.uint8)


def _weights(message: batch_pb2.SpanColumns, rows: int, absent: int) -> UInt32:
    if not message.HasField("weight"):
        return np.full(rows, absent, dtype=np.uint32)
    weight = _plain(message.weight, rows, "weight")
    if rows and not (weight.min() >= 1 and weight.max() < 1 << 32):
        raise BatchError(
            "value", f"weights {int(weight.min())} to {int(weight.max())}; a span stands for 1 to 2^32 - 1"
        )
    return weight.astype(np.uint32)


def _sums(column: batch_pb2.Column, rows: int, name: str, first: int) -> Int64:
    steps = unpack_zigzag(_planes(column), rows, name)
    steps[:1] += first
    return np.cumsum(steps, out=steps)


def _gaps(columns: SpanColumns, first_start_ns: int) -> Int64:
    advance = np.where(columns.kind == Kind.RANGE, 0, columns.duration_ns)
    gaps = columns.start_ns.copy()
    gaps[1:] -= columns.start_ns[:-1] + advance[:-1]
    gaps[:1] -= first_start_ns
    return gaps


def _starts(gap: Int64, advance: Int64, first_start_ns: int) -> Int64:
    gap[1:] += advance[:-1]  # the array is this module's own, fresh from unpack_zigzag
    gap[:1] += first_start_ns
    return np.cumsum(gap, out=gap)


def _steps(values: Int64) -> Int64:
    steps = values.copy()
    steps[1:] -= values[:-1]
    return steps


def _moves_bytes(kind: NDArray[np.generic]) -> NDArray[np.bool_]:
    return np.asarray((kind == Kind.MEMCPY) | (kind == Kind.MEMSET))


def _message(planes: Planes) -> batch_pb2.Column:
    return batch_pb2.Column(width=planes.width, base=planes.base, planes=planes.data)


def _planes(column: batch_pb2.Column) -> Planes:
    return Planes(column.width, column.base, column.planes)


def _plain(column: batch_pb2.Column, rows: int, name: str) -> Int64:
    return unpack(_planes(column), rows, name)


def _index(column: batch_pb2.Column, rows: int, name: str, size: int) -> Int32:
    return unpack_index(_planes(column), rows, name, size)


def _scatter(column: batch_pb2.Column, mask: NDArray[np.bool_], neutral: int, name: str) -> Int64:
    full = np.full(len(mask), neutral, dtype=np.int64)
    chosen = int(np.count_nonzero(mask))
    values = unpack(_planes(column), chosen, name)
    if chosen:
        if values.min() < 0:
            raise BatchError("value", f"column {name} holds a negative value")
        full[mask] = values
    return full


_RANGES = {np.dtype(name): (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("<i4", "<u4")}
"""Least and greatest value of the narrow fields of tables."""

_TableMessage = batch_pb2.Configs | batch_pb2.Places | batch_pb2.Nodes


def _encode_table(table: Table) -> dict[str, Any]:
    columns: dict[str, batch_pb2.Column] = {}
    flat = np.ascontiguousarray(table).view(np.uint8).reshape(len(table), table.dtype.itemsize)
    differs = (flat != flat[:1]).any(axis=0).tobytes()
    for name, (field, offset, *_) in (table.dtype.fields or {}).items():
        if len(table) and not any(differs[offset : offset + field.itemsize]):  # most fields of most tables: one value
            columns[name] = batch_pb2.Column(base=int(table[name][:1].astype(np.int64)[0]))
        else:
            columns[name] = _message(pack(table[name].astype(np.int64)))
    return {"rows": len(table), **columns}


def _encode_traces(table: Table) -> batch_pb2.Traces:
    return batch_pb2.Traces(
        rows=len(table),
        ids=table["id"].tobytes(),
        remote_parent=_message(pack(table["remote_parent"].view(np.int64))),
        start_unix_ns=_message(pack(table["start_ns"])),
    )


_Tables = tuple[tuple[str, ...], Table, Table, Table, Table]


def _decode_tables(message: batch_pb2.SpanColumns, limits: Limits) -> _Tables:
    _check_table_rows("strings", len(message.strings), limits)
    strings = tuple(message.strings)
    _check_strings(strings, limits)
    configs = _decode_table(message.configs, CONFIG, limits)
    for name in ("kernel", "name"):
        used = configs[name]
        if len(used) and not (used.min() >= 0 and used.max() < len(strings)):
            raise BatchError("index", f"configs.{name} points at text {int(used.max())} of {len(strings)}")
    places = _decode_table(message.places, PLACE, limits)
    nodes = _decode_table(message.nodes, NODE, limits)
    return strings, configs, places, nodes, _decode_traces(message.traces, limits)


def _check_strings(strings: tuple[str, ...], limits: Limits) -> None:
    if not strings or strings[0]:
        raise BatchError("value", "text 0 must be there and empty")
    # A text of n characters has at most 4n bytes, so only long ones need to be counted.
    longest = max(map(len, strings))
    if longest * 4 > limits.string_bytes:
        longest = max(len(text.encode()) for text in strings)
        if longest > limits.string_bytes:
            raise BatchError("string_bytes", f"a text has {longest} bytes, the limit is {limits.string_bytes}")


def _check_table_rows(name: str, rows: int, limits: Limits) -> None:
    if rows > limits.table_rows:
        raise BatchError("table_rows", f"{name} declares {rows} rows, the limit is {limits.table_rows}")


def _decode_table(message: _TableMessage, dtype: np.dtype[np.void], limits: Limits) -> Table:
    kind = message.DESCRIPTOR.name.lower()
    rows = message.rows
    _check_table_rows(kind, rows, limits)
    table = np.empty(rows, dtype=dtype)
    for name, (field, *_) in (dtype.fields or {}).items():
        column = getattr(message, name)
        values: Int64 | int
        if column.width == 0 and not column.planes:  # most fields of most tables are one value
            values = lowest = highest = column.base
        else:
            values = _plain(column, rows, name)
            lowest, highest = (values.min(), values.max()) if rows else (0, 0)
        if field.itemsize == 8:
            table[name].view(np.int64)[:] = values
            continue
        least, most = _RANGES[field]
        if rows and not (lowest >= least and highest <= most):
            raise BatchError("value", f"{kind}.{name} holds a value beyond {field}")
        table[name] = values if rows else 0
    return table


def _decode_traces(message: batch_pb2.Traces, limits: Limits) -> Table:
    rows = message.rows
    _check_table_rows("traces", rows, limits)
    if len(message.ids) != 16 * rows:
        raise BatchError("column_length", f"traces.ids has {len(message.ids)} bytes; {rows} traces need {16 * rows}")
    table = np.empty(rows, dtype=TRACE)
    table["id"] = np.frombuffer(message.ids, dtype="V16")
    table["remote_parent"] = _plain(message.remote_parent, rows, "remote_parent").view(np.uint64)
    table["start_ns"] = _plain(message.start_unix_ns, rows, "start_unix_ns")
    return table
