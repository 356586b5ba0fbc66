"""What a detector is: windows in, in the order of time, alerts out; the same code at once and window by window."""

from __future__ import annotations

from typing import Protocol

from spanlite.pipeline.detect.alerts import Alerts, joined
from spanlite.pipeline.pointset import PointSet


class Detector(Protocol):
    """Looks at the points of windows as these are complete; of earlier ones it keeps a bounded amount a series.

    However windows are cut into steps, the alerts are the same.
    """

    def step(self, points: PointSet) -> Alerts:
        """Takes all points of one window or of several, and returns the alerts that have come to their end.

        Args:
            points: one row for each window and series; windows newer than those of all steps before, and series
                numbered by one registry throughout.

        Raises:
            ValueError: a window is not newer.
        """
        ...

    def ongoing(self) -> Alerts:
        """The alerts that go on in the newest window: what somebody has been told and is not over."""
        ...


def detect(detector: Detector, points: PointSet) -> Alerts:
    """All alerts of points, those that do not end in them as well; by first window."""
    ended = detector.step(points.merged())
    return joined([ended, detector.ongoing()]).ordered()
