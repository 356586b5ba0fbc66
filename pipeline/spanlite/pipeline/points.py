"""Closed windows to metric points, and their running totals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spanlite.contract.points import Exemplar, Point
from spanlite.pipeline.partial import ROW_FIELDS, Partial, empty_partial, merge, select
from spanlite.pipeline.pieces import partial_of
from spanlite.pipeline.series import SeriesRegistry


def points(partial: Partial, width_ns: int, registry: SeriesRegistry) -> list[Point]:
    """One point for each row, in the order of the rows."""
    edges = np.searchsorted(partial.bucket_row, np.arange(len(partial) + 1)).tolist()
    traces = partial.exemplar_trace.tobytes()
    made: list[Point] = []
    for at in range(len(partial)):
        window = int(partial.window[at])
        longest = Exemplar(
            traces[16 * at : 16 * at + 16],
            int(partial.exemplar_span[at]),
            int(partial.max_ns[at]),
            int(partial.exemplar_start_ns[at]),
        )
        made.append(
            Point(
                series=registry.series[int(partial.series[at])],
                window_start_ns=window * width_ns,
                window_end_ns=(window + 1) * width_ns,
                count=int(partial.count[at]),
                spans=int(partial.spans[at]),
                sum_ns=int(partial.sum_ns[at]),
                min_ns=int(partial.min_ns[at]),
                max_ns=int(partial.max_ns[at]),
                warp_ns=int(partial.warp_ns[at]),
                bytes=int(partial.bytes[at]),
                bucket_index=partial.bucket_index[edges[at] : edges[at + 1]],
                bucket_count=partial.bucket_count[edges[at] : edges[at + 1]],
                exemplar=longest,
            )
        )
    return made


class Totals:
    """Running totals of every series since it began: what a cumulative point says. They only ever grow.

    What was added in which order does not show: sums, first and last window are the same for the same spans.
    """

    def __init__(self, width_ns: int, registry: SeriesRegistry, *, epoch: int = 0) -> None:
        """Args: epoch: generation of these totals, see Point."""
        self._width_ns = width_ns
        self._registry = registry
        self.epoch = epoch
        self._sums = empty_partial()
        self._ends: dict[int, tuple[int, int]] = {}

    def restore(self, kept: list[Point]) -> None:
        """Begins from cumulative points; all are of one epoch, which becomes that of these totals."""
        for point in kept:
            self._ends[self._registry.number(point.series)] = (point.window_start_ns, point.window_end_ns)
            self.epoch = point.epoch
        self._sums = merge([self._sums, partial_of(kept, self._registry)])

    def add(self, closed: Partial) -> list[Point]:
        """Adds aggregates of any windows; the cumulative points of the series that were in them."""
        if len(closed) == 0:
            return []
        width = self._width_ns
        for number, window in zip(closed.series.tolist(), closed.window.tolist(), strict=True):
            begin, end = window * width, (window + 1) * width
            first, last = self._ends.get(number, (begin, end))
            self._ends[number] = (min(first, begin), max(last, end))
        flat = merge([replace(closed, window=np.zeros_like(closed.window))])
        touched = np.isin(self._sums.series, flat.series)
        newest = merge([select(self._sums, touched), flat])
        self._sums = _join(select(self._sums, ~touched), newest)
        return [
            replace(
                point,
                window_start_ns=self._ends[number][0],
                window_end_ns=self._ends[number][1],
                cumulative=True,
                epoch=self.epoch,
            )
            for number, point in zip(newest.series.tolist(), points(newest, width, self._registry), strict=True)
        ]


def _join(one: Partial, other: Partial) -> Partial:
    """Partials without a common series, one after the other."""
    columns = {name: np.concatenate([getattr(one, name), getattr(other, name)]) for name in ROW_FIELDS}
    return Partial(
        **columns,
        bucket_row=np.concatenate([one.bucket_row, other.bucket_row + np.int32(len(one))]),
        bucket_index=np.concatenate([one.bucket_index, other.bucket_index]),
        bucket_count=np.concatenate([one.bucket_count, other.bucket_count]),
    )
