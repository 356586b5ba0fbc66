"""Two sets of alerts compared, of other rules or other windows: by series and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from spanlite.contract.columns import Int32, Int64
from spanlite.pipeline.detect.alerts import Alerts


@dataclass(frozen=True, slots=True)
class Incidents:
    """Times in which any rule of a set alerted a series, shape (i,): of one series they neither overlap nor touch.

    Attributes:
        series: ascending; of each the times ascend.
        begin_ns, end_ns: from the first window that was off to the end of the last.
        told_ns: end of the window with which the first alert had lasted long enough.
    """

    series: Int32
    begin_ns: Int64
    end_ns: Int64
    told_ns: Int64

    def __len__(self) -> int:
        return len(self.series)

    def where(self, keep: NDArray[np.bool_] | Int64) -> Incidents:
        """The rows of a mask or of places."""
        return Incidents(*(getattr(self, field.name)[keep] for field in fields(self)))


@dataclass(frozen=True, slots=True)
class Changes:
    """What another set of rules or windows makes of the same time.

    Attributes:
        only_a, only_b: incidents that overlap none of the other set.
        both_a, both_b: each other incident of A, and the first of B that it overlaps; as long as each other.
    """

    only_a: Incidents
    only_b: Incidents
    both_a: Incidents
    both_b: Incidents


def incidents(found: Sequence[Alerts], width_ns: int) -> Incidents:
    """The alerts of several rules on windows of one width, joined where they overlap or follow each other."""
    series = np.concatenate([np.zeros(0, dtype=np.int32), *(alerts.series for alerts in found)])
    none = np.zeros(0, dtype=np.int64)
    begin, end, told = (
        np.concatenate([none, *(getattr(alerts, name) + plus for alerts in found)]) * width_ns
        for name, plus in (("first", 0), ("last", 1), ("told", 1))
    )
    if not len(series):
        return Incidents(series, begin, end, told)
    order = np.lexsort((begin, series))
    series, begin, end, told = series[order], begin[order], end[order], told[order]
    fresh = np.ones(len(series), dtype=bool)
    # The latest end so far within each series: of ranks, since those of a series lie above those of series before it.
    ends, rank = np.unique(end, return_inverse=True)
    latest = np.maximum.accumulate(series.astype(np.int64) * len(ends) + rank)
    fresh[1:] = (series[1:] != series[:-1]) | (begin[1:] > ends[latest[:-1] % len(ends)])
    first = np.flatnonzero(fresh)
    return Incidents(series[first], begin[first], np.maximum.reduceat(end, first), np.minimum.reduceat(told, first))


def changes(a: Incidents, b: Incidents) -> Changes:
    """Incidents of both sets by whether the other has them; series are numbered by one registry."""
    at = _first_overlap(a, b)
    back = _first_overlap(b, a)
    both = at >= 0
    return Changes(a.where(~both), b.where(back < 0), a.where(both), b.where(at[both]))


def _first_overlap(one: Incidents, other: Incidents) -> Int64:
    """For each incident of `one` the place of the first of `other` that it overlaps, -1 for none."""
    if not len(other) or not len(one):
        return np.full(len(one), -1, dtype=np.int64)
    times = np.unique(np.concatenate([one.begin_ns, other.end_ns]))
    size = len(times)
    ends = other.series.astype(np.int64) * size + np.searchsorted(times, other.end_ns)
    begins = one.series.astype(np.int64) * size + np.searchsorted(times, one.begin_ns)
    at = np.searchsorted(ends, begins, side="right")  # the first that ends after the beginning
    known = at < len(other)
    place = np.where(known, at, 0)
    known &= (other.series[place] == one.series) & (other.begin_ns[place] < one.end_ns)
    return np.where(known, at, -1)
