"""The dictionaries of a batch, which are columns too, to their messages and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Int64, Table
from spanlite.contract.errors import BatchError
from spanlite.contract.planes import Planes, check_planes, pack, unpack, unpack_together
from spanlite.native import columns as native
from spanlite.native import library
from spanlite.native.columns import Records
from spanlite.v1 import batch_pb2

if TYPE_CHECKING:
    from spanlite.contract.codec import Limits


class _Field(NamedTuple):
    """A column of a table, and the least and greatest value that it holds; 8-byte columns hold any by its bits."""

    name: str
    wide: bool
    least: int
    most: int

    def put(self, table: Table, values: Int64 | int, lowest: int, highest: int, kind: str) -> None:
        """Fills the column, or raises BatchError value."""
        if self.wide:
            table[self.name].view(np.int64)[:] = values
            return
        if len(table) and not (lowest >= self.least and highest <= self.most):
            raise self.beyond(kind)
        table[self.name] = values if len(table) else 0

    def beyond(self, kind: str) -> BatchError:
        """What to say of a value that the column does not hold."""
        return BatchError("value", f"{kind}.{self.name} holds a value beyond {self.least} to {self.most}")


class _Layout(NamedTuple):
    """A kind of table."""

    name: str
    dtype: np.dtype[np.void]
    fields: tuple[_Field, ...]
    records: Records


def _layout(name: str, dtype: np.dtype[np.void]) -> _Layout:
    fields: list[_Field] = []
    places: list[tuple[int, int, int]] = []
    for column, (kind, offset, *_) in (dtype.fields or {}).items():
        limits = np.iinfo(kind)
        wide = limits.bits == 64
        fields.append(_Field(column, wide, 0 if wide else int(limits.min), 0 if wide else int(limits.max)))
        places.append((offset, kind.itemsize, kind.kind == "i" or wide))
    facts = [(*place, field.least, field.most) for place, field in zip(places, fields, strict=True)]
    return _Layout(name, dtype, tuple(fields), Records(dtype, *np.array(facts, dtype=np.int64).T.copy()))


_CONFIGS, _PLACES, _NODES = _layout("configs", CONFIG), _layout("places", PLACE), _layout("nodes", NODE)
RECORDS = (
    *(layout.records for layout in (_CONFIGS, _PLACES, _NODES)),
    Records(TRACE, *np.array([[16, 24], [8, 8], [1, 1], [0, 0], [0, 0]], dtype=np.int64)),  # ids are no numbers
)
"""How configs, places, nodes and traces lie in memory."""
_BY_DTYPE = {layout.dtype: layout for layout in (_CONFIGS, _PLACES, _NODES)}

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
    if (fast := library()) is not None:
        layout = _BY_DTYPE[table.dtype]
        packed = native.pack_table(fast, layout.records, np.ascontiguousarray(table))
        for known, (width, base, data) in zip(layout.fields, packed, strict=True):
            columns[known.name] = batch_pb2.Column(width=width, base=base, planes=data)
        return {"rows": len(table), **columns}
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
    configs = _decode_table(message.configs, _CONFIGS, limits)
    for name in ("kernel", "name"):
        used = configs[name]
        if len(used) and not (used.min() >= 0 and used.max() < len(strings)):
            raise BatchError("index", f"configs.{name} points at text {int(used.max())} of {len(strings)}")
    places = _decode_table(message.places, _PLACES, limits)
    nodes = _decode_table(message.nodes, _NODES, limits)
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


def _decode_table(message: _TableMessage, layout: _Layout, limits: Limits) -> Table:
    """A table, by the library or by numpy."""
    rows = message.rows
    _check_table_rows(layout.name, rows, limits)
    fast = library()
    if fast is None:
        return _by_width(message, layout, rows)
    columns = []
    for field in layout.fields:
        column = getattr(message, field.name)
        width, data = column.width, column.planes
        if width or data:
            check_planes(Planes(width, 0, data), rows, field.name)
        columns.append((width, column.base, data))
    table, wrong = native.table(fast, layout.records, rows, columns)
    if wrong >= 0:
        raise layout.fields[wrong].beyond(layout.name)
    return table


def _by_width(message: _TableMessage, layout: _Layout, rows: int) -> Table:
    """Columns of equal width are unpacked together: most tables have many columns of few rows."""
    table = np.empty(rows, dtype=layout.dtype)
    packed: dict[int, list[tuple[_Field, Planes]]] = {}
    for field in layout.fields:
        column = getattr(message, field.name)
        if column.width == 0 and not column.planes:  # most columns of most tables are one value
            field.put(table, column.base, column.base, column.base, layout.name)
        else:
            packed.setdefault(column.width, []).append((field, planes_of(column)))
    for columns in packed.values():
        values = unpack_together([(field.name, planes) for field, planes in columns], rows)
        # Every column may hold 0, so it changes no verdict, and no rows need no case of their own.
        lowest = values.min(axis=1, initial=0).tolist()
        highest = values.max(axis=1, initial=0).tolist()
        for at, (field, _) in enumerate(columns):
            field.put(table, values[at], lowest[at], highest[at], layout.name)
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
