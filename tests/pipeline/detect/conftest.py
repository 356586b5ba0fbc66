"""Tables of figures as points, and what rules make of them by plain loops."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from spanlite.contract.points import Point, Series
from spanlite.pipeline.detect.alerts import Alerts
from spanlite.pipeline.pointset import PointSet, point_set
from spanlite.pipeline.series import SeriesRegistry

WIDTH_NS = 10
Table = Mapping[tuple[int, str], int]
"""Longest duration by window and kernel."""


class Alert(NamedTuple):
    """A row of Alerts, its series by name."""

    kernel: str
    first: int
    last: int
    told: int
    peak: float
    peak_window: int
    threshold: float


def points_of(table: Table, registry: SeriesRegistry | None = None) -> PointSet:
    """Points whose `max` is the table's, one for each window and kernel."""
    none = np.zeros(0, dtype=np.int64)
    made = [
        Point(
            *(Series("GPU", 1, kernel), window * WIDTH_NS, (window + 1) * WIDTH_NS),
            *(1, 1, value, value, value, 0, 0),
            *(none.astype(np.int32), none),
        )
        for (window, kernel), value in table.items()
    ]
    if not made:
        return replace(points_of({(0, "x"): 1}), registry=registry or SeriesRegistry()).of_series(lambda _: False)
    found = point_set(made)
    return found.numbered_by(registry) if registry else found


def rows_of(alerts: Alerts, points: PointSet) -> list[Alert]:
    """Alerts as rows, sorted."""
    names = [points.registry.series[number].kernel for number in alerts.series.tolist()]
    columns = (getattr(alerts, name).tolist() for name in Alert._fields[1:])
    return sorted(Alert(*row) for row in zip(names, *columns, strict=True))


def brute_force(
    table: Table, *, above: bool, strict: bool, value: float, windows: int, baseline: int | None = None
) -> list[Alert]:
    """Every run of windows that are off and long enough, kernel by kernel, window by window."""
    found: list[Alert] = []
    for kernel in {kernel for _, kernel in table}:
        before: list[int] = []
        run: list[tuple[int, int, float]] = []
        for window in sorted(w for w, k in table if k == kernel):
            figure = table[window, kernel]
            limit: float | None = value
            if baseline is not None:
                limit = statistics.median(before[-baseline:]) * value if len(before) >= baseline else None
            before.append(figure)
            if run and run[-1][0] != window - 1:
                found += _alert(kernel, run, windows, above=above)
                run = []
            if limit is not None and _is_off(figure, limit, above=above, strict=strict):
                run.append((window, figure, limit))
            else:
                found += _alert(kernel, run, windows, above=above)
                run = []
        found += _alert(kernel, run, windows, above=above)
    return sorted(found)


def _is_off(figure: float, limit: float, *, above: bool, strict: bool) -> bool:
    if above:
        return figure > limit if strict else figure >= limit
    return figure < limit if strict else figure <= limit


def _alert(kernel: str, run: list[tuple[int, int, float]], windows: int, *, above: bool) -> Iterable[Alert]:
    if run and len(run) >= windows:
        furthest = max(figure for _, figure, _ in run) if above else min(figure for _, figure, _ in run)
        at, peak, limit = next(each for each in run if each[1] == furthest)
        first = run[0][0]
        yield Alert(kernel, first, run[-1][0], first + windows - 1, peak, at, limit)


tables = st.dictionaries(
    st.tuples(st.integers(-3, 18), st.sampled_from(["a", "b", "c"])), st.integers(1, 9), max_size=50
)
