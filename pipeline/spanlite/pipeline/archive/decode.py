"""Arrow tables of the archive back to batches: tables rebuilt, values equal, entries renumbered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, ClockAnchor, Gpu
from spanlite.contract.columns import (
    CONFIG,
    NODE,
    PLACE,
    TRACE,
    Int32,
    Int64,
    SamplingMode,
    SpanColumns,
    Table,
    make_columns,
)
from spanlite.contract.ids import RANGE_BIT
from spanlite.pipeline.archive.rows import first_of, gpu_fields
from spanlite.pipeline.archive.schema import KIND_NAMES, LIMITER_NAMES, SAMPLING_NAMES, TEXT_COLUMNS

_MOST = 1 << 62
_CONFIG_TEXTS = ("kernel", "name")
_LIMITERS = {name: value for value, name in LIMITER_NAMES.items()}
_KINDS = {name: value for value, name in KIND_NAMES.items()}
_SAMPLING = {name: value for value, name in SAMPLING_NAMES.items()}
_Texts = tuple[Int32, list[Any]]
"""Code of each row (-1 = null) and the values."""


def text_codes(column: Any) -> _Texts:
    """Codes and values of a text or id column; equal values have equal codes."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    codes: Int32 = array.indices.fill_null(-1).to_numpy().astype(np.int32)
    return codes, array.dictionary.to_pylist()


def numbers(column: Any) -> NDArray[Any]:
    """Values of a numeric column without nulls."""
    values: NDArray[Any] = column.to_numpy()
    return values


def joint_codes(columns: Sequence[NDArray[Any]], rows: int) -> tuple[Int64, Int64]:
    """One code for each combination of values, and the row at which each code comes first."""
    code = np.zeros(rows, dtype=np.int64)
    combinations = 1
    for values in columns:
        if not rows or bool((values == values[0]).all()):
            continue
        small, count = _dense(values)
        if combinations * count > _MOST:
            code, combinations = _dense(code)
        code = code * count + small
        combinations *= count
    code, _ = _dense(code)
    return code, first_of(code)


def _dense(values: NDArray[Any]) -> tuple[Int64, int]:
    encoded = pa.array(values).dictionary_encode()
    return encoded.indices.to_numpy().astype(np.int64), len(encoded.dictionary)


