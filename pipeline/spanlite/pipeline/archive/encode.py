"""Rows to Arrow tables of the archive's columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.columns import Int32, Int64, config_occupancy
from spanlite.contract.ids import RANGE_BIT
from spanlite.native import columns as native
from spanlite.native import library
from spanlite.pipeline.archive.rows import Rows, distinct, gpu_fields
from spanlite.pipeline.archive.schema import (
    COLUMNS,
    KIND_NAMES,
    LIMITER_NAMES,
    RESOURCE_COLUMNS,
    TEXT_COLUMNS,
    Column,
    file_schema,
)

_TEXTS = set(TEXT_COLUMNS)
_Values = tuple[Any, Any]
"""Numeric: values and null mask by table entry. Text: dictionary and code by entry, -1 = null."""


def batch_info(batch: Batch) -> str:
    """What a batch says beyond its rows, as JSON: resource, GPUs, clock anchor."""
    clock = batch.clock
    facts = {
        "resource": dict(batch.resource),
        "gpus": [[getattr(gpu, name) for name in gpu_fields()] for gpu in batch.gpus],
        "clock": [clock.cupti_ns, clock.unix_ns, clock.uncertainty_ns],
    }
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))


class Encoder:
    """Columns of gathered rows, cut to tables of any choice of rows."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self._tables: dict[str, _Values] = {}
        self._same: dict[tuple[object, object], NDArray[Any]] = {}
        for column in COLUMNS:
            if column.source != "row":
                self._tables[column.name] = self._table_values(column)

    def constant(self) -> list[str]:
        """Numeric columns that have one value in all rows."""
        names = [
            name
            for name, (values, mask) in self._tables.items()
            if name not in _TEXTS and mask is None and len(values) and bool((values == values[0]).all())
        ]
        for name in ("bytes", "weight"):
            values = self.rows.plain[name]
            if len(values) and values.min() == values.max():
                names.append(name)
        return names

    def single(self) -> list[str]:
        """Text columns that have one value, or null, in all rows."""
        return [
            name
            for name, (_, codes) in self._tables.items()
            if name in _TEXTS and len(codes) and bool((codes == codes[0]).all())
        ]

    def table(self, chosen: Int64) -> Any:
        """The rows `chosen`, in that order, as an Arrow table of `file_schema()`."""
        rows = self.rows
        index = {
            "config": _index(rows.config, chosen),
            "place": _index(rows.place, chosen),
            "node": _index(rows.node, chosen),
            "trace": _index(rows.trace, chosen),
            "batch": _index(rows.batch, chosen),
        }
        index["trace"][index["trace"] < 0] = len(rows.traces)  # the entry of rows without a trace
        arrays = [
            self._row_column(column.name, chosen)
            if column.source == "row"
            else self._spread(column, index[column.source])
            for column in COLUMNS
        ]
        return pa.Table.from_arrays(arrays, schema=file_schema())

    def _spread(self, column: Column, index: Int64) -> Any:
        values, extra = self._tables[column.name]
        if column.name in _TEXTS:
            return _dictionary(self._take(extra, index), values, column)
        nulls = self._take(extra, index) if extra is not None and extra.any() else None
        return pa.array(self._take(values, index), mask=nulls)

    def _take(self, values: NDArray[Any], index: Int64) -> NDArray[Any]:
        if not len(values) or not bool((values == values[0]).all()):
            return _take(values, index)
        key = (values.dtype, values[0])
        same = self._same.get(key)
        if same is None or len(same) != len(index):  # half of the columns are 0 on every row: one array serves all
            same = self._same[key] = np.full(len(index), values[0], dtype=values.dtype)
        return same

    def _row_column(self, name: str, chosen: Int64) -> Any:
        rows = self.rows
        if name == "session_row":
            return pa.array(rows.row[chosen])
        if name == "kind":
            return _named(rows.plain["kind"][chosen], KIND_NAMES)
        if name == "stage":
            codes = rows.stage[chosen]
            used, small = _used(codes, len(rows.strings))
            texts = pa.array([rows.strings[i] or None for i in used], pa.string())
            return _without_nulls(small, texts)
        if name == "span_id":
            number = rows.plain["range_number"][chosen]
            return pa.array(np.where(number >= 0, _range_ids(number), rows.row[chosen]))
        if name == "parent_span_id":
            parent = rows.plain["parent"][chosen]
            none = parent < 0
            return pa.array(_range_ids(parent), mask=none if none.any() else None)
        return pa.array(rows.plain["correlation" if name == "correlation_id" else name][chosen])

    def _table_values(self, column: Column) -> _Values:
        if column.source == "batch":
            return _batch_values(column, self.rows.batches)
        if column.source == "trace":
            return self._trace_values(column)
        if column.source == "place":
            return self._place_values(column)
        if column.source == "node":
            return np.ascontiguousarray(self.rows.nodes[column.name]), None
        return self._config_values(column)

    def _config_values(self, column: Column) -> _Values:
        configs, strings = self.rows.configs, self.rows.strings
        if column.name == "theoretical_occupancy":
            ratio = config_occupancy(configs)
            return ratio, np.isnan(ratio)
        if column.name == "occupancy_limiter":
            names = [LIMITER_NAMES.get(int(value), str(value)) if value else None for value in configs["limiter"]]
            return _texts(names, pa.string())
        values = np.ascontiguousarray(configs[column.name])
        return _texts([strings[index] for index in values], pa.string()) if column.name in _TEXTS else (values, None)

    def _trace_values(self, column: Column) -> _Values:
        traces = self.rows.traces
        if column.name == "trace_id":
            codes, first = distinct(traces["id"])  # one id may have several entries: its start was not known at first
            ids = np.ascontiguousarray(traces["id"][first])
            values = pa.Array.from_buffers(pa.binary(16), len(ids), [None, pa.py_buffer(ids)])
            return values, np.append(codes, np.int32(-1))
        field = "start_ns" if column.name == "trace_start_ns" else "remote_parent"
        return np.append(traces[field], traces[field].dtype.type(0)), None

    def _place_values(self, column: Column) -> _Values:
        places = self.rows.places
        if column.name not in _TEXTS:
            return np.ascontiguousarray(places[column.name]), None
        of_gpu: dict[str, Callable[[Gpu], str]] = {
            "gpu_uuid": lambda gpu: gpu.uuid,
            "gpu_name": lambda gpu: gpu.name,
            "compute_capability": lambda gpu: f"{gpu.compute_major}.{gpu.compute_minor}" if gpu.compute_major else "",
        }
        read = of_gpu[column.name]
        texts: list[str | None] = []
        for place in places:
            gpus, at = self.rows.gpus[place["gpus"]], int(place["gpu"])
            texts.append((read(gpus[at - 1]) or None) if 0 < at <= len(gpus) else None)
        return _texts(texts, pa.string())


