"""Closed windows to metric points, and their running totals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.contract.point_columns import ROW_COLUMNS, PointColumns
from spanlite.contract.points import Exemplar, Point
from spanlite.pipeline.buckets import Buckets, Held
from spanlite.pipeline.growing import grown
from spanlite.pipeline.partial import MOST_SUM, Partial, merge, precedence
from spanlite.pipeline.pieces import partial_of
from spanlite.pipeline.series import SeriesRegistry

_Mask = NDArray[np.bool_]
_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_COLUMNS = ("count", "spans", "sum_ns", "warp_ns", "bytes", "min_ns", "max_ns", "exemplar_start_ns")
"""Of the table of totals; then the longest span's id and both halves of its trace's, and begin and end of the time."""
_SUMS, _SHORTEST, _LONGEST, _SPAN, _BEGIN, _END = slice(0, 5), 5, 6, 8, 11, 12
_EXEMPLAR = slice(_LONGEST, _BEGIN)
_NOTHING = np.array([0] * 5 + [_MOST, -1] + [0] * 4 + [_MOST, _LEAST], dtype=np.int64)
"""What is less than any work."""


class Told(NamedTuple):
    """Totals of series that have changed, ascending by number."""

    series: Int32
    columns: PointColumns

    def parts(self, most: int) -> Iterator[Told]:
        """The same, at most so many at a time."""
        columns = self.columns
        ends = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(columns.buckets)])
        for at in range(0, len(self.series), most):
            part = slice(at, at + most)
            inner = slice(ends[at], ends[min(at + most, len(self.series))])
            yield Told(
                self.series[part],
                PointColumns(
                    **{name: getattr(columns, name)[part] for name in ROW_COLUMNS},
                    buckets=columns.buckets[part],
                    bucket_index=columns.bucket_index[inner],
                    bucket_count=columns.bucket_count[inner],
                ),
            )


def points(partial: Partial, width_ns: int, registry: SeriesRegistry) -> list[Point]:
    """One point for each row, in the order of the rows."""
    columns = PointColumns(
        window_start_ns=partial.window * width_ns,
        window_end_ns=(partial.window + 1) * width_ns,
        count=partial.count,
        spans=partial.spans,
        sum_ns=partial.sum_ns,
        min_ns=partial.min_ns,
        max_ns=partial.max_ns,
        warp_ns=partial.warp_ns,
        bytes=partial.bytes,
        exemplar_trace=partial.exemplar_trace,
        exemplar_span=partial.exemplar_span,
        exemplar_start_ns=partial.exemplar_start_ns,
        buckets=np.bincount(partial.bucket_row, minlength=len(partial)),
        bucket_index=partial.bucket_index,
        bucket_count=partial.bucket_count,
    )
    return list(_points(Told(partial.series, columns), registry))


class Totals:
    """Running totals of every series since it began: what a cumulative point says. They only ever grow.

    What was added in which order does not show: sums, first and last window are the same for the same spans. They lie
    in a table with a row for each number of the registry; an addition reads and writes the rows that it touches.
    """

    def __init__(self, width_ns: int, registry: SeriesRegistry, *, epoch: int = 0) -> None:
        """Args: epoch: generation of these totals, see Point."""
        self._width_ns = width_ns
        self._registry = registry
        self.epoch = epoch
        self._table = np.zeros((0, len(_NOTHING)), dtype=np.int64)
        self._buckets = Buckets()

    def restore(self, kept: list[Point]) -> None:
        """Begins from cumulative points; all are of one epoch, which becomes that of these totals."""
        begin, end = (
            np.array([getattr(point, name) for point in kept], dtype=np.int64)
            for name in ("window_start_ns", "window_end_ns")
        )
        self._add(partial_of(kept, self._registry), begin, end)
        self.epoch = kept[-1].epoch if kept else self.epoch

    def add(self, closed: Partial) -> list[Point]:
        """Adds aggregates of any windows; the cumulative points of the series that were in them."""
        told = self.update(closed)
        return list(_points(told, self._registry, cumulative=True, epoch=self.epoch))

    def update(self, closed: Partial) -> Told:
        """Adds aggregates of any windows, in any order; the totals of the series that were in them."""
        return self._add(closed, closed.window * self._width_ns, (closed.window + 1) * self._width_ns)

    def _add(self, added: Partial, begin_ns: Int64, end_ns: Int64) -> Told:
        """Args: begin_ns, end_ns: of the time that each row tells of."""
        if (added.series[1:] <= added.series[:-1]).any():
            order = np.argsort(added.series, kind="stable")
            series = added.series[order]
            first = np.flatnonzero(np.diff(series, prepend=series[0] - 1))
            begin_ns = np.minimum.reduceat(begin_ns[order], first)
            end_ns = np.maximum.reduceat(end_ns[order], first)
            added = merge([replace(added, window=np.zeros_like(added.window))])
        series = added.series
        self._table = grown(self._table, int(series.max(initial=-1)) + 1, _NOTHING)
        held, more = self._table[series], _rows(added, begin_ns, end_ns)
        held[:, _SUMS] += np.minimum(more[:, _SUMS], MOST_SUM - held[:, _SUMS])
        for at in (_SHORTEST, _BEGIN):
            held[:, at] = np.minimum(held[:, at], more[:, at])
        held[:, _END] = np.maximum(held[:, _END], more[:, _END])
        longer = _is_longer(more, held)
        held[longer, _EXEMPLAR] = more[longer, _EXEMPLAR]
        self._table[series] = held
        length = np.bincount(added.bucket_row, minlength=len(added))
        buckets = self._buckets.add(series, Held(length, added.bucket_index, added.bucket_count))
        return Told(series, _columns(held, buckets))


def _rows(partial: Partial, begin_ns: Int64, end_ns: Int64) -> Int64:
    """Rows of the table."""
    trace = np.ascontiguousarray(partial.exemplar_trace).view(np.int64).reshape(len(partial), 2)
    columns = [getattr(partial, name) for name in _COLUMNS]
    return np.column_stack([*columns, partial.exemplar_span.view(np.int64), trace, begin_ns, end_ns])


def _columns(rows: Int64, buckets: Held) -> PointColumns:
    """Rows of the table as columns of points."""
    columns = {name: rows[:, at] for at, name in enumerate(_COLUMNS)}
    return PointColumns(
        window_start_ns=rows[:, _BEGIN],
        window_end_ns=rows[:, _END],
        exemplar_trace=np.ascontiguousarray(rows[:, _SPAN + 1 : _BEGIN]).view("V16").ravel(),
        exemplar_span=rows[:, _SPAN].view(np.uint64),
        buckets=buckets.length,
        bucket_index=buckets.index,
        bucket_count=buckets.count,
        **columns,
    )


def _is_longer(one: Int64, other: Int64) -> _Mask:
    """Whose longest span takes the other's place: equals are told apart by start, then id, as `merge` does."""
    start = _COLUMNS.index("exemplar_start_ns")
    same = one[:, _LONGEST] == other[:, _LONGEST]
    first, second = (precedence(rows[:, start], rows[:, _LONGEST]) for rows in (one, other))
    lower_id = one[:, _SPAN].view(np.uint64) < other[:, _SPAN].view(np.uint64)
    before = same & ((first < second) | ((first == second) & lower_id))
    longer: _Mask = (one[:, _LONGEST] > other[:, _LONGEST]) | before
    return longer


def _points(told: Told, registry: SeriesRegistry, *, cumulative: bool = False, epoch: int = 0) -> Iterator[Point]:
    columns = told.columns
    traces = columns.exemplar_trace.tobytes()
    names = [name for name in ROW_COLUMNS if not name.startswith("exemplar")]
    values = zip(*(getattr(columns, name).tolist() for name in names), strict=True)
    spans = zip(columns.exemplar_span.tolist(), columns.exemplar_start_ns.tolist(), strict=True)
    edges = pairwise([0, *np.cumsum(columns.buckets).tolist()])
    rows = zip(told.series.tolist(), values, spans, edges, columns.max_ns.tolist(), strict=True)
    for at, (number, numbers, (span, start_ns), (begin, end), max_ns) in enumerate(rows):
        numbered: dict[str, Any] = dict(zip(names, numbers, strict=True))
        yield Point(
            series=registry.series[number],
            **numbered,
            bucket_index=columns.bucket_index[begin:end],
            bucket_count=columns.bucket_count[begin:end],
            exemplar=Exemplar(traces[16 * at : 16 * at + 16], span, max_ns, start_ns),
            cumulative=cumulative,
            epoch=epoch,
        )
