"""A figure against a fixed value."""

from __future__ import annotations

import numpy as np

from spanlite.pipeline.detect.alerts import Alerts, no_alerts
from spanlite.pipeline.detect.rules import Rule, is_off
from spanlite.pipeline.detect.runs import Runs
from spanlite.pipeline.pointset import PointSet


class ThresholdDetector:
    """See `port.Detector`; of each series it keeps the run that goes on."""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._runs = Runs(rule.windows, above=rule.above)

    def step(self, points: PointSet) -> Alerts:
        rows = points.rows
        if not len(rows):
            return no_alerts()
        self._runs.check_order(rows.window)
        value = self._rule.figure.of(points)
        off = is_off(self._rule, value, self._rule.value)
        threshold = np.full(int(np.count_nonzero(off)), self._rule.value)
        newest = int(rows.window.max())
        return self._runs.add(rows.series[off], rows.window[off], value[off], threshold, newest=newest)

    def ongoing(self) -> Alerts:
        return self._runs.ongoing()
