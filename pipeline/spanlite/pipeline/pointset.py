"""Many points as columns: what backtests compare, detectors read and files hold, without an object a point."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int64
from spanlite.contract.errors import UsageError
from spanlite.contract.points import Point, Series
from spanlite.pipeline.partial import ROW_FIELDS, Partial, merge, select
from spanlite.pipeline.pieces import partial_of
from spanlite.pipeline.points import Totals, points
from spanlite.pipeline.series import SeriesRegistry


@dataclass(frozen=True, slots=True)
class PointSet:
    """Points of one window width, or cumulative ones.

    Attributes:
        width_ns: of the windows; 0 of cumulative points, all of which lie in window 0.
        registry: what `rows.series` numbers.
        rows: one row a point; a series and window may have several, which add up.
        begin_ns, end_ns: of cumulative points the time that each tells of, shape (r,); None otherwise.
        exemplars: whether the rows know their longest execution; JSON lines of earlier versions do not tell it.
    """

    width_ns: int
    registry: SeriesRegistry
    rows: Partial
    begin_ns: Int64 | None = None
    end_ns: Int64 | None = None
    exemplars: bool = True

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def cumulative(self) -> bool:
        """Whether the points tell of all time rather than of windows."""
        return self.width_ns == 0

    def merged(self) -> PointSet:
        """One row for each window and series, sorted by them; cumulative points are that already."""
        return self if self.cumulative else replace(self, rows=merge([self.rows]))

    def coarser(self, width_ns: int) -> PointSet:
        """The points of windows of another width: counts, sums and buckets of those inside are added up, exactly.

        Raises:
            UsageError: the width is no multiple of the points' own.
        """
        if width_ns == self.width_ns:
            return self
        if self.cumulative or width_ns % self.width_ns:
            own = "cumulative points have no windows" if self.cumulative else f"they have {self.width_ns} ns"
            raise UsageError(f"points cannot be folded into windows of {width_ns} ns: {own}; take a multiple of them")
        window = self.rows.window // (width_ns // self.width_ns)
        return replace(self, width_ns=width_ns, rows=merge([replace(self.rows, window=window)]))

    def total(self) -> PointSet:
        """The cumulative point of each series: what a topic of points holds once all is told."""
        if self.cumulative:
            return self
        told = Totals(self.width_ns, self.registry).update(self.rows)
        columns = told.columns
        names = (*("count", "spans", "sum_ns", "min_ns", "max_ns", "warp_ns", "bytes"), "exemplar_trace")
        rows = Partial(
            window=np.zeros(len(told.series), dtype=np.int64),
            series=told.series,
            **{name: getattr(columns, name) for name in (*names, "exemplar_span", "exemplar_start_ns")},
            bucket_row=np.repeat(np.arange(len(told.series), dtype=np.int32), columns.buckets),
            bucket_index=columns.bucket_index,
            bucket_count=columns.bucket_count,
        )
        return replace(self, width_ns=0, rows=rows, begin_ns=columns.window_start_ns, end_ns=columns.window_end_ns)

    def where(self, keep: NDArray[np.bool_]) -> PointSet:
        """The rows of a mask."""
        return replace(
            self,
            rows=select(self.rows, keep),
            begin_ns=None if self.begin_ns is None else self.begin_ns[keep],
            end_ns=None if self.end_ns is None else self.end_ns[keep],
        )

    def of_series(self, wanted: Callable[[Series], bool]) -> PointSet:
        """The rows of the series that are wanted."""
        return self.where(np.array([*map(wanted, self.registry.series), False], dtype=bool)[self.rows.series])

    def numbered_by(self, registry: SeriesRegistry) -> PointSet:
        """The same with series numbered by another registry, sorted by window and number."""
        numbers = np.array([*map(registry.number, self.registry.series), -1], dtype=np.int32)
        moved = replace(self, registry=registry, rows=replace(self.rows, series=numbers[self.rows.series]))
        return _arranged(moved, np.arange(len(registry.series)))

    def ordered(self) -> PointSet:
        """The same rows by window, then series as people sort them; no order in which series were met is left."""
        registry = SeriesRegistry()
        for series in sorted(self.registry.series):
            registry.number(series)
        return self.numbered_by(registry)

    def parts(self, most: int) -> Iterator[PointSet]:
        """The same, at most so many rows at a time."""
        rows = self.rows
        for at in range(0, len(self), most):
            part = slice(at, at + most)
            inner = slice(*np.searchsorted(rows.bucket_row, (at, at + most)).tolist())
            columns: dict[str, Any] = {name: getattr(rows, name)[part] for name in ROW_FIELDS}
            columns["bucket_row"] = rows.bucket_row[inner] - np.int32(at)
            columns |= {name: getattr(rows, name)[inner] for name in ("bucket_index", "bucket_count")}
            yield replace(
                self,
                rows=Partial(**columns),
                begin_ns=None if self.begin_ns is None else self.begin_ns[part],
                end_ns=None if self.end_ns is None else self.end_ns[part],
            )

    def points(self) -> list[Point]:
        """As objects, in the order of the rows; of windows only."""
        return points(self.rows, self.width_ns, self.registry)


def _arranged(found: PointSet, rank: Int64) -> PointSet:
    """By window, then the rank of the series; rows equal in both keep their order."""
    order = np.lexsort((rank[found.rows.series], found.rows.window))
    return replace(
        found,
        rows=_taken(found.rows, order),
        begin_ns=None if found.begin_ns is None else found.begin_ns[order],
        end_ns=None if found.end_ns is None else found.end_ns[order],
    )


def _taken(rows: Partial, order: Int64) -> Partial:
    """Rows in another order, with their buckets."""
    length = np.bincount(rows.bucket_row, minlength=len(rows))
    begin = np.cumsum(length) - length
    moved = length[order]
    place = np.repeat(begin[order] - (np.cumsum(moved) - moved), moved) + np.arange(len(rows.bucket_row))
    columns = {name: getattr(rows, name)[order] for name in ROW_FIELDS}
    return Partial(
        **columns,
        bucket_row=np.repeat(np.arange(len(rows), dtype=np.int32), moved),
        bucket_index=rows.bucket_index[place],
        bucket_count=rows.bucket_count[place],
    )


def point_set(found: Sequence[Point], *, exemplars: bool = True) -> PointSet:
    """Points as columns: all of windows of one width, or all cumulative.

    Raises:
        UsageError: they are of several widths, or some are cumulative and some are not.
    """
    registry = SeriesRegistry()
    begin, end = (
        np.array([getattr(point, name) for point in found], dtype=np.int64)
        for name in ("window_start_ns", "window_end_ns")
    )
    rows = partial_of(list(found), registry)
    cumulative = {point.cumulative for point in found}
    if cumulative == {True}:
        return PointSet(0, registry, rows, begin, end, exemplars=exemplars)
    widths = np.unique(end - begin)
    if len(cumulative) > 1 or len(widths) != 1 or widths[0] <= 0 or (begin % widths[0]).any():
        raise UsageError(
            f"{len(found)} points of windows of {_listed(widths)} ns, {sum(p.cumulative for p in found)} of them "
            "cumulative: points of one width, or cumulative ones, can be read together"
        )
    return PointSet(int(widths[0]), registry, replace(rows, window=begin // widths[0]), exemplars=exemplars)


def _listed(widths: Int64) -> str:
    return ", ".join(map(str, widths[:5].tolist())) or "no"
