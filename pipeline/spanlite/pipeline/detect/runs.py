"""Windows of a series that are off one after the other, joined across steps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.pipeline.detect.alerts import Alerts, joined, no_alerts

_Floats = NDArray[np.float64]


class Runs:
    """Runs of windows that are off: those that go on, and from each step those that have ended and were long enough.

    A window in which a series has no point ends its run.
    """

    def __init__(self, least: int, *, above: bool) -> None:
        """Args: least: windows that make an alert; above: whether the greatest figure is the furthest off."""
        self._least = least
        self._above = above
        self._open = no_alerts()
        self._newest: int | None = None

    def check_order(self, window: Int64) -> None:
        """Raises ValueError where a window is not newer than those of all steps before."""
        if self._newest is not None and len(window) and int(window.min()) <= self._newest:
            raise ValueError(f"window {int(window.min())} comes after window {self._newest} was complete")

    def add(self, series: Int32, window: Int64, value: _Floats, threshold: _Floats, *, newest: int) -> Alerts:
        """Takes the points of a step that are off, one for a window and series; the alerts that have ended.

        Args:
            newest: newest window of the step, whether anything is off in it or not.
        """
        unit = Alerts(series, window, window, window, value, window, threshold)
        runs = self._chained(joined([self._open, unit]))
        self._newest = newest
        going = runs.last == newest
        self._open = runs.where(going)
        return self._long(runs.where(~going))

    def ongoing(self) -> Alerts:
        """Those that go on and are long enough."""
        return self._long(self._open)

    def _chained(self, parts: Alerts) -> Alerts:
        """Runs of each series where one begins right after another, as one."""
        if not len(parts):
            return parts
        parts = parts.where(np.lexsort((parts.first, parts.series)))
        fresh = np.ones(len(parts), dtype=bool)
        fresh[1:] = (parts.series[1:] != parts.series[:-1]) | (parts.first[1:] != parts.last[:-1] + 1)
        begin = np.flatnonzero(fresh)
        end = np.append(begin[1:], len(parts)) - 1
        group = np.cumsum(fresh) - 1
        off = -parts.peak if self._above else parts.peak
        furthest = np.lexsort((parts.peak_window, off, group))[begin]
        first = parts.first[begin]
        return Alerts(
            series=parts.series[begin],
            first=first,
            last=parts.last[end],
            told=first + (self._least - 1),
            peak=parts.peak[furthest],
            peak_window=parts.peak_window[furthest],
            threshold=parts.threshold[furthest],
        )

    def _long(self, runs: Alerts) -> Alerts:
        return runs.where(runs.last >= runs.told)
