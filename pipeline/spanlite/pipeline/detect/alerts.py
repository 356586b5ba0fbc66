"""Alerts as columns: in which windows a series was off, and by how much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Alerts:
    """Alerts of one rule, one row each, shape (a,): windows one after the other, all off, as many as the rule asks for.

    Attributes:
        series: number in the registry of the points.
        first, last: first and last window that was off.
        told: the window with which it had been off for long enough: when somebody would have been told.
        peak: the figure where it was furthest off, and `peak_window` the first window where it was that.
        threshold: what it was off from, in that window.
    """

    series: Int32
    first: Int64
    last: Int64
    told: Int64
    peak: _Floats
    peak_window: Int64
    threshold: _Floats

    def __len__(self) -> int:
        return len(self.series)

    def where(self, keep: NDArray[np.bool_] | Int64) -> Alerts:
        """The rows of a mask or of places, in their order."""
        return Alerts(*(getattr(self, field.name)[keep] for field in fields(self)))

    def ordered(self) -> Alerts:
        """By first window, then series."""
        return self.where(np.lexsort((self.series, self.first)))


def no_alerts() -> Alerts:
    """None."""
    integers, floats = np.zeros(0, dtype=np.int64), np.zeros(0)
    return Alerts(integers.astype(np.int32), integers, integers, integers, floats, integers, floats)


def joined(parts: Sequence[Alerts]) -> Alerts:
    """The alerts of all, one after the other."""
    if not parts:
        return no_alerts()
    return Alerts(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Alerts)))