def _batch_values(column: Column, batches: Any) -> _Values:
    if column.name in RESOURCE_COLUMNS:
        key = RESOURCE_COLUMNS[column.name]
        return _texts([batch.resource.get(key) or None for batch in batches], pa.string())
    if column.name == "producer":
        return _texts([batch.producer for batch in batches], pa.binary(16))
    if column.name == "batch_info":
        return _texts([batch_info(batch) for batch in batches], pa.string())
    if column.name == "sampling":
        return _texts([batch.sampling.name.lower() for batch in batches], pa.string())
    field = "sequence" if column.name == "batch_sequence" else column.name
    return np.array([getattr(batch, field) for batch in batches], dtype=np.dtype(str(column.type))), None


def _index(column: Int32, chosen: Int64) -> NDArray[Any]:
    index = column[chosen]
    # numpy would convert a narrower index for each of the columns
    return index if library() is not None else index.astype(np.int64)


def _take(values: NDArray[Any], index: NDArray[Any]) -> NDArray[Any]:
    """values[index]; indexes are in range, as `gather` made them."""
    fast = library()
    if fast is not None and values.dtype.itemsize in (4, 8):
        return native.take(fast, values, index)
    return values.take(index, mode="clip")  # the check would double the time


def _texts(values: list[Any], kind: Any) -> _Values:
    encoded = pa.array(values, kind).dictionary_encode()
    return encoded.dictionary, encoded.indices.fill_null(-1).to_numpy().astype(np.int32)


def _dictionary(codes: NDArray[Any], values: Any, column: Column) -> Any:
    mask = codes < 0 if column.nullable and len(codes) and codes.min() < 0 else None
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32(), mask=mask), values)


def _without_nulls(codes: NDArray[np.int32], values: Any) -> Any:
    """The dictionary array of values that may hold one null, which goes to the indexes."""
    kept = values.drop_null()
    shift = np.cumsum(np.asarray(values.is_valid())) - 1
    shift[~np.asarray(values.is_valid())] = -1
    moved = shift[codes].astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(moved, pa.int32(), mask=moved < 0), kept)


def _named(values: NDArray[Any], names: dict[int, str]) -> Any:
    used, codes = _used(values, 256)
    return pa.DictionaryArray.from_arrays(
        pa.array(codes), pa.array([names.get(int(v), str(v)) for v in used], pa.string())
    )


def _used(values: NDArray[Any], size: int) -> tuple[Int64, Int32]:
    """Which of the numbers below `size` occur, and each value as its place among them; no sorting of rows."""
    used = np.flatnonzero(np.bincount(values, minlength=size))
    codes = np.zeros(size, dtype=np.int32)
    codes[used] = np.arange(len(used))
    return used, codes[values]


def _range_ids(number: NDArray[Any]) -> NDArray[np.uint64]:
    return number.astype(np.uint64) | np.uint64(RANGE_BIT)
