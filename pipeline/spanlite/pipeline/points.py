"""Closed windows to metric points, and their running totals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from spanlite.contract.points import Exemplar, Point
from spanlite.pipeline.partial import Partial, empty_partial, merge, select
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
    """Running totals of every series since it began: what a cumulative point says. They only ever grow."""

    def __init__(self, width_ns: int, registry: SeriesRegistry) -> None:
        self._width_ns = width_ns
        self._registry = registry
        self._sums = empty_partial()
        self._starts_ns: dict[int, int] = {}

    def add(self, closed: Partial) -> list[Point]:
        """Adds closed windows; cumulative points of the series that were in them, as of the last window's end."""
        if len(closed) == 0:
            return []
        last_end_ns = (int(closed.window.max()) + 1) * self._width_ns
        for number, window in zip(closed.series.tolist(), closed.window.tolist(), strict=True):
            self._starts_ns.setdefault(number, window * self._width_ns)
        flat = replace(closed, window=np.zeros_like(closed.window))
        self._sums = merge([self._sums, flat])
        touched = np.isin(self._sums.series, closed.series)
        newest = select(self._sums, touched)
        numbers = newest.series.tolist()
        return [
            replace(point, window_start_ns=self._starts_ns[number], window_end_ns=last_end_ns, cumulative=True)
            for number, point in zip(numbers, points(newest, self._width_ns, self._registry), strict=True)
        ]