class Decoder:
    """Rows of whole batches, and the batches that they make."""

    def __init__(self, table: Any) -> None:
        """Takes an Arrow table with all columns of the archive, rows in any order."""
        self._size = len(table)
        self._texts: dict[str, _Texts] = {name: text_codes(table[name]) for name in TEXT_COLUMNS}
        self._table = table
        self._strings: list[str] = []
        self._string_codes: dict[str, int] = {}
        self._configs, self._config = self._rebuild_configs()
        self._places, self._place = self._rebuild(PLACE, {"gpu": "gpu"})
        self._nodes, self._node = self._rebuild(NODE, {})
        self._traces, self._trace = self._rebuild_traces()
        self._stage = self._map_strings("stage")
        self._rows = self._rebuild_rows()

    def batches(self) -> Iterator[Batch]:
        """The batches, by producer and sequence; equal rows (a batch archived twice) count once.

        Where rows of a batch are missing, what is left comes as several batches of consecutive rows, since the ids of
        spans follow from their row numbers.
        """
        producer, producers = self._texts["producer"]
        ranks = np.empty(len(producers), dtype=np.int64)
        ranks[sorted(range(len(producers)), key=producers.__getitem__)] = np.arange(len(producers))
        sequence, row = numbers(self._table["batch_sequence"]), numbers(self._table["session_row"])
        session = numbers(self._table["session"])
        rank = ranks[producer]
        order = np.lexsort((row, session, sequence, rank))
        columns = (rank[order], sequence[order], session[order])
        row = row[order]
        changed = np.zeros(len(order), dtype=bool)
        changed[:1] = True
        for values in columns:
            changed[1:] |= values[1:] != values[:-1]
        again = ~changed
        again[1:] &= row[1:] == row[:-1]
        again[:1] = False
        order, row, changed = order[~again], row[~again], changed[~again]
        changed[1:] |= row[1:] != row[:-1] + np.uint64(1)
        begins = np.flatnonzero(changed)
        for begin, end in zip(begins, np.append(begins[1:], len(order)), strict=True):
            yield self._batch(order[begin:end])

    def _batch(self, rows: Int64) -> Batch:
        first = int(rows[0])
        info = json.loads(self._text("batch_info", first))
        sampling = SamplingMode(_SAMPLING[self._text("sampling", first)])
        return Batch(
            producer=self._text("producer", first),
            sequence=self._number("batch_sequence", first),
            session=self._number("session", first),
            first_row=self._number("session_row", first),
            emit_ns=self._number("emit_ns", first),
            columns=self._columns(rows),
            resource=info["resource"],
            gpus=tuple(Gpu(**dict(zip(gpu_fields(), values, strict=True))) for values in info["gpus"]),
            clock=ClockAnchor(*info["clock"]),
            sampling=sampling,
        )

    def _columns(self, rows: Int64) -> SpanColumns:
        configs, config = _cut(self._configs, self._config[rows])
        places, place = _cut(self._places, self._place[rows])
        nodes, node = _cut(self._nodes, self._node[rows], keep=0)
        traces, trace = _cut(self._traces, self._trace[rows])
        stage = self._stage[rows]
        used = np.unique(np.concatenate([[0], configs["kernel"], configs["name"], stage]))
        configs["kernel"] = np.searchsorted(used, configs["kernel"])
        configs["name"] = np.searchsorted(used, configs["name"])
        strings = tuple(self._strings[index] for index in used)
        cut = {name: values[rows] for name, values in self._rows.items()}
        return make_columns(
            cut.pop("start_ns"),
            cut.pop("duration_ns"),
            tables=(strings, configs, places, nodes, traces),
            config=config,
            place=place,
            node=node,
            trace=trace,
            stage=np.searchsorted(used, stage),
            **cut,
        )

    def _rebuild_rows(self) -> dict[str, NDArray[Any]]:
        span, table = numbers(self._table["span_id"]), self._table
        is_range = span >= np.uint64(RANGE_BIT)
        number = np.where(is_range, (span ^ np.uint64(RANGE_BIT)).astype(np.int64), -1)
        parent = numbers(table["parent_span_id"].fill_null(0))
        codes, kinds = self._texts["kind"]
        values = np.array([_KINDS[kind] if kind in _KINDS else int(kind) for kind in kinds], dtype=np.uint8)
        return {
            **{name: numbers(table[name]) for name in ("start_ns", "duration_ns", "bytes", "weight")},
            "correlation": numbers(table["correlation_id"]),
            "kind": values[codes],
            "range_number": number,
            "parent": np.where(parent != 0, (parent ^ np.uint64(RANGE_BIT)).astype(np.int64), -1),
        }

    def _rebuild_configs(self) -> tuple[Table, Int32]:
        indexes = {name: self._map_strings(name) for name in _CONFIG_TEXTS}
        limiter, limiters = self._texts["occupancy_limiter"]
        values = [_LIMITERS[name] if name in _LIMITERS else int(name) for name in limiters]
        indexes["limiter"] = np.array([*values, 0], dtype=np.uint32)[limiter]  # type: ignore[assignment]  # u4 among i4
        return self._rebuild(CONFIG, indexes)

    def _rebuild_traces(self) -> tuple[Table, Int32]:
        codes, ids = self._texts["trace_id"]
        start, parent = numbers(self._table["trace_start_ns"]), numbers(self._table["trace_remote_parent"])
        code, first = joint_codes((codes, start, parent), self._size)
        table = np.zeros(len(first), dtype=TRACE)
        table["id"] = np.array([ids[i] if i >= 0 else bytes(16) for i in codes[first]], dtype="V16")
        table["start_ns"], table["remote_parent"] = start[first], parent[first]
        return table, np.where(codes >= 0, code, -1).astype(np.int32)

    def _rebuild(self, dtype: np.dtype[np.void], given: dict[str, Any]) -> tuple[Table, Int32]:
        """The table of which each row's values are an entry; fields come from the columns of their names."""
        columns = {}
        for name in dtype.names or ():
            value = given.get(name)
            columns[name] = value if isinstance(value, np.ndarray) else numbers(self._table[name])
        code, first = joint_codes(tuple(columns.values()), self._size)
        table = np.zeros(len(first), dtype=dtype)
        for name, values in columns.items():
            table[name] = values[first]
        return table, code.astype(np.int32)

    def _map_strings(self, name: str) -> Int32:
        codes, values = self._texts[name]
        if not self._strings:
            self._strings.append("")
            self._string_codes[""] = 0
        mapped = []
        for value in values:
            index = self._string_codes.setdefault(value, len(self._strings))
            if index == len(self._strings):
                self._strings.append(value)
            mapped.append(index)
        return np.array([*mapped, 0], dtype=np.int32)[codes]  # null picks the last: the empty text

    def _text(self, name: str, row: int) -> Any:
        codes, values = self._texts[name]
        return values[codes[row]]

    def _number(self, name: str, row: int) -> int:
        return int(self._table[name][row].as_py())


def _cut(table: Table, index: Int32, *, keep: int | None = None) -> tuple[Table, Int32]:
    """The entries that are used, and the index into them; `keep` puts a zeroed entry first."""
    used, inverse = np.unique(index, return_inverse=True)
    small: Int32 = inverse.astype(np.int32)
    if len(used) and used[0] < 0:
        used, small = used[1:], (small - 1).astype(np.int32)
    entries = table[used]
    if keep is None:
        return entries, small
    zero = np.zeros(1, dtype=table.dtype)
    plain = entries == zero[0]
    if plain.any():  # it stands there already: to the front with it
        position = int(np.flatnonzero(plain)[0])
        places = np.arange(len(entries))
        front = np.concatenate([[position], places[places != position]])
        moved = np.empty(len(entries), dtype=np.int32)
        moved[front] = places
        return entries[front], moved[small]
    return np.concatenate([zero, entries]), (small + 1).astype(np.int32)
