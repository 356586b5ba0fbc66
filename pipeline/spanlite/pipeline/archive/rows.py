"""Many batches as one set of columns over common tables, and the order in which their rows go to disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.lib import recfunctions
from numpy.typing import NDArray

from spanlite.contract.batch import Batch, Gpu
from spanlite.contract.columns import CONFIG, NODE, PLACE, TRACE, Int32, Int64, Table, UInt64
from spanlite.contract.ids import mix64
from spanlite.pipeline.archive.layout import bucket_of, hour_of, trace_hash

_LATEST = np.iinfo(np.int64).max
GPU_PLACE = np.dtype([*PLACE.descr, ("gpus", "<i4")])
"""PLACE and the index of the GPU list that its `gpu` counts in."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of several batches, shape (n,) each, indexes into common tables.

    Attributes:
        batch: index into `batches`.
        row: number of the row within its session.
        plain: start_ns, duration_ns, kind, parent, range_number, correlation, bytes, weight.
        config, place, node, stage, trace: indexes; trace -1 = none.
        strings: texts, each once.
        gpus: GPU lists that `places["gpus"]` counts in.
    """

    batches: Sequence[Batch]
    batch: Int32
    row: UInt64
    plain: dict[str, NDArray[Any]]
    config: Int32
    place: Int32
    node: Int32
    stage: Int32
    trace: Int32
    strings: list[str]
    configs: Table
    places: Table
    nodes: Table
    traces: Table
    gpus: list[tuple[Gpu, ...]]

    def __len__(self) -> int:
        return len(self.batch)


_PLAIN = ("start_ns", "duration_ns", "kind", "parent", "range_number", "correlation", "bytes", "weight")


def gather(batches: Sequence[Batch]) -> Rows:
    """The rows of `batches` (at least one, none twice), in that order."""
    lengths = np.array([len(batch.columns) for batch in batches])
    columns = [batch.columns for batch in batches]
    strings, string_map = _unify_strings([c.strings for c in columns])
    gpu_lists = list(dict.fromkeys(batch.gpus for batch in batches))
    gpu_index = {gpus: index for index, gpus in enumerate(gpu_lists)}
    configs, config_map = _unify([_remap(c.configs, string_map[i]) for i, c in enumerate(columns)], CONFIG)
    places, place_map = _unify([_with_gpus(b.columns.places, gpu_index[b.gpus]) for b in batches], GPU_PLACE)
    nodes, node_map = _unify([c.nodes for c in columns], NODE)
    traces, trace_map = _unify([c.traces for c in columns], TRACE)
    no_trace = [np.append(entries, np.int32(-1)) for entries in trace_map]  # index -1 stays -1
    first_rows = np.array([batch.first_row for batch in batches], dtype=np.uint64)
    starts = np.repeat(np.cumsum(lengths) - lengths, lengths)
    batch_index = np.repeat(np.arange(len(batches), dtype=np.int32), lengths)
    within = (np.arange(len(starts)) - starts).astype(np.uint64)
    return Rows(
        batches=batches,
        batch=batch_index,
        row=first_rows[batch_index] + within,
        plain={name: np.concatenate([getattr(c, name) for c in columns]) for name in _PLAIN},
        config=_through(config_map, [c.config for c in columns]),
        place=_through(place_map, [c.place for c in columns]),
        node=_through(node_map, [c.node for c in columns]),
        stage=_through(string_map, [c.stage for c in columns]),
        trace=_through(no_trace, [c.trace for c in columns]),
        strings=strings,
        configs=configs,
        places=places,
        nodes=nodes,
        traces=traces,
        gpus=gpu_lists,
    )


def _through(maps: list[Int32], indexes: list[Int32]) -> Int32:
    return np.concatenate([entries[index] for entries, index in zip(maps, indexes, strict=True)])


def _unify_strings(tables: list[tuple[str, ...]]) -> tuple[list[str], list[Int32]]:
    known: dict[str, int] = {"": 0}
    maps = [np.array([known.setdefault(text, len(known)) for text in table], dtype=np.int32) for table in tables]
    return list(known), maps


def _remap(configs: Table, strings: Int32) -> Table:
    out = configs.copy()
    if len(out):
        out["kernel"] = strings[configs["kernel"]]
        out["name"] = strings[configs["name"]]
    return out


def _with_gpus(places: Table, gpus: int) -> Table:
    out = np.zeros(len(places), dtype=GPU_PLACE)
    recfunctions.assign_fields_by_name(out, places)
    out["gpus"] = gpus
    return out


def _unify(tables: list[Table], dtype: np.dtype[np.void]) -> tuple[Table, list[Int32]]:
    """One table with each entry once, and for each table the new index of each of its entries."""
    joined = np.concatenate([np.ascontiguousarray(table, dtype=dtype) for table in tables])
    codes, first = distinct(joined)
    splits = np.cumsum([len(table) for table in tables])[:-1]
    return joined[first], np.split(codes, splits)


def distinct(entries: Table) -> tuple[Int32, Int64]:
    """Code of each entry (equal bytes, equal code) and the position at which each code comes first."""
    if not len(entries):
        return np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64)
    data = np.ascontiguousarray(entries)
    binary = pa.Array.from_buffers(pa.binary(data.dtype.itemsize), len(data), [None, pa.py_buffer(data)])
    codes: Int32 = binary.dictionary_encode().indices.to_numpy()
    return codes, first_of(codes)


def first_of(codes: Int32 | Int64) -> Int64:
    """Position at which each of the codes 0 … max comes first."""
    first = np.zeros(int(codes.max()) + 1 if len(codes) else 0, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


@dataclass(frozen=True, slots=True)
class Order:
    """How rows go to disk.

    Attributes:
        rows: row numbers in the order of the files, shape (n,).
        hours, buckets: of each partition, in order.
        ends: position in `rows` at which each partition ends.
    """

    rows: Int64
    hours: Int64
    buckets: Int64
    ends: Int64


def order_rows(rows: Rows, buckets: int) -> Order:
    """Partition of each row, and the order (partition, first start of its trace, trace, start).

    A trace lies in the hour of its first start, never split by the starts of its spans: what the agent said, else the
    first start among the rows at hand. Rows without a trace stand together by session, in the hour in which the first
    such row of their batch starts.
    """
    start = rows.plain["start_ns"]
    ids, id_first = distinct(rows.traces["id"])
    trace_ids = rows.traces["id"][id_first]
    sessions, loose_hours, session_code = _loose_groups(rows)
    has_trace = rows.trace >= 0
    loose = len(trace_ids) + session_code[rows.batch]
    group = np.where(has_trace, np.append(ids, 0)[rows.trace], loose)
    first = first_starts(group, start, len(trace_ids) + len(sessions))
    used = np.unique(rows.trace[has_trace])
    told = rows.traces["start_ns"][used]
    first = told_starts(first, ids[used[told != 0]], told[told != 0])
    hours = np.append(hour_of(first[: len(trace_ids)]), loose_hours)
    bucket = bucket_of(np.append(trace_hash(trace_ids), mix64(sessions)), buckets)
    ranks = group_ranks(first, group_keys(trace_ids, sessions))
    order = sort_rows(start, ranks[group], (hours * buckets + bucket)[group])
    hour, bucket = hours[group[order]], bucket[group[order]]
    ends = np.append(np.flatnonzero((np.diff(hour) != 0) | (np.diff(bucket) != 0)) + 1, len(order))
    return Order(order, hour[ends - 1], bucket[ends - 1], ends)


def _loose_groups(rows: Rows) -> tuple[UInt64, Int64, Int64]:
    """Session and hour of the groups of rows without a trace, and the group of each batch."""
    loose = rows.trace < 0
    first = first_starts(rows.batch[loose], rows.plain["start_ns"][loose], len(rows.batches))
    pairs = np.zeros(len(rows.batches), dtype=[("session", "<u8"), ("hour", "<i8")])
    pairs["session"] = [batch.session for batch in rows.batches]
    pairs["hour"] = hour_of(first)
    codes, at = distinct(pairs)
    return np.ascontiguousarray(pairs["session"][at]), pairs["hour"][at], codes.astype(np.int64)


def told_starts(first: Int64, groups: Int64 | Int32, starts: Int64) -> Int64:
    """`first`, with the earliest of `starts` for each of `groups` in place of what the rows say."""
    told = np.full(len(first), _LATEST, dtype=np.int64)
    np.minimum.at(told, groups, starts)
    return np.where(told != _LATEST, told, first)


def first_starts(group: Int64 | Int32, start: Int64, groups: int) -> Int64:
    """Smallest start of each group; the largest int64 where a group has no rows."""
    first = np.full(groups, _LATEST, dtype=np.int64)
    if groups == 1 and len(start):
        first[0] = start.min()
    else:
        np.minimum.at(first, group, start)
    return first


def group_keys(trace_ids: NDArray[np.void], sessions: UInt64) -> tuple[UInt64, UInt64]:
    """Sort keys, high and low half, of groups: traces by their id as bytes, then sessions (rows without a trace)."""
    halves = np.ascontiguousarray(trace_ids).view(">u8").reshape(-1, 2).astype(np.uint64)
    return np.append(halves[:, 0], np.zeros_like(sessions)), np.append(halves[:, 1], sessions)


def group_ranks(first: Int64, keys: tuple[UInt64, UInt64]) -> Int64:
    """Position of each group in the order (first start, key)."""
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.lexsort((keys[1], keys[0], first))] = np.arange(len(first))
    return ranks


def sort_rows(start: Int64, *keys: Int64) -> Int64:
    """Stable order by the keys, the last the foremost, and by start within."""
    foremost = [key for key in keys if len(key) and key.min() != key.max()]
    if not foremost and bool((start[1:] >= start[:-1]).all()):
        return np.arange(len(start))
    return np.asarray(np.lexsort((start, *foremost)), dtype=np.int64)


def gpu_fields() -> tuple[str, ...]:
    """Names of the fields of a GPU, in the order in which `batch_info` holds them."""
    return tuple(field.name for field in fields(Gpu))
