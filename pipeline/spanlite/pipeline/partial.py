"""Partial aggregates as columns, and their merge: exact, associative, commutative.

All sums are integers, so the order in which batches, operators or windows are merged never shows in a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from spanlite.contract.columns import Int32, Int64, UInt64


@dataclass(frozen=True, slots=True)
class Partial:
    """One row for each (window, series), and one bucket row for each bucket of those.

    Before a merge a pair may have several rows; `merge` of one partial makes them one.

    Attributes:
        window: int64 number of the window = floor(start / width), shape (r,).
        series: int32 id in the SeriesRegistry that made it, shape (r,).
        count, spans, sum_ns, min_ns, max_ns, warp_ns, bytes: int64, shape (r,); see contract.points.Point.
        exemplar_trace: 16-byte ids as V16; exemplar_span uint64; exemplar_start_ns int64: the longest span, shape (r,).
            Of equally long ones it is the earliest, or the newest where they took no time, and then the one with the
            lowest id; so of gauges it is the newest, and exemplar_span the bits of its value.
        bucket_row: int32 row that the bucket belongs to, ascending, shape (b,).
        bucket_index: int32; bucket_count: int64, shape (b,).
    """

    window: Int64
    series: Int32
    count: Int64
    spans: Int64
    sum_ns: Int64
    min_ns: Int64
    max_ns: Int64
    warp_ns: Int64
    bytes: Int64
    exemplar_trace: np.ndarray[tuple[int, ...], np.dtype[np.void]]
    exemplar_span: UInt64
    exemplar_start_ns: Int64
    bucket_row: Int32
    bucket_index: Int32
    bucket_count: Int64

    def __len__(self) -> int:
        return len(self.window)


SUMS = ("count", "spans", "sum_ns", "warp_ns", "bytes")
MOST_SUM = 1 << 62
"""Where a sum stops instead of wrapping around: 146 years in one series. Sums that stop there still commute."""
ROW_FIELDS = tuple(field.name for field in fields(Partial) if not field.name.startswith("bucket_"))


def empty_partial() -> Partial:
    """No rows: the neutral element of `merge`."""
    none = np.zeros(0, dtype=np.int64)
    dtypes = {"series": np.int32, "exemplar_span": np.uint64, "bucket_row": np.int32, "bucket_index": np.int32}
    columns: dict[str, Any] = {field.name: none.astype(dtypes.get(field.name, np.int64)) for field in fields(Partial)}
    columns["exemplar_trace"] = np.zeros(0, dtype="V16")
    return Partial(**columns)


def merge(parts: Sequence[Partial]) -> Partial:
    """The sum of partials of one registry; rows come out sorted by (window, series)."""
    if not parts:
        return empty_partial()
    stacked = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ROW_FIELDS}
    rows = len(stacked["window"])
    if rows == 0:
        return parts[0]
    order = np.lexsort((stacked["series"], stacked["window"]))
    window, series = stacked["window"][order], stacked["series"][order]
    fresh = np.empty(rows, dtype=bool)
    fresh[0] = True
    fresh[1:] = (window[1:] != window[:-1]) | (series[1:] != series[:-1])
    first = np.flatnonzero(fresh)
    group = np.cumsum(fresh) - 1
    tie = stacked["exemplar_span"][order], stacked["exemplar_start_ns"][order]
    longest = _longest(*tie, stacked["max_ns"][order], group)
    merged: dict[str, Any] = {name: _sums(stacked[name][order], first) for name in SUMS}
    merged["min_ns"] = np.minimum.reduceat(stacked["min_ns"][order], first)
    target = np.empty(rows, dtype=np.int32)
    target[order] = group
    return Partial(
        window=window[first],
        series=series[first],
        max_ns=stacked["max_ns"][order][longest],
        exemplar_trace=stacked["exemplar_trace"][order][longest],
        exemplar_span=stacked["exemplar_span"][order][longest],
        exemplar_start_ns=stacked["exemplar_start_ns"][order][longest],
        **merged,
        **_merge_buckets(parts, target),
    )


def stack(parts: Sequence[Partial]) -> Partial:
    """The rows of partials of one registry, one partial after the other; nothing is added up."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return empty_partial()
    begins = np.cumsum([0, *map(len, parts)])
    columns = {field.name: np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Partial)}
    rows = [part.bucket_row + np.int32(begin) for part, begin in zip(parts, begins.tolist(), strict=False)]
    return Partial(**{**columns, "bucket_row": np.concatenate(rows)})


def _sums(values: Int64, first: Int64) -> Int64:
    """Sums of the groups that begin at `first`, none more than MOST_SUM; values are 0 … MOST_SUM."""
    if int(values.max()) <= MOST_SUM // len(values):
        return np.add.reduceat(values, first)
    high, low = np.add.reduceat(values >> 31, first), np.add.reduceat(values & (1 << 31) - 1, first)
    high += low >> 31
    return np.where(high >= MOST_SUM >> 31, MOST_SUM, (high << 31) + (low & (1 << 31) - 1))


def select(part: Partial, keep: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Partial:
    """The rows of a mask, with their buckets."""
    kept_buckets = keep[part.bucket_row]
    renumber = (np.cumsum(keep) - 1).astype(np.int32)
    rows = {name: getattr(part, name)[keep] for name in ROW_FIELDS}
    return Partial(
        **rows,
        bucket_row=renumber[part.bucket_row[kept_buckets]],
        bucket_index=part.bucket_index[kept_buckets],
        bucket_count=part.bucket_count[kept_buckets],
    )


def _longest(span: UInt64, start: Int64, duration: Int64, group: Int64) -> Int64:
    """Of each group the row with the longest span; equals are told apart by start and id, so that merging commutes."""
    order = np.lexsort((span, precedence(start, duration), -duration, group))
    first = np.empty(len(order), dtype=bool)
    first[0] = True
    first[1:] = group[order][1:] != group[order][:-1]
    return order[first]


def precedence(start_ns: Int64, duration_ns: Int64) -> Int64:
    """Equally long spans by who is the exemplar, lowest first: the earliest, or the newest where they took no time."""
    return np.where(duration_ns > 0, start_ns, ~start_ns)  # not -start_ns, which may not fit


def _merge_buckets(parts: Sequence[Partial], target: Int32) -> dict[str, Any]:
    rows: list[Int32] = []
    at = 0
    for part in parts:
        rows.append(target[at : at + len(part)][part.bucket_row])
        at += len(part)
    row = np.concatenate(rows)
    index = np.concatenate([part.bucket_index for part in parts])
    count = np.concatenate([part.bucket_count for part in parts])
    if len(row) == 0:
        return {"bucket_row": row, "bucket_index": index, "bucket_count": count}
    code = (row.astype(np.int64) << 32) + (index.astype(np.int64) + (1 << 31))
    order = np.argsort(code, kind="stable")
    code = code[order]
    fresh = np.empty(len(code), dtype=bool)
    fresh[0] = True
    fresh[1:] = code[1:] != code[:-1]
    first = np.flatnonzero(fresh)
    return {
        "bucket_row": row[order][first],
        "bucket_index": index[order][first],
        "bucket_count": np.add.reduceat(count[order], first),
    }
