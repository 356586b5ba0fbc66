"""The dictionaries of a batch, which are columns too, to their messages and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Int64, Table
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes, pack, unpack
from spanlite.v1 import batch_pb2

if TYPE_CHECKING:
    from spanlite.contract.codec import Limits

_RANGES = {np.dtype(name): (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in ("<i4", "<u4")}
"""Least and greatest value of the narrow fields of tables."""

_Tables = tuple[tuple[str, ...], Table, Table, Table, Table]
_TableMessage = batch_pb2.Configs | batch_pb2.Places | batch_pb2.Nodes


def column_message(planes: Planes) -> batch_pb2.Column:
    """A packed column as its message."""
    return batch_pb2.Column(width=planes.width, base=planes.base, planes=planes.data)


def planes_of(column: batch_pb2.Column) -> Planes:
    """The packed column of a message."""
    return Planes(column.width, column.base, column.planes)


def plain(column: batch_pb2.Column, rows: int, name: str) -> Int64:
    """Values of a column that is not zigzag; raises as planes.unpack."""
    return unpack(planes_of(column), rows, name)


def encode_table(table: Table) -> dict[str, Any]:
    """Fields of a Configs, Places or Nodes message."""
    columns: dict[str, batch_pb2.Column] = {}
    flat = np.ascontiguousarray(table).view(np.uint8).reshape(len(table), table.dtype.itemsize)
    differs = (flat != flat[:1]).any(axis=0).tobytes()
    for name, (field, offset, *_) in (table.dtype.fields or {}).items():
        if len(table) and not any(differs[offset : offset + field.itemsize]):  # most fields of most tables: one value
            columns[name] = batch_pb2.Column(base=int(table[name][:1].astype(np.int64)[0]))
        else:
            columns[name] = column_message(pack(table[name]))
    return {"rows": len(table), **columns}


def encode_traces(table: Table) -> batch_pb2.Traces:
    """The trace table, ids as they are."""
    return batch_pb2.Traces(
        rows=len(table),
        ids=table["id"].tobytes(),
        remote_parent=column_message(pack(table["remote_parent"])),
        start_unix_ns=column_message(pack(table["start_ns"])),
    )


def decode_tables(message: batch_pb2.SpanColumns, limits: Limits) -> _Tables:
    """Strings, configs, places, nodes and traces of a body, as make_columns takes them.

    Raises:
        BatchError: reasons table_rows, string_bytes, column_width, column_length, index, value.
    """
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
            values = plain(column, rows, name)
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
    table["remote_parent"] = plain(message.remote_parent, rows, "remote_parent").view(np.uint64)
    table["start_ns"] = plain(message.start_unix_ns, rows, "start_unix_ns")
    return table
