"""Where rows go, and in which order: cells of rows that stay together, their partition, and the sort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64, UInt64
from spanlite.contract.ids import mix64
from spanlite.pipeline.archive.layout import bucket_of, hour_of, trace_hash
from spanlite.pipeline.archive.rows import Rows, distinct, first_of

_LATEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Cells:
    """Rows of one batch and one trace, or of one batch and no trace: they go to one partition together.

    Where a cell goes follows from its batch alone, so a batch that comes again, among whichever others, goes to the
    same places again.

    Attributes:
        of_row: cell of each row, shape (n,).
        batch: index of each cell's batch, shape (m,), as all that follow.
        hours, buckets: the partition.
        seen: first start among the cell's rows.
        told: what the agent said of the trace's start; the largest int64 where it did not.
        group: index into `trace_ids`, or their number and more: into `sessions`, for rows without a trace.
        trace_ids, sessions: each once.
    """

    of_row: Int64
    batch: Int64
    hours: Int64
    buckets: Int64
    seen: Int64
    told: Int64
    group: Int64
    trace_ids: NDArray[np.void]
    sessions: UInt64

    def __len__(self) -> int:
        return len(self.batch)

    def partition(self) -> Int64:
        """A code of each cell's partition that grows with hour, then bucket."""
        return _dense(self.hours, self.buckets)


def cells_of(rows: Rows, buckets: int) -> Cells:
    """The cells of rows.

    A trace lies in the hour of its first start: what the agent said in the row's batch, else the first start among the
    rows of that batch. Rows without a trace lie in the hour in which the first such row of their batch starts.
    """
    ids, id_first = distinct(rows.traces["id"])
    trace_ids = rows.traces["id"][id_first]
    sessions, session = np.unique(np.array([b.session for b in rows.batches], dtype=np.uint64), return_inverse=True)
    of_row, at = _cells(rows, ids)
    batch = rows.batch[at].astype(np.int64)
    trace = np.append(ids, np.int32(-1))[rows.trace[at]].astype(np.int64)  # index -1 stays -1
    start = rows.plain["start_ns"]
    seen = first_starts(of_row, start, len(at))
    told = _told(rows, of_row, len(at))
    group = np.where(trace >= 0, trace, len(trace_ids) + session.reshape(-1)[batch])
    bucket = bucket_of(np.append(trace_hash(trace_ids), mix64(sessions)), buckets)
    hours = hour_of(np.where(told != _LATEST, told, seen))
    return Cells(of_row, batch, hours, bucket[group], seen, told, group, trace_ids, sessions)


def _cells(rows: Rows, ids: Int32) -> tuple[Int64, Int64]:
    """Cell of each row, and the first row of each cell."""
    code = rows.batch.astype(np.int64)
    if len(ids):
        trace = np.append(ids, np.int32(-1))[rows.trace]
        code = code * (int(ids.max()) + 2) + trace + 1
    of_row: Int64 = pa.array(code).dictionary_encode().indices.to_numpy().astype(np.int64)
    return of_row, first_of(of_row)


def _told(rows: Rows, of_row: Int64, cells: int) -> Int64:
    told = np.full(cells, _LATEST, dtype=np.int64)
    if len(rows.traces):
        start = np.append(rows.traces["start_ns"], np.int64(0))[rows.trace]
        known = start != 0
        np.minimum.at(told, of_row[known], start[known])
    return told


@dataclass(frozen=True, slots=True)
class Order:
    """How rows go to disk.

    Attributes:
        rows: row numbers in the order of the files, shape (k,); k < n where some are left out.
        files: the files that have rows, ascending; `cells` a cell of each.
        ends: position in `rows` at which each file ends.
    """

    rows: Int64
    files: Int64
    cells: Int64
    ends: Int64


def order_rows(rows: Rows, cells: Cells, files: Int64) -> Order:
    """Order of rows by (file, first start of their trace, trace, start).

    The first start is what the agent said, else the first among the file's rows.

    Args:
        rows: n rows.
        cells: theirs.
        files: file of each cell, 0 or more, in the order to write them; -1 to leave the cell out.
    """
    groups = _dense(files, cells.group)
    first = np.full(int(groups.max(initial=-1)) + 1, _LATEST, dtype=np.int64)
    told = first.copy()
    np.minimum.at(first, groups, cells.seen)
    np.minimum.at(told, groups, cells.told)
    at = first_of(groups)
    high, low = group_keys(cells.trace_ids, cells.sessions)
    of_group = cells.group[at]
    key = group_ranks(np.where(told != _LATEST, told, first), (high[of_group], low[of_group]), files[at])[groups]
    start = rows.plain["start_ns"]
    if bool((files >= 0).all()):
        order = sort_rows(start, key[cells.of_row])
    else:
        kept = np.flatnonzero((files >= 0)[cells.of_row])
        order = kept[sort_rows(start[kept], key[cells.of_row[kept]])]
    of_cell = files[cells.of_row[order]]
    ends = np.append(np.flatnonzero(np.diff(of_cell)) + 1, len(order))[: len(order)]
    return Order(order, of_cell[ends - 1], cells.of_row[order[ends - 1]], ends)


def _dense(first: Int64, second: Int64) -> Int64:
    """A code for each pair that grows with the first, then the second, which is not negative."""
    codes = np.unique(first * (second.max(initial=0) + 1) + second, return_inverse=True)[1]
    return codes.reshape(-1).astype(np.int64)


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


def group_ranks(first: Int64, keys: tuple[UInt64, UInt64], *foremost: Int64) -> Int64:
    """Position of each group in the order (foremost, first start, key)."""
    ranks = np.empty(len(first), dtype=np.int64)
    ranks[np.lexsort((keys[1], keys[0], first, *foremost))] = np.arange(len(first))
    return ranks


def sort_rows(start: Int64, key: Int64) -> Int64:
    """Stable order by the key, and by start within."""
    if not len(key) or key.min() == key.max():
        if bool((start[1:] >= start[:-1]).all()):
            return np.arange(len(start))
        return np.asarray(np.argsort(start, kind="stable"), dtype=np.int64)
    return np.asarray(np.lexsort((start, key)), dtype=np.int64)
