"""One batch to partial aggregates: the inner loop of every runner, without a Python step per span."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import Int32, Int64, Kind, SpanColumns, UInt64
from spanlite.contract.histogram import bucket_index
from spanlite.contract.ids import mix64
from spanlite.pipeline.partial import Partial, empty_partial
from spanlite.pipeline.series import SeriesRegistry

_DENSE_LIMIT = 8
"""Buckets are counted in a dense table while it is at most this many times larger than the batch."""


class _Groups(NamedTuple):
    """Rows of a batch grouped by (window, kind, config, stage, gpu).

    `code` numbers the group of each row; `order` sorts rows by it; `first` is each group's first place in that order.
    """

    code: Int64
    order: Int64
    first: Int64
    window: Int64
    kind: Int32
    config: Int32
    stage: Int32
    gpu: Int32


def fold_batch(batch: Batch, width_ns: int, registry: SeriesRegistry) -> Partial:
    """Aggregates the GPU work of a batch by event-time window and series.

    A span lies in window floor(start / width). Ranges are left out; spans of zero length are not expected (the
    agent counts and drops them) and would fall into the lowest bucket.

    Args:
        batch: decoded columns.
        width_ns: window width.
        registry: numbers the series; partials of one registry can be merged.
    """
    columns = batch.columns
    rows: Int64 | None = None
    if (columns.kind == Kind.RANGE).any():
        rows = np.flatnonzero(columns.kind != Kind.RANGE)
        columns = columns.take(rows)
    if len(columns) == 0:
        return empty_partial()
    groups = _group(columns, width_ns, len(batch.gpus) + 1)
    order, first = groups.order, groups.first
    duration = columns.duration_ns[order]
    weight = None if (columns.weight == 1).all() else columns.weight.astype(np.int64)
    spans = np.diff(first, append=len(order))
    longest_ns = np.maximum.reduceat(duration, first)
    longest, exemplar_span = _longest_rows(batch, columns, rows, groups, duration == np.repeat(longest_ns, spans))
    sum_ns = np.add.reduceat(duration if weight is None else duration * weight[order], first)
    moved = columns.bytes if weight is None else columns.bytes * weight
    return Partial(
        window=groups.window,
        series=np.array(registry.resolve(batch, groups.kind, groups.config, groups.stage, groups.gpu), dtype=np.int32),
        count=spans if weight is None else np.add.reduceat(weight[order], first),
        spans=spans,
        sum_ns=sum_ns,
        min_ns=np.minimum.reduceat(duration, first),
        max_ns=longest_ns,
        warp_ns=sum_ns * columns.configs["active_warps"].astype(np.int64)[groups.config],
        bytes=np.add.reduceat(moved[order], first),
        exemplar_trace=_trace_ids(columns, longest),
        exemplar_span=exemplar_span,
        exemplar_start_ns=columns.start_ns[longest],
        **_buckets(columns.duration_ns, groups.code, len(first), weight),
    )


def _group(columns: SpanColumns, width_ns: int, gpus: int) -> _Groups:
    windows, window = _windows(columns.start_ns // width_ns)
    stages = np.flatnonzero(np.bincount(columns.stage))
    stage = np.zeros(int(stages[-1]) + 1, dtype=np.int64)
    stage[stages] = np.arange(len(stages))
    gpu = columns.places["gpu"].astype(np.int64)[columns.place]
    shape = (len(windows), int(Kind.RANGE), len(columns.configs), len(stages), gpus)
    inner: list[NDArray[np.integer[Any]]] = [columns.kind, columns.config, stage[columns.stage], gpu]
    code = window
    for size, part in zip(shape[1:], inner, strict=True):
        code = np.asarray(code * size + part, dtype=np.int64)
    present, code = _renumber(code, int(np.prod(shape, dtype=object)))
    order = np.argsort(code.astype(np.uint16) if len(present) < 1 << 16 else code, kind="stable")
    counts = np.bincount(code, minlength=len(present))
    parts = np.unravel_index(present, shape)
    return _Groups(
        code,
        order,
        np.cumsum(counts) - counts,
        windows[parts[0]],
        parts[1].astype(np.int32),
        parts[2].astype(np.int32),
        stages[parts[3]].astype(np.int32),
        parts[4].astype(np.int32),
    )


def _windows(window: Int64) -> tuple[Int64, Int64]:
    """Windows of a batch, and each row's place among them; a batch spans one or two, seldom more."""
    first, last = int(window.min()), int(window.max())
    if last - first < 1024:
        return np.arange(first, last + 1), window - first
    distinct, place = np.unique(window, return_inverse=True)
    return distinct, place


def _renumber(code: Int64, size: int) -> tuple[Int64, Int64]:
    """Distinct codes ascending, and each code as its place among them."""
    if size > _DENSE_LIMIT * len(code) + 4096:
        present, inverse = np.unique(code, return_inverse=True)
        return present, inverse
    present = np.flatnonzero(np.bincount(code, minlength=size))
    place = np.empty(size, dtype=np.int64)
    place[present] = np.arange(len(present))
    return present, place[code]


def _longest_rows(
    batch: Batch, columns: SpanColumns, rows: Int64 | None, groups: _Groups, longest: NDArray[np.bool_]
) -> tuple[Int64, UInt64]:
    """Row and span id of each group's longest span; equals are told apart by start, then id, as `merge` does."""
    candidate = groups.order[np.flatnonzero(longest)]
    number = (candidate if rows is None else rows[candidate]).astype(np.uint64) + np.uint64(batch.first_row)
    span = mix64(number ^ np.uint64(batch.session))
    code = groups.code[candidate]
    order = np.lexsort((span, columns.start_ns[candidate], code))
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    chosen = order[first]
    return candidate[chosen], span[chosen]


def _trace_ids(columns: SpanColumns, rows: Int64) -> NDArray[np.void]:
    ids = np.concatenate([columns.traces["id"], np.zeros(1, dtype="V16")])
    return ids[columns.trace[rows]]  # -1, no trace, takes the zeros at the end


def _buckets(duration_ns: Int64, code: Int64, groups: int, weight: Int64 | None) -> dict[str, Any]:
    index = bucket_index(duration_ns)
    lowest = int(index.min())
    buckets = int(index.max()) - lowest + 1
    present, place = _renumber(code * buckets + (index - lowest), groups * buckets)
    count = np.bincount(place, minlength=len(present))
    if weight is not None:
        count = np.zeros(len(present), dtype=np.int64)
        np.add.at(count, place, weight)
    return {
        "bucket_row": (present // buckets).astype(np.int32),
        "bucket_index": (present % buckets + lowest).astype(np.int32),
        "bucket_count": count,
    }
