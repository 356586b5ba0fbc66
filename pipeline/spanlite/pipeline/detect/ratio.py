"""A figure against the median of what the same series has shown before."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.pipeline.detect.alerts import Alerts, no_alerts
from spanlite.pipeline.detect.rules import Rule, is_off
from spanlite.pipeline.detect.runs import Runs
from spanlite.pipeline.pointset import PointSet

_Floats = NDArray[np.float64]
_AT_ONCE = 1 << 22
"""Values that are copied at a time to take medians of."""


class RatioDetector:
    """See `port.Detector`; of each series it keeps its last `rule.baseline` figures and the run that goes on.

    The baseline of a window is the median of the series' last `rule.baseline` windows before it that have the figure,
    off or not, with gaps or without. A series is not judged before it has as many. So what stays off for more than
    half of them becomes what is normal.
    """

    def __init__(self, rule: Rule) -> None:
        if rule.baseline is None:
            raise ValueError(f"{rule.text!r} is no rule with a baseline")
        self._rule = rule
        self._baseline = rule.baseline
        self._runs = Runs(rule.windows, above=rule.above)
        self._series: Int32 = np.zeros(0, dtype=np.int32)
        self._value: _Floats = np.zeros(0)

    def step(self, points: PointSet) -> Alerts:
        rows = points.rows
        if not len(rows):
            return no_alerts()
        self._runs.check_order(rows.window)
        value = self._rule.figure.of(points)
        known = np.isfinite(value)
        series, window, value = rows.series[known], rows.window[known], value[known]
        order = np.lexsort((window, series))
        limit = self._limits(series[order], value[order])
        series, window, value = series[order], window[order], value[order]
        off = is_off(self._rule, value, limit)
        newest = int(rows.window.max())
        return self._runs.add(series[off], window[off], value[off], limit[off], newest=newest)

    def ongoing(self) -> Alerts:
        return self._runs.ongoing()

    def _limits(self, series: Int32, value: _Floats) -> _Floats:
        """What each figure is compared with, nan where the series has too few before; keeps the newest ones.

        Args: series ascending, the figures of each in the order of time.
        """
        every = np.concatenate([self._series, series])
        order = np.argsort(every, kind="stable")  # those kept come before the new ones of their series
        every = every[order]
        figures = np.concatenate([self._value, value])[order]
        begins = np.flatnonzero(np.diff(every, prepend=-1))
        length = np.diff(np.append(begins, len(every)))
        place = np.arange(len(every)) - np.repeat(begins, length)
        limits = np.full(len(every), np.nan)
        judged = np.flatnonzero((order >= len(self._series)) & (place >= self._baseline))
        limits[judged] = _medians(figures, judged - self._baseline, self._baseline) * self._rule.value
        keep = np.repeat(length, length) - place <= self._baseline
        self._series, self._value = every[keep], figures[keep]
        return limits[order >= len(order) - len(series)]


def _medians(figures: _Floats, begin: Int64, size: int) -> _Floats:
    """Median of the `size` values from each place on."""
    found = np.empty(len(begin))
    if not len(begin):
        return found
    windows, step = sliding_window_view(figures, size), max(1, _AT_ONCE // size)
    for at in range(0, len(begin), step):
        found[at : at + step] = np.median(windows[begin[at : at + step]], axis=1)
    return found
