"""GPU work and observations of a batch, grouped and summed by numpy.

It does what native.folding does in C, and takes over without it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.batch import Batch
from spanlite.contract.columns import GAUGE, RANGE, Int32, Int64, SpanColumns, UInt8, UInt64
from spanlite.contract.histogram import bucket_index
from spanlite.contract.ids import mix64
from spanlite.pipeline.partial import precedence

_Number = TypeVar("_Number", bound=np.generic)
_DENSE_LIMIT = 8
"""Buckets are counted in a dense table while it is at most this many times larger than the batch."""


@dataclass(frozen=True, slots=True)
class Sums:
    """Groups by (window, kind, config, stage, gpu), in ascending order, shape (g,), and their histograms, shape (b,).

    Attributes:
        window: floor(start / width).
        kind, config, stage, gpu: as in SpanColumns; gpu is 1 + the index into the batch's GPUs.
        count, spans, sum_ns, min_ns, max_ns, bytes: see contract.points.Point.
        row: of the exemplar: the longest span; equals are told apart as `merge` does.
        span_id: the exemplar's; of gauges the bits of its value.
        bucket_row, bucket_index, bucket_count: ascending.
    """

    window: Int64
    kind: Int32
    config: Int32
    stage: Int32
    gpu: Int32
    count: Int64
    spans: Int64
    sum_ns: Int64
    min_ns: Int64
    max_ns: Int64
    bytes: Int64
    row: Int64
    span_id: UInt64
    bucket_row: Int32
    bucket_index: Int32
    bucket_count: Int64


class _Work(NamedTuple):
    """The columns of a batch that are folded, without ranges; `rows` are their places in the batch, None for all.

    `weight` is None where every span stands for itself, `bytes` where nothing was moved; gauges have moved nothing.
    """

    rows: Int64 | None
    start_ns: Int64
    duration_ns: Int64
    kind: UInt8
    config: Int32
    stage: Int32
    gpu: Int64
    weight: Int64 | None
    bytes: Int64 | None


class _Groups(NamedTuple):
    """Rows of a batch grouped by (window, kind, config, stage, gpu).

    `code` numbers the group of each row; `order` sorts rows by it; `first` is each group's first place in that order,
    `spans` the number of its rows.
    """

    code: Int64
    order: Int64
    first: Int64
    spans: Int64
    window: Int64
    kind: Int32
    config: Int32
    stage: Int32
    gpu: Int32


def sum_batch(batch: Batch, width_ns: int) -> Sums:
    """Sums of a batch that is not all ranges."""
    columns = batch.columns
    work = _work(columns)
    groups = _group(work, width_ns, (kinds_of(columns), len(columns.configs), len(batch.gpus) + 1))
    order, first, weight = groups.order, groups.first, work.weight
    duration = work.duration_ns[order]
    longest_ns = np.maximum.reduceat(duration, first)
    longest, span_id = _longest_rows(batch, work, groups, duration == np.repeat(longest_ns, groups.spans))
    return Sums(
        *(groups.window, groups.kind, groups.config, groups.stage, groups.gpu),
        count=groups.spans if weight is None else np.add.reduceat(weight[order], first),
        spans=groups.spans,
        sum_ns=np.add.reduceat(duration if weight is None else duration * weight[order], first),
        min_ns=np.minimum.reduceat(duration, first),
        max_ns=longest_ns,
        bytes=_moved(work, groups),
        row=longest if work.rows is None else work.rows[longest],
        span_id=span_id,
        **_buckets(work.duration_ns, groups.code, len(first), weight),
    )


def _work(columns: SpanColumns) -> _Work:
    is_range = columns.is_range
    rows = np.flatnonzero(~is_range) if is_range.any() else None

    def of_work(column: NDArray[_Number]) -> NDArray[_Number]:
        return column if rows is None else column[rows]

    weight, moved = of_work(columns.weight), of_work(np.where(columns.is_gauge, 0, columns.bytes))
    return _Work(
        rows=rows,
        start_ns=of_work(columns.start_ns),
        duration_ns=of_work(columns.duration_ns),
        kind=of_work(columns.kind),
        config=of_work(columns.config),
        stage=of_work(columns.stage),
        gpu=columns.places["gpu"].astype(np.int64)[of_work(columns.place)],
        weight=None if (weight == 1).all() else weight.astype(np.int64),
        bytes=moved if moved.any() else None,
    )


def kinds_of(columns: SpanColumns) -> int:
    """Kinds that are folded lie below this: without observations a batch has fewer, and its table less room to take."""
    return GAUGE + 1 if int(columns.kind.max(initial=0)) > RANGE else RANGE


def _moved(work: _Work, groups: _Groups) -> Int64:
    if work.bytes is None:
        return np.zeros(len(groups.first), dtype=np.int64)
    moved = work.bytes if work.weight is None else work.bytes * work.weight
    return np.add.reduceat(moved[groups.order], groups.first)


def _group(work: _Work, width_ns: int, sizes: tuple[int, int, int]) -> _Groups:
    """Args: sizes: how many kinds, configs and GPUs there may be."""
    kinds, configs, gpus = sizes
    windows, window = _windows(work.start_ns // width_ns)
    stages = np.flatnonzero(np.bincount(work.stage))
    stage = np.zeros(int(stages[-1]) + 1, dtype=np.int64)
    stage[stages] = np.arange(len(stages))
    shape = (len(windows), kinds, configs, len(stages), gpus)
    inner: list[NDArray[np.integer[Any]]] = [work.kind, work.config, stage[work.stage], work.gpu]
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
        counts,
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
        return np.arange(last - first + 1) + np.int64(first), window - first
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


def _longest_rows(batch: Batch, work: _Work, groups: _Groups, longest: NDArray[np.bool_]) -> tuple[Int64, UInt64]:
    """Row and span id of each group's exemplar; equally long ones are told apart as `merge` does."""
    candidate = groups.order[np.flatnonzero(longest)]
    row = candidate if work.rows is None else work.rows[candidate]
    span = mix64((row.astype(np.uint64) + np.uint64(batch.first_row)) ^ np.uint64(batch.session))
    gauge = work.kind[candidate] == GAUGE
    if gauge.any():
        span[gauge] = batch.columns.bytes[row[gauge]].view(np.uint64)
    code = groups.code[candidate]
    order = np.lexsort((span, precedence(work.start_ns[candidate], work.duration_ns[candidate]), code))
    code = code[order]
    fresh = np.ones(len(code), dtype=bool)
    fresh[1:] = code[1:] != code[:-1]
    chosen = order[fresh]
    return candidate[chosen], span[chosen]


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
